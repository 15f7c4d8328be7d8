"""Whoever waits for an end is told it, by the shortest way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from flowfabric.model.state import PublicState
from tests.support.lab import Lab, scenario

if TYPE_CHECKING:
    import pytest


class Reads:
    """Counts the reads of an engine."""

    def __init__(self, lab: Lab, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        read = lab.engine.store.read

        async def counted(work: Any) -> Any:
            self.count += 1
            return await read(work)

        patch.setattr(lab.engine.store, "read", counted)


@scenario
async def test_a_waiter_in_the_same_process_need_not_look(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = await lab.started(tags={"a.b": "1"})
    reads = Reads(lab, monkeypatch)
    waiting = [
        asyncio.create_task(
            lab.engine.wait_for_outcome(
                execution_id=claimed.execution_id, wait_ms=60_000, look_after_ms=60_000
            )
        )
        for _ in range(2)
    ]
    await asyncio.sleep(0)
    await lab.engine.complete(claimed.handle, result=b"r", result_encoding="x")
    told = [await each for each in waiting]
    assert reads.count == 0
    seen = await lab.engine.wait_for_outcome(execution_id=claimed.execution_id)
    assert told == [seen, seen]
    assert seen.result == b"r"


@scenario
async def test_other_ends_are_looked_at(lab: Lab) -> None:
    claimed = await lab.started()
    waiting = asyncio.create_task(
        lab.engine.wait_for_outcome(execution_id=claimed.execution_id, look_after_ms=60_000)
    )
    await asyncio.sleep(0)
    await lab.cancel(claimed.execution_id)
    outcome = await waiting
    assert (outcome.ended.public_state, outcome.result) == (PublicState.CANCELLED, None)


@scenario
async def test_without_a_hint_the_first_look_comes_when_it_was_promised(lab: Lab) -> None:
    execution_id = await lab.completed()
    outcome = await lab.engine.wait_for_outcome(execution_id=execution_id, look_after_ms=10)
    assert outcome.ended.public_state is PublicState.COMPLETED
