"""Starts, promises and replays of one named execution: its lane and its limits have a say."""

from __future__ import annotations

from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.errors import UniqueConflict
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.grant import ClaimGranted, ClaimNamed, IssueClaimGrant
from flowfabric.kernel.execution.reclaim import IssueReclaimGrant, ReclaimExecution
from flowfabric.kernel.execution.replay import Replay, replay
from flowfabric.kernel.limit.holdings import occupies_slot, slot_until
from flowfabric.kernel.order.unique import key_of
from flowfabric.kernel.place.lanes import refuse_entry, refuse_start
from flowfabric.kernel.registry import RULES
from flowfabric.model.bounds import UNBOUNDED
from flowfabric.model.execution import Execution
from flowfabric.model.quota import AdmissionState
from flowfabric.model.record import replace
from flowfabric.model.results import Replayed
from flowfabric.model.unique import UniqueRow
from flowfabric.model.words import UniqueWhile
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import JOURNAL, UNIQUES

Start = IssueClaimGrant | ClaimGranted | ClaimNamed | IssueReclaimGrant | ReclaimExecution


@handles(IssueClaimGrant, ClaimGranted, ClaimNamed, IssueReclaimGrant, ReclaimExecution)
async def start_named(unit: Unit, command: Start) -> object:
    """A start or a promise of one named execution, by an open lane and admitted like any."""
    view = unit.view
    current = view.executions.get(command.execution_id)
    if not isinstance(current, Execution):
        return view.decide(command)
    decision = RULES[type(command)](current, command, view.at)
    after = decision.execution
    if after is not None and occupies_slot(after, view.at.now):
        if closed := refuse_start(current.lane_id, unit.catalog):
            return closed
        # A lost execution takes its slot when it is taken over, not when that is promised.
        if current.bounds is not UNBOUNDED and type(command) is not IssueReclaimGrant:
            state = AdmissionState.RUNNING if after.is_leased else AdmissionState.RESERVED
            until = None if after.grant is None else slot_until(after.grant.expires_at)
            denial = await unit.limits.admit_named(current, state, until)
            if denial is not None:
                return denial.refusal()
    return view.apply(current, decision, command)


@handles(Replay)
async def replay_named(unit: Unit, command: Replay) -> Replayed | Refused:
    """A replay brings work to its lane like a create."""
    view = unit.view
    current = view.executions.get(command.execution_id)
    if not isinstance(current, Execution):
        return view.decide(command)
    may_have = current.is_terminal and current.attempt_index is not None and not command.fresh
    has_journal = may_have and await _has_journal(unit, current)
    decision = replay(current, command, view.at, has_journal=has_journal)
    closed = refuse_entry(current.lane_id, unit.catalog)
    if decision.execution is not None and closed is not None:
        return closed
    if decision.execution is not None and (taken := await _take_key(unit, decision.execution)):
        return taken
    reply = view.apply(current, decision, command)
    if not isinstance(reply, Replayed) or not unit.owes:
        return reply
    # Only its flow knows what becomes of a member that lives again: whether it waits for others,
    # or cannot go on.
    await unit.follow_up()
    standing = view.executions[command.execution_id]
    if not isinstance(standing, Execution):
        return reply
    return replace(reply, public_state=standing.public_state)


async def _has_journal(unit: Unit, execution: Execution) -> bool:
    """Whether a handler has recorded anything that another run can go on by."""
    journal = (execution.execution_id, execution.journal_index)
    return bool(await unit.overlay.search(Search(by_key(JOURNAL), (journal,), limit=1)))


async def _take_key(unit: Unit, execution: Execution) -> Refused | None:
    """An execution that lives again needs its unique key, unless that only held until its start."""
    key = key_of(execution)
    unique = execution.ties.unique
    if key is None or unique is None or unique.while_ is not UniqueWhile.UNFINISHED:
        return None
    await unit.tied.uniques.lock([key])
    row = unit.view.rows.get(UNIQUES, key)
    if row is not None and row.execution_id != execution.execution_id:
        detail = f"unique: {unique.key!r} is taken by {row.execution_id}"
        fields = {"field": "unique", "execution_id": row.execution_id}
        return Refused(UniqueConflict, detail, fields)
    if row is None:
        at = unit.view.at.now
        unit.view.rows.put(UNIQUES, UniqueRow(*key, execution.execution_id, at))
    return None
