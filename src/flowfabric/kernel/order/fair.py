"""Fair keys: start-time fair queueing, decided when an execution is created.

The tag of an execution is the clock of its queue, or the finish of the last one of its key if that
is later; its finish is a span later, the shorter the heavier its key weighs. So a key with a
thousand waiting stands a thousand spans ahead, and a newcomer stands at the clock. Spans are
milliseconds, so that tags and ages can be compared.
"""

from __future__ import annotations

from typing import Final

from flowfabric.limits import INSTANT_MS_MAX
from flowfabric.model.execution import Execution
from flowfabric.model.fair import Fair, FairPhase, FairRow

SPAN_MS: Final = 1_000  # of a key that weighs 1

Queue = tuple[str, str, int]  # namespace, lane, priority


def queue_of(execution: Execution) -> Queue:
    """Where its tag is compared with those of others."""
    route = execution.route
    return (route.namespace, route.lane_id, execution.priority)


def started(key: str, clock: int, last: int | None, weight: int) -> Fair:
    """The tag of a new execution. `last`: the greatest finish among the unfinished of its key."""
    tag = min(clock if last is None else max(clock, last), INSTANT_MS_MAX - SPAN_MS)
    return Fair(key, tag, tag + max(1, SPAN_MS // weight))


def clock_of(running: FairRow | None, ready: FairRow | None, now: int) -> int:
    """The clock of a queue: the greatest tag that runs, else the least that is ready. Where neither
    is, all begin anew."""
    if running is not None:
        return running.tag
    return now if ready is None else ready.tag


def row_of(execution: Execution) -> FairRow | None:
    """The row of an execution; none without a tag, nor once it has ended."""
    fair = execution.ties.fair
    if fair is None or not fair.tag or execution.is_terminal:
        return None
    queue = queue_of(execution)
    phase = _phase_of(execution)
    # One that is away and had its turn keeps no other of its key back.
    has_begun = phase is FairPhase.AWAY and execution.total_attempt_count > 0
    finish = 0 if has_begun else fair.finish
    return FairRow(execution.execution_id, *queue, phase, fair.tag, fair.key, finish)


def _phase_of(execution: Execution) -> FairPhase:
    if execution.is_waiting:
        return FairPhase.READY
    return FairPhase.RUNNING if execution.is_leased else FairPhase.AWAY
