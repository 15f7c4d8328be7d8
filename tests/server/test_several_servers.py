"""Several servers on one PostgreSQL: what is done at one is told at another, and each of them can
be replaced while the others serve."""

from __future__ import annotations

import asyncio
import re
import signal
from contextlib import ExitStack
from pathlib import Path
from time import sleep

import httpx
import psutil
import pytest

from flowfabric import Fabric, PublicState
from flowfabric.cli import main
from flowfabric.cli.exits import Exit
from tests.sdk.workshop import until, within, working
from tests.support.serving import ServerProcess, get, serving

_PROOF = re.compile('name="csrf" value="([0-9a-f]{64})"')


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


def replaced_by(parent: psutil.Process, gone: set[psutil.Process]) -> list[psutil.Process]:
    """Its two children, once those that are gone are none of them."""
    for _ in range(600):
        found = parent.children()
        if len(found) == 2 and gone.isdisjoint(found):
            return list(found)
        sleep(0.05)
    raise AssertionError(parent.children())


@pytest.mark.slow
def test_processes_share_one_socket_and_one_that_dies_is_replaced(
    postgres_url: str, tmp_path: Path
) -> None:
    with serving(postgres_url, "--workers", "2", "--drain-delay", "0s", folder=tmp_path) as server:
        address = server.told["address"]
        assert server.told["processes"] == 2
        parent = psutil.Process(server.process.pid)
        assert get(address, "/readyz").status_code == 200
        proof = _PROOF.findall(get(address, "/ui/runs").text)[0]
        first, second = replaced_by(parent, set())
        first.kill()
        made = httpx.post(f"{address}/v1/executions", json={"execution_kind": "x"}, timeout=60)
        assert made.status_code == 201
        # A form is good at a process that has not shown it.
        assert _PROOF.findall(get(address, "/ui/runs").text)[0] == proof
        assert second in replaced_by(parent, {first})
        assert server.stop(signal.SIGTERM) == 0
        assert not second.is_running()


def test_a_file_has_one_server_process(tmp_path: Path) -> None:
    words = ("serve", "--url", f"sqlite:///{tmp_path}/x.db", "--workers", "2", "--migrate")
    assert main([*words]) == Exit.USAGE
