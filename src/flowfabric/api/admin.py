"""About an installation: its clock, its schema, its health, and what loops do by themselves."""

from __future__ import annotations

from typing import Any, Final

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, operation
from flowfabric.errors import SchemaMismatch, WaitTimeout
from flowfabric.model.record import Record
from flowfabric.model.results import Moved, Prepared, Reconciled

ADVICE: Final = {
    "schema": "run `ff db migrate`; what was changed by hand is in `ff db sql` as it should be",
    "index": "rebuild it (REINDEX), and check the disk",
    "lane": "correct its row in ff_lane_registry, or delete it: the lane then has its defaults",
    "corrupt": "correct the row, or cancel or delete what it belongs to; all other work goes on",
    "limits": "run `ff doctor --repair`, and report it if nothing was written by hand",
    "flows": "run `ff doctor --repair`; correct what is left, or cancel the flow, and report it",
    "lines": "run `ff doctor --repair`, and report it if nothing was written by hand",
    "loops": "look at the log of the process; what is set aside is tried again by itself",
    "unreadable": "start a worker of the release that wrote it, with its time zone; or update it",
    "flapping": "deploy one version of the program everywhere; `ff events --type schedule_changed`"
    " shows both, and the workers that declared them",
    "overdue": "start a worker, or an engine with loops, and look at its log",
    "stuck": "replay or cancel it, and report it if nothing was written by hand",
    "check_failed": "the other checks were made; the log has the whole error",
    "behind": "start its consumers, or `ff groups reset` it: events are deleted at their age",
    "dead_rows": "VACUUM (ANALYZE) the table, and see why autovacuum does not keep up",
    "old_transaction": "end it (pg_terminate_backend): dead rows stay while it is open",
    "index_bloat": "REINDEX INDEX CONCURRENTLY gives the room back",
    "free_pages": "stop all processes and VACUUM the file to give the room back",
    "clock": "set this machine's clock right; the store follows, but never a day back (sqlite.md)",
    "long_log": "end what has the file open for reading for so long",
}


class Problem(Record, frozen=True):
    """One thing that should not be, or that an operator should see to."""

    code: str
    subject: str
    detail: str

    @property
    def advice(self) -> str:
        """What to do about it."""
        return ADVICE[self.code]


class DoctorReport(Record, frozen=True):
    """What was looked at and what was found. Notices are about upkeep: nothing is wrong yet."""

    problems: tuple[Problem, ...]
    facts: dict[str, Any]
    notices: tuple[Problem, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


# --- about the store -----------------------------------------------------------------------------


@operation("ping", Kind.READ, Scope.READ, also=tuple(Scope))
class Ping(Request[None], frozen=True, kw_only=True):
    """Answers when the store does."""


@operation("server_time_ms", Kind.READ, Scope.READ, also=tuple(Scope))
class ServerTimeMs(Request[int], frozen=True, kw_only=True):
    """The store's clock."""


@operation("prepare", Kind.ADMIN, Scope.ADMIN, errors=(SchemaMismatch,))
class Prepare(Request[Prepared], frozen=True, kw_only=True):
    """Bring the schema up to date."""


@operation("shutdown_prepare", Kind.WAIT, Scope.ADMIN, errors=(WaitTimeout,))
class ShutdownPrepare(Request[None], frozen=True, kw_only=True):
    """Wait until nothing is in flight; WaitTimeout when that takes too long."""

    wait_ms: int


@operation("doctor", Kind.ADMIN, Scope.ADMIN)
class Doctor(Request[DoctorReport], frozen=True, kw_only=True):
    """Check store, schema, indexes and records; see `ff doctor`.

    `quick`: leave out the checks that read every row, which take long on a large store.
    """

    quick: bool = False


@operation("reconcile_execution_index", Kind.ADMIN, Scope.ADMIN)
class ReconcileExecutionIndex(Request[Reconciled], frozen=True, kw_only=True):
    """Compare every index with the records; report what differs."""


# --- what loops do by themselves -----------------------------------------------------------------


@operation("mark_lease_expired_if_due", Kind.WRITE, Scope.OPERATE)
class MarkLeaseExpiredIfDue(Request[Moved], frozen=True, kw_only=True):
    """Mark a lapsed lease; nothing when it has not lapsed."""

    execution_id: str


@operation("promote_delayed", Kind.WRITE, Scope.OPERATE)
class PromoteDelayed(Request[Moved], frozen=True, kw_only=True):
    """Make delayed work wait when its time has come."""

    execution_id: str


@operation("expire_execution", Kind.WRITE, Scope.OPERATE)
class ExpireExecution(Request[Moved], frozen=True, kw_only=True):
    """Apply the attempt timeout or the execution deadline, if due."""

    execution_id: str
    phase: str


@operation("trim_retention", Kind.ADMIN, Scope.ADMIN)
class TrimRetention(Request[int], frozen=True, kw_only=True):
    """Delete executions past their retention, with everything that belongs to them."""

    limit: int = limits.DUE_BATCH
