"""A command whose write the store refuses is answered alone; its neighbours are done."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from flowfabric.engine.operations import requests
from flowfabric.errors import FlowFabricError
from flowfabric.model.results import Created
from tests.support.lab import Lab

if TYPE_CHECKING:
    import pytest


def test_a_write_that_the_store_refuses_fails_no_other(
    durable_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that should have been made earlier is missing: the store's own refusal is left."""
    lab = durable_lab
    monkeypatch.setattr(requests, "clamp_priority", lambda value, **_: value)

    async def check() -> None:
        calls = [
            lab.engine.create_execution(execution_kind="work", priority=1 << 50 if at == 7 else at)
            for at in range(20)
        ]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(answers.pop(7), FlowFabricError)
        assert all(isinstance(each, Created) for each in answers)

    lab.run(check())
