"""The repair of a flow: counters, the state that follows from them, and deferred work.

Only what the rows prove is set right. The rest is left for an operator.
"""

from __future__ import annotations

from flowfabric.kernel.command import Command, Needs
from flowfabric.kernel.decision import Moment
from flowfabric.kernel.flow.flow import Change, settle
from flowfabric.kernel.flow.join import judged
from flowfabric.kernel.flow.recount import (
    GraphRows,
    Missing,
    is_undecided,
    missing_work,
    of_counts,
    waits_in_vain,
)
from flowfabric.model.flow import GroupState, MemberRow
from flowfabric.model.record import Record, replace
from flowfabric.model.repair import Correction

_PENDING = GroupState.PENDING


class RecountFlow(Command["Recounted"], frozen=True, kw_only=True):
    """Count a flow again, and set right what its rows prove wrong."""

    flow_id: str
    limit: int  # members to set right at once

    def needs(self, need: Needs) -> None:
        """The flow; its rows do not change while it is locked."""
        need.flows.add(self.flow_id)


class Recounted(Record, frozen=True):
    """What one transaction has set right."""

    corrections: tuple[Correction, ...]
    is_whole: bool = True  # False: there may be more


class FlowRepair(Record, frozen=True):
    """Everything that is to be written to set a flow right."""

    change: Change | None
    members: tuple[MemberRow, ...]
    decided: tuple[str, ...]  # members whose groups are decided, and which were not told
    missing: tuple[Missing, ...]
    corrections: tuple[Correction, ...]


def repair_flow(rows: GraphRows, at: Moment, limit: int) -> FlowRepair:
    """What sets a flow right, as far as its rows prove it; of members no more than the limit."""
    if rows.is_going(at.now):
        return FlowRepair(None, (), (), (), ())
    corrections = [each.correction for each in of_counts(rows) if each.correction]
    change, said = _repaired_state(rows, at)
    corrections += said
    members: list[MemberRow] = []
    decided: list[str] = []
    for key, member in rows.members.items():
        if len(members) + len(decided) >= limit:
            break
        right = replace(member, **rows.group_of(member))
        execution = rows.executions.get(key)
        if execution is not None and waits_in_vain(rows, right, execution):
            if judged(right) is _PENDING and right.total:
                right = replace(right, group_state=_PENDING, satisfied_at=None)
            elif execution.is_interrupted or right.total:
                decided.append(key)
        if is_undecided(right) and key in rows.executions:
            decided.append(key)
        if right != member:
            members.append(right)
        corrections += _differences(member, right, key in decided)
    missing = {(each.kind, each.execution_id): each for each in missing_work(rows)}
    kept = tuple(missing.values())[:limit]
    corrections += [each.finding.correction for each in kept if each.finding.correction]
    return FlowRepair(change, tuple(members), tuple(decided), kept, tuple(corrections))


def _differences(before: MemberRow, after: MemberRow, is_decided: bool) -> list[Correction]:
    subject = f"member {before.execution_id}"
    names = ("staged", "total", "succeeded", "failed", "skipped", "open_children")
    found = [
        Correction(subject, name, getattr(before, name), getattr(after, name))
        for name in names
        if getattr(before, name) != getattr(after, name)
    ]
    stands = judged(after) if is_decided else after.group_state
    if before.group_state is not stands:
        word = before.group_state.value
        found.append(Correction(subject, "group_state", word, stands.value))
    elif is_decided:
        found.append(Correction(subject, "released", 0, 1))
    return found


def _repaired_state(rows: GraphRows, at: Moment) -> tuple[Change | None, list[Correction]]:
    """The flow with the right counters, and the state that follows from them."""
    flow = rows.flow
    right = replace(flow, **rows.counts)
    over = right.node_count > 0 and right.ended_count == right.node_count
    if not over and right.node_count and right.finished_at is not None:
        right = replace(right, finished_at=None, due_at=None)
    change = settle(right, at)
    right, found = change.flow, []
    subject = f"flow {flow.flow_id}"
    if right.public_flow_state is not flow.public_flow_state:
        words = flow.public_flow_state.value, right.public_flow_state.value
        found.append(Correction(subject, "state", *words))
    elif right.finished_at != flow.finished_at:
        found.append(Correction(subject, "finished_at", flow.finished_at, right.finished_at))
    return (None if right == flow else change), found
