"""Wake: an execution's next due time has come; do the due transition.

One due time per execution, the earliest of all, is indexed. Where several are due at one instant a
deadline beats an attempt's timeout, which beats an expired lease, which beats reclaim and delays.
"""

from __future__ import annotations

from flowfabric.kernel.command import ExecutionCommand
from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.execution.expire import (
    ExpireAttempt,
    ExpireDeadline,
    ExpireLease,
    PromoteDelayed,
    expire_attempt,
    expire_deadline,
    expire_lease,
    expire_unstarted,
    promote_delayed,
)
from flowfabric.kernel.execution.reclaim import RequeueLost, requeue_lost
from flowfabric.model.execution import Execution
from flowfabric.model.results import Moved


class Wake(ExecutionCommand[Moved], frozen=True, kw_only=True):
    """A due time may have come."""

    jitter: float


def wake(execution: Execution | None, command: Wake, at: Moment) -> Decision[Moved]:
    """The first transition that is due; each checks its own time again."""
    key = command.execution_id
    for decision in (
        expire_deadline(execution, ExpireDeadline(execution_id=key), at),
        expire_unstarted(execution, ExpireDeadline(execution_id=key), at),
        expire_attempt(execution, ExpireAttempt(execution_id=key, jitter=command.jitter), at),
        expire_lease(execution, ExpireLease(execution_id=key), at),
        requeue_lost(execution, RequeueLost(execution_id=key), at),
        promote_delayed(execution, PromoteDelayed(execution_id=key), at),
    ):
        if decision.execution is not None:
            return decision
    return Decision(Moved(key, "unchanged"))
