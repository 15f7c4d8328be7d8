"""Wake: an execution's next due time has come; do what is due.

One due time per execution, the earliest of all, is indexed. Where several are due at one instant a
deadline beats an attempt's time, which beats a lapsed lease, which beats reclaim and delays.
"""

from __future__ import annotations

from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.execution.expire import (
    ExpireAttempt,
    ExpireDeadline,
    ExpireLease,
    PromoteDelayed,
    expire_attempt,
    expire_deadline,
    expire_lease,
    promote_delayed,
)
from flowfabric.kernel.execution.reclaim import RequeueLost, requeue_lost
from flowfabric.model.execution import Execution
from flowfabric.model.record import Record
from flowfabric.model.results import Moved


class Wake(Record, frozen=True):
    """A due time may have come."""

    execution_id: str
    jitter: float


def wake(execution: Execution | None, command: Wake, at: Moment) -> Decision:
    """The first transition that is due; each checks its own time again."""
    key = command.execution_id
    for decision in (
        expire_deadline(execution, ExpireDeadline(key), at),
        expire_attempt(execution, ExpireAttempt(key, command.jitter), at),
        expire_lease(execution, ExpireLease(key), at),
        requeue_lost(execution, RequeueLost(key), at),
        promote_delayed(execution, PromoteDelayed(key), at),
    ):
        if decision.execution is not None:
            return decision
    return Decision(Moved(key, "unchanged"))
