"""Which nodes of a finished flow are missing, and which it could do without."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from flowfabric.model.flow import AnySucceeded, GroupState, Quorum
from flowfabric.model.flow_results import EdgeGroupSnapshot, MemberInfo
from flowfabric.model.state import PublicState

RUN_AGAIN: Final = (PublicState.FAILED, PublicState.EXPIRED, PublicState.CANCELLED)
_LOST: Final = (*RUN_AGAIN, PublicState.SKIPPED)


def unexcused(
    members: Sequence[MemberInfo],
    edges: Iterable[tuple[str, str]],
    groups: Iterable[EdgeGroupSnapshot],
) -> list[MemberInfo]:
    """Members that ended without a result and were needed, causes before their consequences.

    One is excused when all members that wait for it went on without it: by an `any_of` or a
    `quorum` that was satisfied, or because they are excused themselves. A child is its parent's
    affair. `edges`: the ids of their ends.
    """
    states = {each.execution_id: each.public_state for each in members}
    tolerant = {
        each.downstream_execution_id
        for each in groups
        if isinstance(each.policy, AnySucceeded | Quorum)
        and each.group_state is GroupState.SATISFIED
    }
    downstreams: defaultdict[str, list[str]] = defaultdict(list)
    for upstream, downstream in edges:
        downstreams[upstream].append(downstream)
    excused: set[str] = set()
    # waiting members before the members they wait for
    for member in sorted(members, key=lambda each: -each.rank):
        key = member.execution_id
        waiting = downstreams[key]
        if member.parent_id is not None or (
            states[key] in _LOST
            and waiting
            and all(child in tolerant or child in excused for child in waiting)
        ):
            excused.add(key)
    lost = [
        each for each in members if each.public_state in _LOST and each.execution_id not in excused
    ]
    return sorted(lost, key=lambda each: each.public_state is PublicState.SKIPPED)
