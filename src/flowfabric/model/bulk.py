"""Bulk operations: one change to every execution that a filter selects, as durable work."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

from flowfabric.model.columns import Instant, Long, Text
from flowfabric.model.dead import Letter
from flowfabric.model.record import Record
from flowfabric.model.state import BlockingReason, PublicState

DONE: Final = "done"
UNCHANGED: Final = "unchanged"


class BulkAction(StrEnum):
    """The change to each execution, as the call for one of them makes it."""

    CANCEL = "cancel"
    RETRY = "retry"
    HOLD = "hold"
    RELEASE = "release"
    PRIORITY = "priority"
    DISMISS = "dismiss"  # of dead letters
    RESTORE = "restore"  # of those that were dismissed


class BulkState(StrEnum):
    """How far an operation is."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"


class BulkFilter(Record, frozen=True, kw_only=True):
    """Which executions: those that fit every part given. Executions that are created after the
    operation began never do.

    `blocking_reason`: those that wait for this. `failure_category`: those that failed so.
    `dead_letter`: those whose dead letter stands so, whose category is then meant. `fingerprint`:
    open dead letters of one group of failures. The other parts are those of `list_executions`.
    """

    namespace: str | None = None
    states: tuple[PublicState, ...] = ()
    lane_id: str | None = None
    execution_kind: str | None = None
    tag: tuple[str, str] | None = None
    created_after: int | None = None
    created_before: int | None = None
    text: str | None = None
    blocking_reason: BlockingReason | None = None
    failure_category: str | None = None
    dead_letter: Letter | None = None
    fingerprint: str | None = None


class BulkArguments(Record, frozen=True, kw_only=True):
    """What the action is told, beside the execution."""

    reason: str = ""
    new_priority: int | None = None
    cascade: bool = False
    fresh: bool = False
    limit: int | None = None  # so many executions at most


class OperationRow(Record, frozen=True):
    """One operation, and the lock of its progress: it moves in the transaction of the changes."""

    operation_id: str
    action: BulkAction
    state: BulkState
    namespace: str | None  # that of its filter
    filter: BulkFilter
    arguments: BulkArguments
    actor: str
    matched: Long  # executions that fitted when it began
    outcomes: Mapping[str, int]  # how many: done, unchanged, or the code of a refusal
    # The place of the last execution it has met, newest first; none before the first.
    place_at: Instant | None
    place_id: str | None
    put_off: Annotated[tuple[str, ...], Text.WORDS]  # met, but locked elsewhere
    created_at: Instant
    finished_at: Instant | None
    due_at: Instant | None  # when it goes on or, once it has ended, is forgotten

    @property
    def tags(self) -> Mapping[str, str]:
        """The tag that all of its executions have."""
        return {} if self.filter.tag is None else {self.filter.tag[0]: self.filter.tag[1]}

    @property
    def handled(self) -> int:
        """How many executions it has acted on, or tried to."""
        return sum(self.outcomes.values())


class BulkOperation(Record, frozen=True, kw_only=True, tag="operation"):
    """An operation as it is shown.

    `matched`: how many executions fitted when it began. Some may fit no longer when their turn
    comes; they are left alone and counted nowhere else. `refused`: how many, by error code.
    """

    operation_id: str
    action: BulkAction
    state: BulkState
    filter: BulkFilter
    arguments: BulkArguments
    actor: str
    matched: int
    done: int
    unchanged: int
    refused: Mapping[str, int]
    created_at: int
    finished_at: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether it acts on nothing any more."""
        return self.state is not BulkState.RUNNING

    @property
    def handled(self) -> int:
        """How many executions it has acted on, or tried to."""
        return self.done + self.unchanged + sum(self.refused.values())


class BulkCounted(Record, frozen=True, tag="counted"):
    """A dry run: so many executions fit, and nothing was changed."""

    matched: int


def shown_operation(row: OperationRow) -> BulkOperation:
    """An operation as it is shown."""
    outcomes = dict(row.outcomes)
    return BulkOperation(
        operation_id=row.operation_id,
        action=row.action,
        state=row.state,
        filter=row.filter,
        arguments=row.arguments,
        actor=row.actor,
        matched=row.matched,
        done=outcomes.pop(DONE, 0),
        unchanged=outcomes.pop(UNCHANGED, 0),
        refused=outcomes,
        created_at=row.created_at,
        finished_at=row.finished_at,
    )
