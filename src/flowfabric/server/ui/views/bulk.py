"""One change to many runs: what it will be, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from flowfabric.model.bulk import BulkAction, BulkFilter, BulkOperation
from flowfabric.model.record import Record
from flowfabric.model.results import ExecutionSnapshot
from flowfabric.server.ui.views.execution import can_of
from flowfabric.server.ui.views.filters import Filter
from flowfabric.server.ui.views.runs import Row, row_of

TYPED_FROM: Final = 101  # so many are changed only after their number was typed
SAMPLE: Final = 10
# The word of a button, and what it does to each of them.
ACTIONS: Final[Mapping[str, tuple[BulkAction, str, str]]] = {
    "retry": (
        BulkAction.RETRY,
        "Retry",
        "Each runs again as a new attempt. Steps that are recorded are not run again.",
    ),
    "cancel": (
        BulkAction.CANCEL,
        "Cancel",
        "Each ends as cancelled. Handlers that run are told to stop.",
    ),
    "hold": (BulkAction.HOLD, "Hold", "No worker takes them until they are released."),
    "release": (BulkAction.RELEASE, "Release", "Holds end: workers may take them again."),
    "priority": (
        BulkAction.PRIORITY,
        "Change the priority of",
        "Work of a higher priority is taken first.",
    ),
}


class Preview(Record, frozen=True, kw_only=True):
    """What a change would do. `ids`: of the runs that were selected; none means all of the filter,
    as it was `at` an instant."""

    title: str = "Change many runs"
    action: str
    verb: str
    effect: str
    count: int
    sample: tuple[Row, ...]
    ids: tuple[str, ...]
    text: str
    at: int
    operation_id: str
    must_type: bool


def preview_of(
    action: str,
    sample: Sequence[ExecutionSnapshot],
    *,
    count: int,
    ids: Sequence[str],
    text: str,
    now: int,
    operation_id: str,
) -> Preview:
    """The page before a change."""
    _, verb, effect = ACTIONS[action]
    sample = [each for each in sample if getattr(can_of(each), action)]
    return Preview(
        action=action,
        verb=verb,
        effect=effect,
        count=count,
        sample=tuple(row_of(each, now) for each in sample[:SAMPLE]),
        ids=tuple(ids),
        text=text,
        at=now,
        operation_id=operation_id,
        must_type=count >= TYPED_FROM,
    )


class Operation(Record, frozen=True, kw_only=True):
    """The page of an operation."""

    title: str
    operation: BulkOperation
    words: str
    share: int
    refused_share: int
    refused: tuple[tuple[str, int], ...]
    left: int

    @property
    def is_quiet(self) -> bool:
        """Whether it is over."""
        return self.operation.is_over


def operation_of(found: BulkOperation) -> Operation:
    """How far an operation is."""
    refused = sum(found.refused.values())
    whole = max(found.matched, found.handled, 1)
    return Operation(
        title=f"{found.action.value.capitalize()} {found.matched} runs",
        operation=found,
        words=words_of(found.filter),
        share=round((found.done + found.unchanged) / whole * 100),
        refused_share=round(refused / whole * 100),
        refused=tuple(sorted(found.refused.items(), key=lambda each: -each[1])),
        left=0 if found.is_over else max(0, found.matched - found.handled),
    )


def words_of(wanted: BulkFilter | Filter) -> str:
    """A filter as the words of the bar."""
    parts = [f"state:{state}" for state in wanted.states]
    for word, value in (
        ("kind", wanted.execution_kind),
        ("lane", wanted.lane_id),
        ("namespace", wanted.namespace),
        ("since", wanted.created_after),
        ("until", wanted.created_before),
    ):
        if value is not None:
            parts.append(f"{word}:{value}")
    if wanted.tag is not None:
        parts.append(f"tag:{wanted.tag[0]}={wanted.tag[1]}")
    parts.append(wanted.text or "")
    return " ".join(f'"{each}"' if " " in each else each for each in parts if each)
