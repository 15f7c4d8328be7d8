"""The waiting members of a flow and their dependencies; `explain` and the reads of flows share
it."""

from __future__ import annotations

from flowfabric.kernel.explain.flows import DependencyLook
from flowfabric.kernel.flow.join import as_met, perhaps_met
from flowfabric.model.execution import Execution
from flowfabric.model.flow import EdgeState, MemberRow
from flowfabric.model.results import UpstreamInfo
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import CHILDREN, EDGES_AHEAD_TO, EDGES_TO, Search
from flowfabric.stores.tables import MEMBERS, Key


async def look_at_dependencies(execution: Execution, reader: Reader) -> DependencyLook | None:
    """The dependencies of a blocked member; None for one that is not blocked."""
    if execution.flow_id is None or not execution.has_open_group:
        return None
    flow_id, key = execution.flow_id, execution.execution_id
    member = (await members_as_met(reader, (flow_id, key))).get((flow_id, key))
    if member is None:
        return None
    are_children = bool(member.open_children)
    staged: dict[str, str | None] = {}
    if are_children:
        children = await reader.search_keys(Search(CHILDREN, ((key,),)))
        ids = [each[1] for each in children]
    else:
        staged = await _open_edges(reader, member)
        ids = list(staged)
    found = await reader.get(ids) if ids else {}
    named = await reader.peek_rows(MEMBERS, [(flow_id, each) for each in ids]) if ids else {}
    upstreams = [
        UpstreamInfo(
            each,
            named[flow_id, each].node_name or each,
            upstream.public_state,
            staged.get(each),
        )
        for each in ids
        if isinstance(upstream := found.get(each), Execution) and (flow_id, each) in named
    ]
    if are_children:
        upstreams = [each for each in upstreams if not each.public_state.is_terminal]
    return DependencyLook(member, tuple(upstreams), are_children)


async def _open_edges(reader: Reader, member: MemberRow) -> dict[str, str | None]:
    """The upstreams a member waits for; of staged edges with their ids."""
    found: dict[str, str | None] = {}
    for state in (EdgeState.APPLIED, EdgeState.PENDING) if member.staged else (EdgeState.APPLIED,):
        only = (("edge_state", state.value),)
        for edge in await reader.search(Search(EDGES_TO, ((member.execution_id,),), only=only)):
            is_staged = state is EdgeState.PENDING
            found.setdefault(edge.upstream_execution_id, edge.edge_id if is_staged else None)
    return found


async def members_as_met(reader: Reader, key: Key) -> dict[Key, MemberRow]:
    """Members in their current state, also those with a state derived from their sole edge."""
    rows = await reader.peek_rows(MEMBERS, [key])
    asked = perhaps_met(rows.values())
    if not asked:
        return rows
    only = (("edge_state", EdgeState.SATISFIED.value),)
    wanted = tuple((each,) for each in asked)
    edges = await reader.search(Search(EDGES_AHEAD_TO, wanted, only=only))
    return as_met(rows, edges)
