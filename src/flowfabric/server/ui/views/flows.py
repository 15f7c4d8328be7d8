"""The list of flows: how far each is."""

from __future__ import annotations

from collections.abc import Mapping
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

    def address(self, *, status: str | None = None, cursor: str = "") -> str:
        """The same with another choice."""
        pairs = {
            "status": self.status if status is None else status,
            "namespace": self.namespace,
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


class Status(Record, frozen=True):
    """A status to choose, or to choose no more."""

    word: str
    href: str
    is_here: bool


class Flows(Record, frozen=True, kw_only=True):
    """The page."""

    title: str
    filter: Filter
    rows: tuple[Row, ...]
    statuses: tuple[Status, ...]
    next: str | None
    first: str | None
    has_namespaces: bool


def filter_of(query: Mapping[str, str]) -> Filter:
    """The choices of an address."""
    status = query.get("status", "")
    return Filter(
        status=status if status in _STATUSES else "",
        namespace=query.get("namespace", ""),
        cursor=query.get("cursor", ""),
    )


def flows_of(page: Page[FlowListing], filter: Filter) -> Flows:
    """The page of a filter."""
    rows = tuple(map(_row, page.items))
    return Flows(
        title="Flows",
        filter=filter,
        rows=rows,
        statuses=tuple(
            Status(
                each,
                filter.address(status="" if each == filter.status else each),
                each == filter.status,
            )
            for each in _STATUSES
        ),
        next=filter.address(cursor=page.next_cursor) if page.next_cursor else None,
        first=filter.address() if filter.cursor else None,
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
