"""Random handlers: trees of steps, branches, waits and children, and what each should come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

Items = tuple[Any, ...]


class Step(NamedTuple):
    """One step. `how`: it is `fine`, `moody` (two of its tries fail), `flaky` (fails once, which
    ends the attempt), `broken` (always fails), `once` (begins at most once), or a `sale` (in a
    transaction)."""

    name: str
    has_effects: bool
    how: str = "fine"


class Several(NamedTuple):
    """Things at once: by `gather`, by `map`, or in `tasks` of the handler's own."""

    way: str
    sides: tuple[Any, ...]


class Caught(NamedTuple):
    """What fails in it is caught."""

    items: Items


class Wait(NamedTuple):
    """A wait. `way`: for a time, for a `signal`, for one that may come too late (`timed`), for an
    `approval` of two, or for the `first` of a signal and a time."""

    way: str


class Child(NamedTuple):
    """A child that does all this, and then fails if it is to."""

    items: Items
    fails: bool = False


class Children(NamedTuple):
    """Children that are spawned together, and waited for together."""

    several: tuple[Items, ...]


# --- strategies -------------------------------------------------------------------------------


def steps(*ways: str) -> st.SearchStrategy[Any]:
    """Steps of these kinds."""
    return st.builds(Step, st.sampled_from("ab"), st.booleans(), st.sampled_from(ways))


waits = st.builds(Wait, st.sampled_from(("sleep", "signal", "timed", "approval", "first")))
failing = st.builds(Child, st.lists(steps("fine"), max_size=2).map(tuple), st.just(True))


def trees(*ways: str, is_whole: bool) -> st.SearchStrategy[Items]:
    """Handlers whose steps are of these kinds, with everything else if they are whole."""
    leaves = [steps(*ways), steps(*ways), waits] if is_whole else [steps(*ways), failing]

    def wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        sides = st.lists(inner, min_size=1, max_size=3).map(tuple)
        several = st.builds(Several, st.sampled_from(("gather", "map")), sides)
        kinds = [*leaves, several]
        if is_whole:
            kinds.append(st.builds(Caught, trees("fine", "broken", "moody", is_whole=False)))
            alone = st.lists(st.tuples(steps("fine", "moody") | waits), min_size=1, max_size=2)
            kinds.append(st.builds(Several, st.just("tasks"), alone.map(tuple)))
            kinds.append(st.builds(Child, inner, st.just(False)))
            kinds.append(st.builds(Children, sides))
        return st.lists(st.one_of(kinds), max_size=3).map(tuple)

    return st.recursive(st.lists(st.one_of(leaves), max_size=3).map(tuple), wider, max_leaves=4)


handlers = trees("fine", "fine", "flaky", "moody", "once", "sale", is_whole=True)


# --- places in a tree -------------------------------------------------------------------------


def parts(node: Any) -> Sequence[Any]:
    """What is in a node, or in a list of them."""
    return node if type(node) is tuple else node[-1] if isinstance(node, Several) else node[0]


def part(tree: Items, path: Sequence[int]) -> Any:
    """What is at a place."""
    node: Any = tree
    for at in path:
        node = parts(node)[at]
    return node


def place_of(path: Sequence[int]) -> str:
    """The key of a wait there."""
    return "p" + ".".join(map(str, path))


# --- what should come out of it ---------------------------------------------------------------


class Broken(Exception):
    """What failed: the key of a step, or a child."""


class Model:
    """A handler that runs without any fault. `children`: how many it had, theirs included."""

    def __init__(self, tree: Items) -> None:
        self.children = 0
        self.result = self._all(tree, (), "")

    def _all(self, items: Items, path: tuple[int, ...], scope: str) -> list[Any]:
        counts: Counter[str] = Counter()
        return [self._one(item, (*path, at), scope, counts) for at, item in enumerate(items)]

    def _one(self, item: Any, path: tuple[int, ...], scope: str, counts: Counter[str]) -> Any:
        """The keys of a result, each at its place."""
        match item:
            case Step():
                own = _key(item.name, scope, counts)
                if item.how == "broken":
                    raise Broken(own)
                return own
            case Wait():
                return "slept" if item.way == "sleep" else place_of(path)
            case Child():
                return self._child(item, path)
            case Children():
                self.children += len(item.several)
                each = enumerate(item.several)
                return [self._all(items, (*path, at), "") for at, items in each]
            case Caught():
                try:
                    each = enumerate(item.items)
                    return [self._one(inner, (*path, at), scope, counts) for at, inner in each]
                except Broken as error:
                    return f"caught {error}"
            case _:
                return self._sides(item, path, scope, counts)

    def _child(self, item: Child, path: tuple[int, ...]) -> list[Any]:
        self.children += 1
        found = self._all(item.items, path, "")
        if item.fails:
            raise Broken("child")
        return found

    def _sides(
        self, item: Several, path: tuple[int, ...], scope: str, counts: Counter[str]
    ) -> list[Any]:
        prefix = "" if item.way == "tasks" else f"{_key(item.way, scope, counts)}/"
        found, failures = [], list[Broken]()
        for at, side in enumerate(item.sides):
            own = _key(f"task{at}", scope, counts) if item.way == "tasks" else f"{prefix}{at}"
            try:
                found.append(self._all(side, (*path, at), own))
            except Broken as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return found


def _key(name: str, scope: str, counts: Counter[str]) -> str:
    counts[name] += 1
    return f"{scope}/" * bool(scope) + name + f"#{counts[name]}" * (counts[name] > 1)
