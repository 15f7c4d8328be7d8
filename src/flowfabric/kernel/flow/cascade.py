"""What follows when members end: their out-edges are resolved, groups are counted, and the decided
ones let their member go on or end it.

Each step names what the next one needs; the engine fetches that in between
(`engine/unit/flows/joins.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.flow.dependent import (
    reject_input,
    release_member,
    skip,
    waits_for_others,
)
from flowfabric.kernel.flow.inputs import Unfit
from flowfabric.kernel.flow.join import Counted, count_ends, is_open, meets_alone
from flowfabric.model.execution import Execution
from flowfabric.model.flow import EdgeAhead, EdgeRow, GroupState, MemberRow

AnyEdge = EdgeRow | EdgeAhead
MemberKey = tuple[str, str]  # flow and execution
Group = Mapping[MemberKey, Sequence[AnyEdge]]  # the edges that are resolved, by their downstream


class Ends(NamedTuple):
    """Edges whose upstreams have ended: the next step needs the rows of the groups' members."""

    alone: list[AnyEdge]  # each meets its downstream's group by itself
    groups: Group  # these must be counted

    @property
    def size(self) -> int:
        """How many edges these are."""
        return len(self.alone) + sum(map(len, self.groups.values()))


class Child(NamedTuple):
    """A member whose group is decided, and its execution, if that can be read."""

    member: MemberRow
    execution: Execution | None


class Concluded(NamedTuple):
    """What the counted groups come to."""

    resolved: list[AnyEdge]
    members: list[MemberRow]  # after the ends were counted
    decided: list[Child]
    late: set[str]  # edges that came after the decision hand nothing on
    locked: set[str]  # upstreams with an edge left: its child is locked by another transaction


def sort_ends(
    edges: Iterable[AnyEdge], upstreams: Mapping[str, Execution], loaded: Container[MemberKey]
) -> Ends:
    """The edges that these ends resolve. An edge that meets its group alone needs no counting,
    unless this transaction has an image of the member already (`loaded`), which must follow."""
    groups: defaultdict[MemberKey, list[AnyEdge]] = defaultdict(list)
    alone: list[AnyEdge] = []
    for edge in edges:
        upstream = upstreams[edge.upstream_execution_id]
        if not is_open(edge, upstream.replay_count):
            continue
        key = (edge.flow_id, edge.downstream_execution_id)
        if meets_alone(edge, upstream.state.terminal_outcome) and key not in loaded:
            alone.append(edge)
        else:
            groups[key].append(edge)
    return Ends(alone, groups)


def count_groups(
    groups: Group,
    members: Mapping[MemberKey, MemberRow],
    upstreams: Mapping[str, Execution],
    at: Moment,
) -> dict[MemberKey, Counted]:
    """Count the ends in the groups they belong to: the next step needs the executions of those
    that are decided by it."""
    outcomes = {key: each.state.terminal_outcome for key, each in upstreams.items()}
    return {
        key: count_ends(members[key], [outcomes[e.upstream_execution_id] for e in edges], at.now)
        for key, edges in groups.items()
        if key in members
    }


def conclude(
    groups: Group,
    counted: Mapping[MemberKey, Counted],
    children: Mapping[str, Execution | None],
) -> Concluded:
    """Which edges are resolved now, and which members' groups that decides.

    `children`: the executions of decided members, without those that are locked elsewhere. An end
    that would decide such a group is not counted now, but again when it can be.
    """
    concluded = Concluded([], [], [], set(), set())
    for key, (member, fires, decisive) in counted.items():
        edges = groups[key]
        if fires is not None:
            if key[1] not in children:
                concluded.locked.update(edge.upstream_execution_id for edge in edges)
                continue
            concluded.decided.append(Child(member, children[key[1]]))
            # Ends after the decision hand nothing on, as if they had come in another transaction.
            concluded.late.update(edge.edge_id for edge in edges[decisive + 1 :])
        concluded.resolved.extend(edges)
        concluded.members.append(member)
    return concluded


def concerned(decided: Iterable[Child]) -> list[tuple[MemberRow, Execution]]:
    """The decided members to which the decision still matters: they have not ended meanwhile."""
    return [(member, execution) for member, execution in decided if waits_for_others(execution)]


def is_handed_input(member: MemberRow) -> bool:
    """Whether a decided member needs the results that its edges pass on."""
    return member.passing > 0 and member.group_state is GroupState.SATISFIED


def after_decision(
    member: MemberRow, execution: Execution, unfit: Unfit | None, at: Moment
) -> Decision[None] | None:
    """What a decided group makes of its member: skipped, rejected with an input that does not fit,
    or released. None: it waits on for its own children, and their end releases it."""
    if member.group_state is GroupState.IMPOSSIBLE:
        return skip(execution, at)
    if unfit is not None:
        return reject_input(execution, unfit, at)
    if execution.is_interrupted and member.open_children:
        return None
    return release_member(execution, at)
