"""What a run finds in its journal, over random handlers, orders and crashes: unchanged code always
fits, a call that is put before a recorded one never does, and calls that are removed or change
places do."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowfabric.kernel.journal.lookup import Contradiction, Lookup, Mismatch
from flowfabric.model.journal import EntryKind, EntryState, JournalEntry
from tests.property.budget import budget

EXAMPLES = budget("FF_LOOKUP_HISTORIES", 400)
LIVES = 50  # more than any of these histories needs
NEW = "new"


class Call(NamedTuple):
    """One call, awaited before the next."""

    name: str


class Together(NamedTuple):
    """Calls that are written one after the other and awaited together."""

    names: tuple[str, ...]


class Sides(NamedTuple):
    """Branches: scopes of their own, under way at once."""

    sides: tuple[Any, ...]


class Asides(NamedTuple):
    """Tasks that make calls with keys of their own while the handler goes on."""

    keys: tuple[str, ...]


names = st.sampled_from("abc")
calls = st.builds(Call, names)
handlers: st.SearchStrategy[tuple[Any, ...]] = st.recursive(
    st.lists(
        st.one_of(calls, calls, st.builds(Together, st.tuples(names, names, names))), max_size=5
    ).map(tuple),
    lambda inner: st.lists(
        st.one_of(calls, st.builds(Sides, st.lists(inner, min_size=1, max_size=3).map(tuple))),
        max_size=5,
    ).map(tuple),
    max_leaves=8,
)
with_asides = st.builds(
    lambda handler, keys: (Asides(tuple(keys)), *handler),
    handlers,
    st.lists(st.sampled_from("xyz"), unique=True),
)
one_by_one: st.SearchStrategy[tuple[Any, ...]] = st.recursive(
    st.lists(calls, max_size=5).map(tuple),
    lambda inner: st.lists(
        st.one_of(calls, st.builds(Sides, st.lists(inner, min_size=1, max_size=3).map(tuple))),
        max_size=5,
    ).map(tuple),
    max_leaves=8,
)
seeds = st.integers(0, 2**32)


class Held(Exception):
    """The code does not fit."""

    def __init__(self, mismatch: Mismatch) -> None:
        super().__init__(mismatch)
        self.mismatch = mismatch


class Crash(Exception):
    """The process is gone."""


class Flight(NamedTuple):
    """A call that is being made, and the task that waits for it."""

    key: str
    asked: int
    task: Any


class Life:
    """One run of a handler: its tasks take turns by chance until it ends or crashes."""

    def __init__(
        self,
        journal: list[JournalEntry],
        rng: random.Random,
        turns: int | None,
        *,
        lands_all: bool = False,
    ) -> None:
        self.lookup = Lookup(journal)
        self.answered = set(self.lookup.unread)
        self._lands_all = lands_all
        self.journal = list(journal)
        self.ran: list[str] = []
        self.is_over = False
        self.flights: list[Flight] = []
        self._rng = rng
        self._turns = turns
        self._waits: Counter[int] = Counter()  # by task: what it waits for
        self._tasks: dict[int, Generator[Any, None, None]] = {}
        self._parents: dict[int, int] = {}
        self._now = 0  # the task that has its turn

    def run(self, handler: tuple[Any, ...]) -> None:
        """To its end."""
        self._begin(self._scope("", handler), None)
        while self._tasks:
            ready = [task for task in self._tasks if not self._waits[task]]
            at = self._rng.randrange(len(ready) + len(self.flights))
            if self._turns is not None:
                self._turns -= 1
                if self._turns < 0:
                    self._crash()
            if at < len(ready):
                self._go_on(ready[at])
            else:
                self._land(self.flights.pop(at - len(ready)))
        self.is_over = True

    def _crash(self) -> None:
        while self._lands_all and self.flights:
            self._land(self.flights.pop())
        raise Crash

    def _begin(self, task: Generator[Any, None, None], parent: int | None) -> None:
        number = id(task)
        self._tasks[number] = task
        if parent is not None:
            self._parents[number] = parent
            self._waits[parent] += 1

    def _go_on(self, number: int) -> None:
        self._now = number
        try:
            forked = next(self._tasks[number])
        except StopIteration:
            del self._tasks[number]
            if (parent := self._parents.get(number)) is not None:
                self._waits[parent] -= 1
            return
        for each, is_awaited in forked:
            self._begin(each, number if is_awaited else None)

    def _land(self, flight: Flight) -> None:
        """A call ends; some fail a try first, which is recorded."""
        if self._rng.random() < 0.1:
            self._record(flight, EntryKind.RETRYING, EntryState.OPEN)
            self.flights.append(flight)
            return
        self.ran.append(flight.key)
        self._record(flight, EntryKind.STEP, EntryState.OK)
        self._waits[flight.task] -= 1

    def _record(self, flight: Flight, kind: EntryKind, state: EntryState) -> None:
        position = len(self.journal)
        entry = JournalEntry(position, flight.key, kind, state, flight.asked, 1, 0, 0, 0, 0, 0)
        self.journal.append(entry)

    def _scope(self, path: str, items: tuple[Any, ...]) -> Generator[Any, None, None]:
        """A task: what it yields are tasks that it begins, and whether it waits for them."""
        counts: Counter[str] = Counter()

        def key(name: str) -> str:
            counts[name] += 1
            return f"{path}/" * bool(path) + name + f"#{counts[name]}" * (counts[name] > 1)

        for item in items:
            if isinstance(item, Sides):
                group = key("gather")
                if (found := self.lookup.count(path, group)) is not None:
                    raise Held(found)
                yield [(self._scope(f"{group}/{at}", s), True) for at, s in enumerate(item.sides)]
            elif isinstance(item, Asides):
                yield [(self._aside(path, f"mail[{each}]"), False) for each in item.keys]
            else:
                for name in item.names if isinstance(item, Together) else [item.name]:
                    self._ask(path, key(name))
                yield []

    def _aside(self, path: str, key: str) -> Generator[Any, None, None]:
        self._ask(path, key, is_aside=True)
        yield []

    def _ask(self, path: str, key: str, *, is_aside: bool = False) -> None:
        asked = self.lookup.ask(path, key, is_aside=is_aside)
        if isinstance(asked, Mismatch):
            raise Held(asked)
        if asked.answer is None:
            self.flights.append(Flight(key, asked.number, self._now))
            self._waits[self._now] += 1


def lives(handler: tuple[Any, ...], rng: random.Random) -> Iterator[Life]:
    """Runs of a handler until it ends. A crash loses what was not durable yet."""
    journal: list[JournalEntry] = []
    for _ in range(LIVES):
        life = Life(journal, rng, rng.randrange(25))
        try:
            life.run(handler)
        except Crash:
            journal = life.journal[: rng.randint(len(journal), len(life.journal))]
            yield life
        else:
            yield life
            return
    last = Life(journal, rng, None)
    last.run(handler)
    yield last


def ends(journal: list[JournalEntry]) -> dict[str, EntryState]:
    """How each call stands: of several entries the last one counts."""
    return {entry.key: entry.state for entry in journal}


@settings(max_examples=EXAMPLES)
@given(with_asides, seeds)
def test_unchanged_code_always_fits(handler: tuple[Any, ...], seed: int) -> None:
    numbers: dict[str, int] = {}
    for life in lives(handler, random.Random(seed)):
        assert not life.answered & set(life.ran), "a recorded call was made again"
        for entry in life.journal:
            assert numbers.setdefault(entry.key, entry.asked) == entry.asked
        if life.is_over:
            assert set(ends(life.journal).values()) <= {EntryState.OK}
            assert not life.lookup.unread


# --- changed code -----------------------------------------------------------------------------


def scopes(items: tuple[Any, ...], path: str = "") -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Every scope of a handler."""
    yield path, items
    groups = 0
    for item in items:
        if isinstance(item, Sides):
            groups += 1
            for at, side in enumerate(item.sides):
                yield from scopes(side, f"{group_key(path, groups)}/{at}")


def group_key(path: str, count: int) -> str:
    """Of the branches that begin there."""
    return f"{path}/" * bool(path) + "gather" + f"#{count}" * (count > 1)


def changed(
    items: tuple[Any, ...], target: str, at: int, new: tuple[Any, ...], path: str = ""
) -> tuple[Any, ...]:
    """A handler with something put before an item of one of its scopes."""
    if path == target:
        return (*items[:at], *new, *items[at:])
    found: list[Any] = []
    groups = 0
    for item in items:
        if isinstance(item, Sides):
            groups += 1
            group = group_key(path, groups)
            sides = [changed(s, target, at, new, f"{group}/{n}") for n, s in enumerate(item.sides)]
            found.append(Sides(tuple(sides)))
        else:
            found.append(item)
    return tuple(found)


def keys_in(path: str, items: tuple[Any, ...]) -> list[str | None]:
    """The key of each item of a scope; branches have none."""
    counts: Counter[str] = Counter()
    found: list[str | None] = []
    for item in items:
        if isinstance(item, Call):
            counts[item.name] += 1
            ending = "" if counts[item.name] == 1 else f"#{counts[item.name]}"
            found.append(f"{path}/" * bool(path) + f"{item.name}{ending}")
        else:
            found.append(None)
    return found


def places(handler: tuple[Any, ...], journal: list[JournalEntry]) -> list[tuple[str, int, str]]:
    """Where a call can be put before a recorded one: scope, index, and that recorded key."""
    recorded = ends(journal)
    found = []
    for path, items in scopes(handler):
        keys = keys_in(path, items)
        for at in range(len(items)):
            following = next((key for key in keys[at:] if key in recorded), None)
            if following is not None:
                found.append((path, at, following))
    return found


@settings(max_examples=EXAMPLES)
@given(one_by_one, seeds)
def test_a_call_before_a_recorded_one_of_its_scope_never_fits(
    handler: tuple[Any, ...], seed: int
) -> None:
    """With nothing in flight when the last run ended."""
    rng = random.Random(seed)
    life = Life([], rng, rng.randrange(40), lands_all=True)
    with suppress(Crash):
        life.run(handler)
    possible = places(handler, life.journal)
    if not possible:
        return
    path, at, following = rng.choice(possible)
    later = Life(life.journal, rng, None)
    with pytest.raises(Held) as held:
        later.run(changed(handler, path, at, (Call(NEW),)))
    found = held.value.mismatch
    assert (found.contradiction, found.recorded.key) == (Contradiction.INSERTED, following)
    if keys_in(path, dict(scopes(handler))[path])[at] == following:
        assert not later.ran or NEW not in {each.rpartition("/")[2] for each in later.ran}


@settings(max_examples=EXAMPLES)
@given(st.integers(1, 8), st.integers(0, 2), seeds)
def test_calls_that_are_removed_or_change_places_fit(count: int, more: int, seed: int) -> None:
    """A new call in the place of a removed one looks as if that was renamed: only that is held."""
    rng = random.Random(seed)
    before = [Call(f"step{number}") for number in range(count)]
    life = Life([], rng, None)
    life.run(tuple(before))
    kept = rng.sample(before, rng.randint(0, count))
    later = Life(life.journal, rng, None)
    try:
        later.run((*kept, *[Call(NEW)] * more))
    except Held as held:
        found = held.mismatch
        removed = {each.name for each in before} - {each.name for each in kept}
        assert found.contradiction is Contradiction.INSERTED
        assert found.key.startswith(NEW)
        assert found.recorded.key in removed
    else:
        assert later.ran == [NEW, f"{NEW}#2"][:more]


def test_ends_of_children_without_an_entry_leave_a_replay_as_it_is() -> None:
    lookup = Lookup(
        [_recorded("spawn:pay", EntryKind.SPAWN, 0), _recorded("note", EntryKind.STEP, 1)]
    )
    lookup.ask("", "spawn:pay", kind=EntryKind.SPAWN)
    lookup.ask("", "ended", kind=EntryKind.ENDED, is_aside=True)
    assert lookup.is_replaying
    lookup.ask("", "note")
    assert not lookup.is_replaying


def _recorded(key: str, kind: EntryKind, asked: int) -> JournalEntry:
    return JournalEntry(asked, key, kind, EntryState.OK, asked, 1, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("kind", "is_held"),
    [(EntryKind.WAIT, True), (EntryKind.STARTED, True), (EntryKind.RETRYING, False)],
)
def test_nothing_takes_the_place_of_what_was_begun(kind: EntryKind, is_held: bool) -> None:
    """A wait would lose its signals, and a `once` step begin again. A step that keeps failing may
    be replaced."""
    begun = JournalEntry(0, "side/old", kind, EntryState.OPEN, 0, 1, 0, 0, 0, 0, 0)
    found = Lookup([begun]).ask("side", "side/new")
    assert isinstance(found, Mismatch) is is_held
    assert Lookup([begun]).is_followed("side") is is_held
    unchanged = Lookup([begun]).ask("side", "side/old", kind=kind)
    assert not isinstance(unchanged, Mismatch)
    changed = Lookup([begun])
    changed.remove("side", "side/old")
    assert not isinstance(changed.ask("side", "side/new"), Mismatch)
