"""The dependencies of a waiting member of a flow, in words."""

from __future__ import annotations

from flowfabric.model.flow import AllDone, AnySucceeded, EdgePolicy, MemberRow, Quorum
from flowfabric.model.record import Record
from flowfabric.model.results import UpstreamInfo

NAMED_MAX = 5  # so many are named in a sentence


class DependencyLook(Record, frozen=True):
    """A member blocked by dependencies, with those still open."""

    member: MemberRow
    upstreams: tuple[UpstreamInfo, ...]  # of its open edges, or its open children
    are_children: bool


def dependency_summary(look: DependencyLook) -> str:
    """The open dependencies, and how many must still end."""
    names = [f"{each.name} ({_stands(each)})" for each in look.upstreams[:NAMED_MAX]]
    more = len(look.upstreams) - NAMED_MAX
    listed = ", ".join(names) + (f" and {more} more" if more > 0 else "")
    member = look.member
    if look.are_children:
        return f"waits for {member.open_children} of its children: {listed}"
    left = member.size - member.resolved
    if not left:
        return "all it waited for has ended, it goes on in a moment"
    return f"waits for {left} of {member.size} upstreams, {_rule(member.joins)}: {listed}"


def _stands(upstream: UpstreamInfo) -> str:
    state = upstream.public_state.value
    return state if upstream.staged_edge_id is None else f"{state}, its edge is only staged"


def _rule(policy: EdgePolicy) -> str:
    match policy:
        case AnySucceeded():
            return "one must succeed"
        case Quorum(k=k):
            return f"{k} must succeed"
        case AllDone():
            return "all must end"
        case _:
            return "all must succeed"


def dependency_hints(look: DependencyLook) -> tuple[str, ...]:
    """Advice about an upstream that has ended and will not run again without action, and about an
    edge that is only staged."""
    staged = [each for each in look.upstreams if each.staged_edge_id is not None]
    ended = [
        each for each in look.upstreams if each.public_state.is_terminal and each not in staged
    ]
    return (
        *(f"ff retry {each.execution_id} --cascade" for each in ended[:NAMED_MAX]),
        *(f"apply or withdraw edge {each.staged_edge_id}" for each in staged[:NAMED_MAX]),
    )
