"""Nodes of a flow and how others wait for them: `all_of`, `any_of`, `quorum`, `all_done`.

A join stands where a node waits (`after=any_of(a, b)`) or where it takes an argument
(`answers=quorum(2, a, b, c)`), which waits and receives the results at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from flowfabric.errors import InvalidInput
from flowfabric.model.flow import (
    AllDone,
    AllSucceeded,
    AnySucceeded,
    EdgePolicy,
    OnSatisfied,
    Quorum,
)
from flowfabric.model.shown import shown
from flowfabric.sdk.task import Task

R = TypeVar("R")

LOSERS: Final = {"cancel": OnSatisfied.CANCEL_REMAINING, "keep": OnSatisfied.LET_RUN}


class Node(Generic[R]):
    """One execution of a flow that is being written. Made by `f.add` and `f.map`."""

    __slots__ = ("flow", "name", "task")

    def __init__(self, flow: object, name: str, task: Task[..., R] | None) -> None:
        self.flow = flow
        self.name = name
        self.task = task

    def __repr__(self) -> str:
        return f"<node {self.name}>"


@dataclass(frozen=True, slots=True)
class Join:
    """Several nodes and how many of them are waited for. Made by the functions of this module."""

    policy: EdgePolicy
    nodes: tuple[Node[Any], ...]

    @property
    def needs_all(self) -> bool:
        """Whether every node must succeed, which is the default."""
        return isinstance(self.policy, AllSucceeded)

    @property
    def gives_one(self) -> bool:
        """Whether it gives one result, not a list of them."""
        return isinstance(self.policy, AnySucceeded)

    def __str__(self) -> str:
        if isinstance(self.policy, Quorum):
            return f"quorum({self.policy.k})"
        return str(type(self.policy).__struct_config__.tag)


def quorum(
    k: int, /, *nodes: Node[Any], losers: str = "cancel", spare_shared: bool = False
) -> Join:
    """`k` of the nodes must succeed; it is given up when that is no longer possible.

    When it is decided the others are no longer needed: `losers="cancel"` cancels them, `"keep"`
    lets them run. `spare_shared` spares those that other nodes wait for as well.
    """
    chosen = _nodes("quorum", nodes)
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= len(chosen):
        detail = (
            f"quorum: {shown(k)} of {len(chosen)} nodes; it is a number from 1 to {len(chosen)}"
        )
        raise InvalidInput(detail, field="after")
    return Join(Quorum(int.__index__(k), _losers(losers), bool(spare_shared)), chosen)


def all_done(*nodes: Node[Any]) -> Join:
    """Every node must end, in whatever way: for cleanup or reports."""
    return Join(AllDone(), _nodes("all_done", nodes))


def all_of_nodes(nodes: Iterable[Any]) -> Join:
    """Every node must succeed: `all_of(a, b)`, which is `after=[a, b]`."""
    return Join(AllSucceeded(), _nodes("all_of", nodes))


def any_of_nodes(nodes: Iterable[Any], losers: str | None, spare_shared: bool) -> Join:
    """One success is enough: `any_of(a, b, losers="keep")`."""
    policy = AnySucceeded(_losers("cancel" if losers is None else losers), bool(spare_shared))
    return Join(policy, _nodes("any_of", nodes))


def as_join(after: object) -> Join | None:
    """The nodes of `after=`: a node, several, a join, or none."""
    if after is None or isinstance(after, Join):
        return after
    if isinstance(after, Node):
        return all_of_nodes([after])
    if isinstance(after, Iterable) and not isinstance(after, str | bytes):
        nodes = list(after)
        return all_of_nodes(nodes) if nodes else None
    raise _not_a_node("after", after)


def _nodes(word: str, given: Iterable[Any]) -> tuple[Node[Any], ...]:
    nodes = tuple(given)
    if not nodes:
        raise InvalidInput(f"{word}: give at least one node", field="after")
    for node in nodes:
        if not isinstance(node, Node):
            raise _not_a_node(word, node)
    if len(set(nodes)) < len(nodes):
        twice = next(each for each in nodes if nodes.count(each) > 1)
        raise InvalidInput(f"{word}: {twice.name!r} is listed twice", field="after")
    return nodes


def _not_a_node(word: str, value: object) -> InvalidInput:
    detail = f"{word}: expected nodes of f.add or f.map, got {type(value).__name__}"
    return InvalidInput(detail, field="after")


def _losers(word: str) -> OnSatisfied:
    found = LOSERS.get(word) if isinstance(word, str) else None
    if found is None:
        raise InvalidInput(f"losers: {shown(word)} is not cancel or keep", field="losers")
    return found
