"""Random handlers with steps, branches, waits and children, whose workers die at random points: the
result is that of a run without faults, nothing that is recorded is done again, and no effect began
with what was lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowfabric.model.state import PublicState
from tests.conftest import open_lab
from tests.property.budget import budget
from tests.property.handlers import Items, Model, Step, handlers
from tests.property.journaling import Play
from tests.property.market import File, Market, Server
from tests.support.effects import check_steps, keys_of, leaves, results
from tests.support.kept import dumped
from tests.support.lab import Lab

HISTORIES = {
    "memory": budget("FF_STEP_HISTORIES", 200),
    "sqlite": budget("FF_STEP_HISTORIES", 200) // 10,
    "postgres": budget("FF_STEP_HISTORIES", 200) // 10,
}
KEPT = 50  # executions, for more histories
RETENTION_MS = 100 * 86_400_000  # more than any
deaths = st.lists(st.integers(0, 40), max_size=6)
seeds, warmth = st.integers(0, 1_000), st.sampled_from((0, 2, 1_000))


async def play(
    lab: Lab, market: Market, tree: Items, points: list[int], seed: int = 0, warm: int = 0
) -> None:
    """One history, and what must be true of it."""
    history = Play(lab, tree, market, seed=seed, warm=warm)
    execution_id = await history.live(points)
    dump = await dumped(lab.direct.store)
    record = await lab.record(execution_id)
    assert record.public_state is PublicState.COMPLETED
    family = {execution_id}
    if record.flow_id is not None:
        family |= {e.execution_id for e in dump["executions"] if e.flow_id == record.flow_id}
    journal = [row for row in dump["ff_journal"] if row.execution_id in family]
    check_steps(history.notes, journal, history.said)
    assert len(history.begun) == len(set(history.begun)), "a step began twice that may once"
    recorded = set().union(*results(journal).values())
    sold = recorded & history.offered
    assert sorted(await market.words()) == sorted(sold), "rows are not those of completed steps"
    found = msgspec.json.decode(
        await lab.engine.get_execution_result(execution_id=execution_id) or b""
    )
    model = Model(tree)
    assert keys_of(found) == model.result
    assert len(family) == 1 + model.children, "a child was spawned twice, or not at all"
    words = {word for word in leaves(found) if "=" in word}
    assert words <= recorded | history.said
    if len(dump["executions"]) > KEPT:
        lab.clock.advance(RETENTION_MS)
        while await lab.engine.tick():
            pass


@pytest.mark.parametrize("store", HISTORIES)
def test_a_handler_that_is_interrupted_ends_as_one_that_is_not(
    store: str, request: pytest.FixtureRequest
) -> None:
    with ExitStack() as stack:
        lab = open_lab(store, request, stack)
        market = stack.enter_context(trading(lab, request))

        @settings(max_examples=HISTORIES[store])
        @given(handlers, deaths, seeds, warmth)
        def history(tree: Items, points: list[int], seed: int, warm: int) -> None:
            lab.run(play(lab, market, tree, points, seed, warm))

        history()


def test_transaction_step_killed_around_its_commit(request: pytest.FixtureRequest) -> None:
    """7.1.17: workers die at random points before, in and after the commits of three steps: the
    rows of the program are those of completed steps, always."""
    with ExitStack() as stack:
        lab = open_lab("postgres", request, stack)
        market = stack.enter_context(trading(lab, request))
        tree = tuple(Step("sell", True, "sale") for _ in range(3))

        @settings(max_examples=HISTORIES["postgres"])
        @given(st.lists(st.integers(2, 18), max_size=6))
        def history(points: list[int]) -> None:
            lab.run(play(lab, market, tree, points))

        history()


@contextmanager
def trading(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Market]:
    """The database of the program: that of the store where it can be, else a file."""
    path: Path = request.getfixturevalue("tmp_path") / "market.db"
    market: Market = Server(lab.url) if lab.url.startswith("postgres") else File(path)
    lab.run(market.open())
    try:
        yield market
    finally:
        lab.run(market.close())
