"""A search that sees pending writes finds what it would find after they were written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from flowfabric.engine.unit import overlay as overlays
from flowfabric.engine.unit.overlay import Overlay
from flowfabric.engine.unit.view import View
from flowfabric.kernel.decision import Moment
from flowfabric.kernel.flow.join import EdgeEnd
from flowfabric.model.execution import Body, Execution
from flowfabric.model.flow import EdgeRow, EdgeState
from flowfabric.model.record import replace
from flowfabric.stores.base import Transaction
from flowfabric.stores.indexes import (
    DUE,
    EDGES_AHEAD_FROM,
    EDGES_FROM,
    EDGES_TO,
    READY,
    Search,
    by_key,
)
from flowfabric.stores.memory import MemoryStore
from flowfabric.stores.tables import EDGES
from tests.property.budget import budget
from tests.support import builders as make
from tests.support.mutants import Mutant, plant

NOW = make.NOW
EXAMPLES = budget("FF_OVERLAY_EXAMPLES", 250)
# Without shrinking: what fails is small already, and planted faults fail often.
PHASES = (Phase.explicit, Phase.generate)
NAMES = ("a", "b")
STATES = (EdgeState.PENDING, EdgeState.APPLIED, EdgeState.SATISFIED, EdgeState.IMPOSSIBLE)
names = st.sampled_from(NAMES)
edges = st.builds(
    lambda n, up, down, state: EdgeRow("f", f"e{n}", up, down, "success", state, NOW),
    st.integers(0, 3),
    names,
    names,
    st.sampled_from(STATES),
)
ends = st.builds(
    lambda is_success, at: EdgeEnd(
        EdgeState.SATISFIED if is_success else EdgeState.IMPOSSIBLE, NOW + at, 0
    ),
    st.booleans(),
    st.integers(0, 1),
)
edge_steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), edges),
        st.tuples(st.just("drop"), st.integers(0, 3)),
        st.tuples(st.just("end"), st.integers(0, 3), ends),
        st.tuples(st.just("add"), edges),
        st.tuples(st.just("save"), st.none()),
    ),
    max_size=5,
)
limits = st.one_of(st.none(), st.integers(1, 3))
edge_searches: st.SearchStrategy[Search[Any]] = st.one_of(
    st.builds(
        lambda index, wanted, state, limit: Search(
            index,
            tuple((each,) for each in sorted(wanted)),
            only=() if state is None else (("edge_state", state.value),),
            limit=limit,
        ),
        st.sampled_from((EDGES_FROM, EDGES_TO, EDGES_AHEAD_FROM)),
        st.sets(names, min_size=1),
        st.one_of(st.none(), st.sampled_from(STATES)),
        limits,
    ),
    st.builds(
        lambda after, limit, back: Search(
            by_key(EDGES), (("f",),), after=(f"e{after}",), limit=limit, is_backwards=back
        ),
        st.integers(0, 3),
        limits,
        st.booleans(),
    ),
)


def unit_over(tx: Transaction) -> tuple[View, Overlay]:
    view = View(Moment(NOW, 0, 0, 1 << 20, frozenset()))
    return view, Overlay(tx, view)


async def store_with(edge_rows: list[EdgeRow]) -> MemoryStore:
    store = MemoryStore()

    async def fill(tx: Transaction) -> None:
        view, _ = unit_over(tx)
        for row in {EDGES.key_of(row): row for row in edge_rows}.values():
            view.rows.put(EDGES, row)
        await tx.save(view.take_changes())

    await store.transact(fill)
    return store


async def apply_edges(tx: Transaction, view: View, overlay: Overlay, steps: list[Any]) -> None:
    for word, *what in steps:
        if word == "save":
            await overlay.save()
            continue
        key = EDGES.key_of(what[0]) if isinstance(what[0], EdgeRow) else ("f", f"e{what[0]}")
        here = await overlay.row(EDGES, key)
        if word == "add" and here is None:
            view.rows.add(EDGES, [what[0]])
        elif word == "put":
            view.rows.take(EDGES, await tx.peek_rows(EDGES, [key]))
            view.rows.put(EDGES, what[0])
        elif word == "drop" and here is not None:
            view.rows.take(EDGES, await tx.peek_rows(EDGES, [key]))
            view.rows.drop(EDGES, [key])
        elif word == "end" and here is not None and view.rows.get(EDGES, key) is None:
            view.rows.set_alike(EDGES, [key], what[1])


async def edges_agree(stored: list[EdgeRow], steps: list[Any], search: Search[Any]) -> None:
    store = await store_with(stored)

    async def work(tx: Transaction) -> None:
        view, overlay = unit_over(tx)
        await apply_edges(tx, view, overlay, steps)
        seen = await overlay.search(search)
        keys = await overlay.search_keys(search)
        await overlay.save()
        assert seen == await tx.search(search)
        assert keys == await tx.search_keys(search)

    await store.transact(work)


TWO = [EdgeRow("f", f"e{n}", "a", "b", "success", EdgeState.APPLIED, NOW) for n in range(2)]
SATISFIED = (("edge_state", EdgeState.SATISFIED.value),)


@example(TWO, [("drop", 0)], Search(EDGES_FROM, (("a",),), limit=1))
@example(
    TWO,
    [("end", 0, EdgeEnd(EdgeState.SATISFIED, NOW, 0))],
    Search(EDGES_FROM, (("a",),), only=SATISFIED),
)
@settings(max_examples=EXAMPLES, deadline=None, phases=PHASES)
@given(st.lists(edges, min_size=2, max_size=6), edge_steps, edge_searches)
def test_rows_are_found_as_if_they_were_written(
    stored: list[EdgeRow], steps: list[Any], search: Search[Any]
) -> None:
    asyncio.run(edges_agree(stored, steps, search))


# --- executions ----------------------------------------------------------------------------------

SITUATIONS = ("waiting", "waiting", "delayed", "leased", "completed")


def in_situation(number: int, situation: str, priority: int) -> Execution:
    key = f"{{fp:1}}:00000000-0000-7000-8000-{number:012d}"
    made = make.SITUATIONS[situation]()
    return replace(made, execution_id=key, priority=priority)


executions = st.builds(
    in_situation, st.integers(0, 3), st.sampled_from(SITUATIONS), st.integers(0, 2)
)
ROUTE = make.created().route
execution_searches: st.SearchStrategy[Search[Any]] = st.one_of(
    st.builds(lambda limit, until: Search(DUE, until=until, limit=limit), limits, st.just(1 << 50)),
    st.builds(lambda limit: Search(READY, ((ROUTE,),), limit=limit), limits),
)


def save_image(view: View, stored: dict[str, Execution], image: Execution) -> None:
    """The next image of a stored execution, or a new execution."""
    key = image.execution_id
    before = view.executions.get(key) or stored.get(key)
    if isinstance(before, Execution):
        view.put(before, image)
        view.changes.cold.add(key)
        view.changes.taken.add(key)
    else:
        view.changes.created[key] = (image, Body(key, b"x" * 10))
        view.executions[key] = image


async def executions_agree(
    stored: list[Execution], images: list[Execution], search: Search[Any], room: int
) -> None:
    store = MemoryStore()
    known = {each.execution_id: each for each in stored}

    async def fill(tx: Transaction) -> None:
        view, overlay = unit_over(tx)
        for each in known.values():
            save_image(view, {}, each)
        await overlay.save()

    await store.transact(fill)

    async def work(tx: Transaction) -> None:
        view, overlay = unit_over(tx)
        for image in images:
            save_image(view, known, image)
        found = await overlay.search(search)
        limit = search.limit or 10
        bounded = await overlay.candidates([ROUTE], limit, room)
        free = await overlay.candidates([ROUTE], limit)
        await overlay.save()
        assert found == await tx.search(search)
        assert bounded == await tx.ready([ROUTE], limit, room)
        assert free == await tx.ready([ROUTE], limit)

    await store.transact(work)


@settings(max_examples=EXAMPLES, deadline=None, phases=PHASES)
@given(
    st.lists(executions, min_size=2, max_size=6),
    st.lists(executions, max_size=4),
    execution_searches,
    st.integers(1, 40),
)
def test_executions_are_found_as_if_they_were_written(
    stored: list[Execution], images: list[Execution], search: Search[Any], room: int
) -> None:
    asyncio.run(executions_agree(stored, images, search, room))


# --- planted faults ------------------------------------------------------------------------------

FAULTS = {
    "rows: pending writes are not seen": Mutant(Overlay.search, "if pending is None:", "if True:"),
    "rows: a dropped row is found": Mutant(Overlay.search, "if key not in images:", "if True:"),
    "rows: a resolved edge is as it was": Mutant(
        overlays._set_alike, "if key in keys:", "if False:"
    ),
    "rows: a filter hides what passes only now": Mutant(
        overlays._widened, "for values in alike:", "for values in ():"
    ),
    "rows: a page is cut before it is laid over": Mutant(
        overlays._beyond, "if search.limit is None or not more:", "if True:"
    ),
    "executions: pending ones are not seen": Mutant(
        Overlay._executions, "if not view.has_unwritten:", "if True:"
    ),
    "executions: a changed one is found as it was": Mutant(
        Overlay._executions, "if not view.is_unwritten(each.execution_id)", "if each"
    ),
    "candidates: pending ones are not seen": Mutant(
        Overlay.candidates, "if not view.has_unwritten:", "if True:"
    ),
    "candidates: what is gone takes room from the rest": Mutant(
        Overlay.candidates, "while stale and", "while False and"
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant([FAULTS[name]], monkeypatch)
    about_rows = name.startswith("rows")
    test = (
        test_rows_are_found_as_if_they_were_written
        if about_rows
        else test_executions_are_found_as_if_they_were_written
    )
    with pytest.raises((AssertionError, ExceptionGroup)):
        test()
