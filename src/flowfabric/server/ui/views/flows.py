"""The list of flows: how far each is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote, urlencode

from flowfabric.api.page import Page
from flowfabric.model.flow import FlowStatus
from flowfabric.model.flow_results import FlowListing
from flowfabric.model.record import Record

PATH: Final = "/ui/flows"
_STATUSES: Final = tuple(each.value for each in FlowStatus)


class Filter(Record, frozen=True, kw_only=True):
    """What the address chooses. What makes no sense there is not chosen."""

    status: str = ""
    namespace: str = ""
    cursor: str = ""

    def address(
        self, *, status: str | None = None, namespace: str | None = None, cursor: str = ""
    ) -> str:
        """The same with another choice."""
        pairs = {
            "status": self.status if status is None else status,
            "namespace": self.namespace if namespace is None else namespace,
            "cursor": cursor,
        }
        query = urlencode({name: text for name, text in pairs.items() if text}, quote_via=quote)
        return f"{PATH}?{query}" if query else PATH


class Row(Record, frozen=True, kw_only=True):
    """One flow."""

    flow_id: str
    href: str
    kind: str
    status: str
    namespace: str
    created_at: int
    ended: int
    many: int
    share: int  # of its nodes that have ended, in percent


class Choice(Record, frozen=True):
    """A status or a namespace to choose, or to choose no more."""

    word: str
    href: str
    is_here: bool


class Flows(Record, frozen=True, kw_only=True):
    """The page. `namespaces`: those of a caller that has several, and sees one of them."""

    title: str
    filter: Filter
    rows: tuple[Row, ...]
    statuses: tuple[Choice, ...]
    next: str | None
    first: str | None
    has_namespaces: bool
    namespaces: tuple[Choice, ...]


def filter_of(query: Mapping[str, str]) -> Filter:
    """The choices of an address."""
    status = query.get("status", "")
    return Filter(
        status=status if status in _STATUSES else "",
        namespace=query.get("namespace", ""),
        cursor=query.get("cursor", ""),
    )


def flows_of(page: Page[FlowListing], filter: Filter, own: Sequence[str] = ()) -> Flows:
    """The page of a filter. `own`: the namespaces of the caller, if it has several."""
    rows = tuple(map(_row, page.items))
    return Flows(
        title="Flows",
        filter=filter,
        rows=rows,
        statuses=tuple(
            Choice(
                each,
                filter.address(status="" if each == filter.status else each),
                each == filter.status,
            )
            for each in _STATUSES
        ),
        next=filter.address(cursor=page.next_cursor) if page.next_cursor else None,
        first=filter.address() if filter.cursor else None,
        namespaces=tuple(
            Choice(each, filter.address(namespace=each), each == filter.namespace) for each in own
        ),
        has_namespaces=len({each.namespace for each in rows} | {filter.namespace or "default"}) > 1,
    )


def _row(flow: FlowListing) -> Row:
    return Row(
        flow_id=flow.flow_id,
        href=f"{PATH}/{flow.flow_id}",
        kind=flow.flow_kind,
        status=flow.status.value,
        namespace=flow.namespace,
        created_at=flow.created_at,
        ended=flow.ended_count,
        many=flow.node_count,
        share=100 * flow.ended_count // flow.node_count if flow.node_count else 0,
    )
