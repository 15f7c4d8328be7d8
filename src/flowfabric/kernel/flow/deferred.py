"""Work on a flow that one transaction leaves for later: it is too much, or a row is locked."""

from __future__ import annotations

from flowfabric import limits
from flowfabric.kernel.decision import Moment
from flowfabric.kernel.flow.cancel import FLOW_CANCEL
from flowfabric.model.flow import TaskKind, TaskRow
from flowfabric.model.record import replace

FLOW_CASCADE = "flow_cascade"  # the source of a cancel that follows from another end
PARENT_ENDED = "parent_ended"  # why children are cancelled


def retry_pause_ms(tries: int) -> int:
    """Backoff before a locked row is tried again; doubles with each try."""
    return min(limits.TASK_RETRY_MS << min(tries, 10), limits.TASK_RETRY_MS_MAX)


def put_off(task: TaskRow, at: Moment, *, is_locked: bool) -> TaskRow:
    """Work that was begun and not finished: with a backoff where a row was locked, at once where it
    was only too much for one transaction."""
    if not is_locked:
        return replace(task, due_at=at.now)
    return replace(task, tries=task.tries + 1, due_at=at.now + retry_pause_ms(task.tries))


def cancel_source(task: TaskRow) -> str:
    """What a member's deferred cancel is recorded to come from."""
    assert task.kind is TaskKind.CANCEL_MEMBER  # noqa: S101 - others name no member to cancel
    return FLOW_CASCADE if task.reason == PARENT_ENDED else FLOW_CANCEL
