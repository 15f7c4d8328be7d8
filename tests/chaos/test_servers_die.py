"""A server is killed again and again under workers and submitters that are elsewhere.

FF_SERVER_KILLS=100 (`bin/soak`) kills it more often.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from flowfabric import Fabric
from flowfabric.assemble import open_engine
from flowfabric.client.pauses import Tries
from flowfabric.config import EngineConfig
from flowfabric.errors import StoreUnavailable
from tests.property.budget import budget
from tests.support.proxy import Proxy
from tests.support.serving import PATIENCE_S, ServerProcess

ROOT = Path(__file__).resolve().parents[2]
KILLS = budget("FF_SERVER_KILLS", 3)
WORKERS, SUBMITTERS = 4, 8
BETWEEN_S = 0.7  # of two kills


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def workers(address: str, folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are told nothing but an address, and are never restarted."""
    command = [sys.executable, "-m", "tests.chaos.remote_process", address]
    with (folder / "workers.log").open("ab") as log:
        found = [
            subprocess.Popen(command, cwd=ROOT, env=os.environ, stderr=log) for _ in range(WORKERS)
        ]
        try:
            yield found
            for each in found:
                assert each.poll() is None, "a worker has ended"
        finally:
            for each in found:
                each.terminate()
            for each in found:
                each.wait(PATIENCE_S)


async def submitted(ff: Fabric, first: int, stop: asyncio.Event) -> dict[int, str]:
    """Submit one after the other, until told to stop; no submit may fail. The ids by number.

    A server that is killed again before it has come back keeps a client waiting for longer than its
    patience: what was refused is submitted again under its key.
    """
    made: dict[int, str] = {}
    number = first
    while not stop.is_set():
        try:
            run = await ff.submit("double", n=number, key=f"n-{number}")
        except StoreUnavailable:
            continue
        made[number] = run.id
        number += SUBMITTERS
        await asyncio.sleep(0.01)
    return made


async def verified(url: str, made: dict[int, str]) -> None:
    """Everything that was promised is done, once; nothing else is there; no index lies."""
    async with open_engine(url, config=EngineConfig(loops=False)) as engine:
        results = {}
        for number, execution_id in made.items():
            results[number] = await engine.get_execution_result(execution_id=execution_id)
        assert results == {number: b"%d" % (2 * number) for number in made}
        counted = Counter[str]()
        for states in (await engine.count_executions()).values():
            counted.update(states)
        assert counted == {"completed": len(made)}
        assert not (await engine.doctor()).problems


async def finished(ff: Fabric, made: dict[int, str]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        for number, execution_id in made.items():
            assert await ff.run(execution_id).result("60s") == 2 * number


@pytest.mark.chaos
def test_a_server_is_killed_under_workers_and_submitters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost, nothing runs twice to its end, no worker has to be restarted."""
    # On a busy machine a server may take longer to start than a client is patient.
    monkeypatch.setattr("flowfabric.client.engine.Tries", lambda _: Tries(PATIENCE_S))
    url = f"sqlite:///{tmp_path}/killed.db"
    bind = f"127.0.0.1:{free_port()}"

    def started() -> ServerProcess:
        server = ServerProcess(url, "--migrate", "--bind", bind, folder=tmp_path)
        server.await_start()
        return server

    async def main(stack: ExitStack) -> None:
        server = await asyncio.to_thread(started)
        stack.callback(lambda: server.end())  # noqa: PLW0108 - the last of several
        stack.enter_context(workers(f"http://{bind}", tmp_path))
        ff, stop = Fabric(f"http://{bind}"), asyncio.Event()
        async with ff:
            tasks = [asyncio.create_task(submitted(ff, n, stop)) for n in range(SUBMITTERS)]
            for _ in range(KILLS):
                await asyncio.sleep(BETWEEN_S)
                server.process.kill()
                server.end()
                server = await asyncio.to_thread(started)
            await asyncio.sleep(BETWEEN_S)
            stop.set()
            made: dict[int, str] = {}
            for each in await asyncio.gather(*tasks):
                made |= each
            await finished(ff, made)
        assert len(made) > SUBMITTERS * KILLS
        await verified(url, made)

    with ExitStack() as stack:
        asyncio.run(main(stack))


@pytest.mark.chaos
def test_one_of_two_servers_ends_by_sigterm_under_load(tmp_path: Path, postgres_url: str) -> None:
    """No caller of the client sees an error, and the server leaves with exit code 0."""

    async def main(stack: ExitStack) -> None:
        servers = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            server = ServerProcess(postgres_url, "--drain-delay", "100ms", folder=tmp_path / name)
            stack.callback(server.end)
            servers.append(server)
        addresses = [await asyncio.to_thread(each.await_start) for each in servers]
        async with Proxy(*addresses) as balancer:
            stack.enter_context(workers(balancer.address, tmp_path))
            ff, stop = Fabric(balancer.address), asyncio.Event()
            async with ff:
                tasks = [asyncio.create_task(submitted(ff, n, stop)) for n in range(SUBMITTERS)]
                await asyncio.sleep(BETWEEN_S)
                servers[0].process.send_signal(signal.SIGTERM)
                code = await asyncio.to_thread(servers[0].process.wait, PATIENCE_S)
                await asyncio.sleep(BETWEEN_S)
                stop.set()
                made: dict[int, str] = {}
                for each in await asyncio.gather(*tasks):
                    made |= each
                await finished(ff, made)
            assert code == 0
            await verified(postgres_url, made)

    with ExitStack() as stack:
        asyncio.run(main(stack))
