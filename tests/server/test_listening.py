"""The HTTP server of a process: its clock, and an end that waits for nothing."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
import uvicorn

from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.server import listening
from flowfabric.server.listening import Listening
from flowfabric.server.serve import Server
from flowfabric.server.settings import ServerSettings

LONGER_THAN_ANY_TEST_S = 3_600.0


def test_a_server_ends_without_a_wait_although_connections_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "_GRACE_S", LONGER_THAN_ANY_TEST_S)
    monkeypatch.setattr(listening, "_RENEWED_S", LONGER_THAN_ANY_TEST_S)

    async def story() -> None:
        async with (
            open_engine("memory://", config=EngineConfig(loops=False)) as engine,
            aiohttp.ClientSession() as client,
        ):
            async with Server(engine, ServerSettings(bind="127.0.0.1:0")) as server:
                page = f"{server.address}/healthz"
                async with client.get(page) as answer:
                    await answer.read()
            with pytest.raises(aiohttp.ClientConnectionError):
                await client.get(page)

    asyncio.run(asyncio.wait_for(story(), 60))


def test_the_date_is_renewed_until_a_server_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_RENEWED_S", 0.001)

    async def story() -> None:
        server = Listening(uvicorn.Config("none:none"))
        renewing = asyncio.create_task(server.main_loop())
        for _ in range(3):
            server.server_state.default_headers = []
            while not server.server_state.default_headers:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0)
        server.leave()
        await renewing

    asyncio.run(story())
