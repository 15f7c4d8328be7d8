"""What the lab of the conformance tests must notice, on every store."""

from __future__ import annotations

import pytest

from tests.support.lab import Lab, scenario


@scenario
async def test_a_change_is_noticed_where_none_may_be(lab: Lab) -> None:
    async with lab.unchanged():
        await lab.engine.list_executions()
    with pytest.raises(AssertionError, match="executions changed"):
        async with lab.unchanged():
            await lab.create()


@scenario
async def test_a_change_behind_the_engine_is_noticed(lab: Lab) -> None:
    await lab.create()
    if lab.engine.backend_label() == "memory":
        return
    with pytest.raises(AssertionError, match="executions changed"):
        async with lab.unchanged():
            await lab.sql("UPDATE ff_exec_core SET priority = 7")
