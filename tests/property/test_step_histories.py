"""Random handlers with steps whose workers die at random points: the result is that of a run
without faults, nothing that is recorded is done again, and no effect began with what was lost."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowfabric.model.state import PublicState
from tests.conftest import open_lab
from tests.property.budget import budget
from tests.property.journaling import FOR_EVER, KIND, POLICY, Play, expected, handlers
from tests.support.effects import check_steps, keys_of, leaves, results
from tests.support.kept import dumped
from tests.support.lab import Lab

HISTORIES = {
    "memory": budget("FF_STEP_HISTORIES", 200),
    "sqlite": budget("FF_STEP_HISTORIES", 200) // 10,
    "postgres": budget("FF_STEP_HISTORIES", 200) // 10,
}
deaths = st.lists(st.integers(0, 30), max_size=6)


async def play(lab: Lab, tree: tuple[Any, ...], points: list[int]) -> None:
    """One history, and what must be true of it."""
    execution_id = await lab.create(KIND, policy=POLICY)
    history = Play(lab, tree)
    lives = iter(points)
    while claims := await lab.claims():
        await history.live(claims[0], next(lives, FOR_EVER))
    record = await lab.record(execution_id)
    assert record.public_state is PublicState.COMPLETED
    journal = [
        row
        for row in (await dumped(lab.direct.store))["ff_journal"]
        if row.execution_id == execution_id
    ]
    check_steps(history.notes, journal)
    found = msgspec.json.decode(
        await lab.engine.get_execution_result(execution_id=execution_id) or b""
    )
    assert keys_of(found) == expected(tree)
    words = {word for word in leaves(found) if "=" in word}
    assert words <= results(journal).get(execution_id, set())


@pytest.mark.parametrize("store", HISTORIES)
def test_a_handler_that_is_interrupted_ends_as_one_that_is_not(
    store: str, request: pytest.FixtureRequest
) -> None:
    with ExitStack() as stack:
        lab = open_lab(store, request, stack)

        @settings(max_examples=HISTORIES[store])
        @given(handlers, deaths)
        def history(tree: tuple[Any, ...], points: list[int]) -> None:
            lab.run(play(lab, tree, points))

        history()
