"""The rule for each command about one execution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from flowfabric.kernel.command import Command
from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.execution import (
    cancel,
    complete,
    expire,
    fail,
    grant,
    operate,
    own,
    reclaim,
    repin,
    replay,
    revoke,
    wake,
)
from flowfabric.kernel.flow import dependent
from flowfabric.kernel.journal import chapter
from flowfabric.model.execution import Execution
from flowfabric.model.flow_results import ChildrenAwaited
from flowfabric.model.journal import Continued
from flowfabric.model.results import Cancelled, Completed, Delayed, RetryScheduled, TerminalFailed

Rule = Callable[[Execution | None, Any, Moment], Decision[Any]]

RULES: Final[dict[type[Command[object]], Rule]] = {
    own.Renew: own.renew,
    own.Progress: own.progress,
    own.Delay: own.delay,
    complete.Complete: complete.complete,
    fail.Fail: fail.fail,
    cancel.Cancel: cancel.cancel,
    revoke.RevokeLease: revoke.revoke_lease,
    expire.ExpireLease: expire.expire_lease,
    expire.ExpireAttempt: expire.expire_attempt,
    expire.ExpireDeadline: expire.expire_deadline,
    expire.PromoteDelayed: expire.promote_delayed,
    wake.Wake: wake.wake,
    reclaim.RequeueLost: reclaim.requeue_lost,
    reclaim.IssueReclaimGrant: reclaim.issue_reclaim_grant,
    reclaim.ReclaimExecution: reclaim.reclaim_execution,
    grant.IssueClaimGrant: grant.issue_claim_grant,
    grant.ClaimGranted: grant.claim_granted,
    grant.ClaimNamed: grant.claim_named,
    operate.ChangePriority: operate.change_priority,
    operate.Hold: operate.hold,
    operate.Release: operate.release,
    operate.Block: operate.block,
    operate.BlockRoute: operate.block_route,
    operate.Unblock: operate.unblock,
    operate.SetTag: operate.set_tag,
    replay.Replay: replay.replay,
    repin.Repin: repin.repin,
}

# Calls by which an owner ends its lease. Repeated with the same fence, each gets its first reply,
# however far the execution has gone on. Calls about a live lease (a renewal, progress, a
# reservation) are refused once that lease is over.
REPEATABLE: Final[dict[type[Command[object]], tuple[type, ...]]] = {
    complete.Complete: (Completed,),
    fail.Fail: (RetryScheduled, TerminalFailed),
    cancel.Cancel: (Cancelled,),
    own.Delay: (Delayed,),
    dependent.WaitChildren: (ChildrenAwaited,),
    chapter.Continue: (Continued,),
}
