"""Work left for later: when it is tried again, and what a deferred cancel says it comes from."""

from __future__ import annotations

from flowfabric.kernel.decision import Moment
from flowfabric.kernel.flow.deferred import cancel_source, put_off, retry_pause_ms
from flowfabric.limits import TASK_RETRY_MS, TASK_RETRY_MS_MAX
from flowfabric.model.flow import TaskKind, TaskRow
from flowfabric.model.record import replace

TASK = TaskRow("f", TaskKind.CANCEL_MEMBER, "x", "enough", 2, 5)


def test_the_pause_doubles_up_to_a_bound() -> None:
    pauses = [retry_pause_ms(tries) for tries in range(12)]
    assert pauses[:4] == [TASK_RETRY_MS, 2 * TASK_RETRY_MS, 4 * TASK_RETRY_MS, 8 * TASK_RETRY_MS]
    assert max(pauses) == pauses[-1] == retry_pause_ms(10_000) == TASK_RETRY_MS_MAX


def test_locked_work_is_tried_again_after_a_pause_and_too_much_at_once() -> None:
    locked = put_off(TASK, Moment(100), is_locked=True)
    assert locked == replace(TASK, tries=3, due_at=100 + retry_pause_ms(2))
    assert put_off(TASK, Moment(100), is_locked=False) == replace(TASK, due_at=100)


def test_a_deferred_cancel_says_where_it_comes_from() -> None:
    assert cancel_source(TASK) == "flow_cancel"
    assert cancel_source(replace(TASK, reason="parent_ended")) == "flow_cascade"
