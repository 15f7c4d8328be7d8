"""A suspension spoiled behind the engine's back is reported, and its neighbours live on."""

from __future__ import annotations

import pytest

from flowfabric.errors import Corruption, InvalidToken
from flowfabric.model.state import PublicState
from flowfabric.model.suspension import SignalEffect
from tests.support.lab import Lab
from tests.support.waits import suspended


@pytest.mark.parametrize("column", ["condition", "progress", "reason_code"])
def test_a_spoiled_suspension_harms_nobody_else(durable_lab: Lab, column: str) -> None:
    """One row that cannot be read stops neither signals nor timers of others."""
    lab = durable_lab

    async def check() -> None:
        bad = await suspended(
            lab,
            timeout_at=lab.now + 1000,
            created={"execution_deadline_at": lab.now + 200_000},
        )
        timed = await suspended(lab, timeout_at=lab.now + 1000)
        other = await suspended(lab)
        key, address = bad.execution_id, bad.at["a"].waitpoint_id
        await lab.sql(f"UPDATE ff_suspension SET {column} = '[1]' WHERE execution_id = '{key}'")
        batch = [other.signal("no"), bad.signal(), other.signal()]
        answers = await lab.engine.deliver_signals(batch)
        assert isinstance(answers[1], Corruption)
        assert key in str(answers[1])
        assert answers[2].effect is SignalEffect.RESUMED  # type: ignore[union-attr]
        with pytest.raises(InvalidToken):  # who has no token is told nothing
            await bad.send(token="k1:" + "0" * 64)
        with pytest.raises(Corruption):
            await lab.engine.resume_execution(execution_id=key)
        assert await lab.engine.read_waitpoint_token(execution_id=key, waitpoint_id=address)
        lab.clock.advance(1000)
        assert await lab.engine.move_due() == 1
        assert await lab.state(timed.execution_id) is PublicState.FAILED
        assert await lab.state(key) is PublicState.SUSPENDED
        assert await lab.engine.move_due() == 0
        assert (await lab.engine.list_suspended()).items == ()
        problems = (await lab.engine.doctor()).problems
        (problem,) = problems
        assert (problem.code, problem.subject.split("/")[0]) == ("corrupt", f"ff_suspension {key}")
        assert column in problem.detail
        lab.clock.advance(200_000)
        await lab.engine.move_due()
        assert await lab.state(key) is PublicState.EXPIRED

    lab.run(check())
