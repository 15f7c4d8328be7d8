"""How a graph is read by people, on a terminal or on a page: what comes after what, which of many
states comes first, and how a join is told in a few words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from flowfabric.model.flow import AllDone, AnySucceeded, Quorum
from flowfabric.model.flow_results import EdgeGroupSnapshot
from flowfabric.model.state import PublicState

# The state shown for several nodes together: the one that most needs attention.
URGENT_FIRST: Final = (
    PublicState.FAILED,
    PublicState.EXPIRED,
    PublicState.ACTIVE,
    PublicState.SUSPENDED,
    PublicState.RATE_LIMITED,
    PublicState.DELAYED,
    PublicState.WAITING,
    PublicState.WAITING_CHILDREN,
    PublicState.CANCELLED,
    PublicState.SKIPPED,
    PublicState.COMPLETED,
)


def layers(names: Sequence[str], edges: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Each name in the first layer behind all those it has an edge from.

    >>> layers(["d", "a", "b"], [("a", "d"), ("b", "d")])
    [['a', 'b'], ['d']]
    """
    inbound: dict[str, int] = dict.fromkeys(names, 0)
    outbound: defaultdict[str, list[str]] = defaultdict(list)
    for upstream, downstream in edges:
        inbound[downstream] += 1
        outbound[upstream].append(downstream)
    layer = [name for name in names if not inbound[name]]
    found: list[list[str]] = []
    while layer:
        found.append(layer)
        following = []
        for upstream in layer:
            for downstream in outbound[upstream]:
                inbound[downstream] -= 1
                if not inbound[downstream]:
                    following.append(downstream)
        layer = following
    return found


def ordered(names: Sequence[str], edges: Iterable[tuple[str, str]]) -> list[str]:
    """Each name after all those it has an edge from; otherwise in the order given.

    >>> ordered(["d", "a", "b"], [("a", "d"), ("b", "d")])
    ['a', 'b', 'd']
    """
    return [name for layer in layers(names, edges) for name in layer]


def label_of(node_name: str, execution_kind: str) -> str:
    """The name of a node; of a child its kind."""
    return node_name or execution_kind


def most_urgent(states: Iterable[PublicState]) -> PublicState:
    """The state that stands for several."""
    return min(states, key=URGENT_FIRST.index)


def join_of(group: EdgeGroupSnapshot | None) -> str:
    """The progress of a join: `quorum 1/2 of 3`."""
    if group is None:
        return ""
    have, total = group.satisfied_count, group.total_deps
    match group.policy:
        case Quorum(k=k):
            return f"quorum {have}/{k} of {total}"
        case AnySucceeded():
            return f"any {min(have, 1)}/1 of {total}"
        case AllDone():
            return f"all done {total - group.running_count - group.staged_count}/{total}"
        case _:
            return f"all {have}/{total}" if total > 1 else ""
