"""Several servers on one PostgreSQL: what is done at one is told at another, and each of them can
be replaced while the others serve."""

from __future__ import annotations

import asyncio
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from flowfabric import Fabric, PublicState
from tests.sdk.workshop import until, within, working
from tests.support.serving import ServerProcess, serving


def replaced(server: ServerProcess, url: str, folder: Path, stack: ExitStack) -> ServerProcess:
    """Another server at the same address, once the first one has drained."""
    place = server.told["address"].removeprefix("http://")
    assert server.stop(signal.SIGTERM) == 0, server.log.read_text("utf-8")
    folder.mkdir()
    return stack.enter_context(serving(url, "--bind", place, folder=folder))


@pytest.mark.slow
def test_servers_share_a_store_and_are_replaced_one_by_one(
    postgres_url: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        servers = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            options = ("--drain-delay", "200ms")
            served = serving(postgres_url, *options, folder=tmp_path / name)
            servers.append(stack.enter_context(served))
        asyncio.run(_told(postgres_url, servers, tmp_path, stack))


async def _told(url: str, servers: list[ServerProcess], folder: Path, stack: ExitStack) -> None:
    here, there = (Fabric(each.told["address"]) for each in servers)
    begun, interrupted = asyncio.Event(), asyncio.Event()

    @here.task
    async def greet(name: str) -> str:
        return f"hello, {name}"

    @here.task
    async def sleep() -> None:
        begun.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            interrupted.set()
            raise

    async with here, there, working(here):
        run = await there.submit("greet", {"name": "Joan"})
        assert await within(run.result()) == "hello, Joan"

        sleeping = await there.submit("sleep")
        await within(begun.wait())
        await sleeping.cancel("enough")
        await within(interrupted.wait())
        assert await here.run(sleeping.id).state() is PublicState.CANCELLED

        names: list[str] = []
        over = asyncio.Event()

        async def ask() -> None:
            """One call after another, at one server and at the other."""
            while not over.is_set():
                for fabric in (here, there):
                    run = await fabric.submit("greet", {"name": str(len(names))})
                    names.append(await run.result(timeout="60s"))

        asking = asyncio.create_task(ask())
        for number, server in enumerate(servers):
            await asyncio.to_thread(replaced, server, url, folder / f"new-{number}", stack)
            some = len(names) + 4

            async def is_served(some: int = some) -> bool:
                if asking.done():
                    await asking
                return len(names) >= some

            await within(until(is_served))
        over.set()
        await within(asking)
        assert names == [f"hello, {number}" for number in range(len(names))]
