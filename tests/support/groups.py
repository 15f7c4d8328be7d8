"""Groups as the records tell, without a rule of the kernel."""

from __future__ import annotations

from typing import Any

from flowfabric.model.flow import AllSucceeded, EdgeRow, EdgeState, GroupState, MemberRow
from flowfabric.model.record import replace
from flowfabric.stores.tables import EDGES, MEMBERS


def groups_as_they_stand(dump: dict[str, list[Any]]) -> list[MemberRow]:
    """A member that waits for one success alone has no row written when that comes."""
    sole = {each.downstream_execution_id: each for each in dump.get(EDGES.name, ()) if each.is_sole}
    return [_as_it_stands(each, sole.get(each.execution_id)) for each in dump.get(MEMBERS.name, ())]


def _as_it_stands(member: MemberRow, sole: EdgeRow | None) -> MemberRow:
    if sole is None:
        return member
    assert (member.total, member.staged, member.joins) == (1, 0, AllSucceeded()), member
    if sole.edge_state is not EdgeState.SATISFIED:
        return member
    assert member.failed + member.skipped == 0, member
    assert member.group_state is GroupState.PENDING or member.succeeded == 1, member
    met, at = GroupState.SATISFIED, sole.resolved_at
    return replace(member, succeeded=1, group_state=met, satisfied_at=at)
