"""What a program sees that works through a server: tokens, proxies, and what cannot be."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from flowfabric import Fabric, Worker
from flowfabric.api.operation import Scope
from flowfabric.assemble import open_backend, open_engine
from flowfabric.client.engine import RemoteEngine
from flowfabric.engine.engine import Engine
from flowfabric.errors import InvalidInput, MissingScope, NotRemote, StoreUnavailable, Unauthorized
from flowfabric.server.serve import Server
from flowfabric.server.settings import ServerSettings
from tests.sdk.workshop import within
from tests.support.proxy import Proxy
from tests.support.server_thread import ServerThread

SETTINGS = ServerSettings(bind="127.0.0.1:0", drain_delay_ms=0)


async def token(engine: Engine, *scopes: Scope) -> tuple[str, str]:
    """The id and the text of a new one."""
    made = await engine.create_access_token(name="t", scopes=[each.value for each in scopes])
    return made.id, made.token.reveal()


@pytest.mark.parametrize("how", ["revoked", "without the scope"])
def test_a_worker_that_is_shut_out_ends_with_the_error(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing will come of trying: 401 and 403 end it, and nothing else does."""
    monkeypatch.setattr("flowfabric.sdk.worker.worker._CLAIM_WAIT_MS", 100)

    async def main() -> None:
        async with open_engine("memory://") as engine, Server(engine, SETTINGS) as server:
            scopes = (Scope.WORKER, Scope.SUBMIT, Scope.READ)
            token_id, text = await token(engine, *(scopes if how == "revoked" else scopes[1:]))
            ff = Fabric(server.address, token=text)

            @ff.task
            async def nothing() -> None: ...

            async with ff:
                worker = Worker(ff)
                running = asyncio.create_task(worker.run(handle_signals=False))
                if how == "revoked":
                    while not (await engine.list_workers()).items:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                    await engine.revoke_access_token(token_id=token_id)
                with pytest.raises(Unauthorized if how == "revoked" else MissingScope):
                    await within(running)

    asyncio.run(main())


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(InvalidInput, match=r"aiohttp.*pip install 'flowfabric\[client\]'"):
        open_backend("http://127.0.0.1:9090")


def test_a_program_that_closes_nothing_ends_in_silence(tmp_path: Path) -> None:
    server = ServerThread(f"sqlite:///{tmp_path}/x.db")
    try:
        program = f"from flowfabric import Fabric; print(*Fabric({server.address!r}).sync.runs())"
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
        )
    finally:
        server.close()
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")


def test_a_start_in_vain_leaves_nothing_open() -> None:
    async def main() -> list[object]:
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about))
        with pytest.raises(StoreUnavailable):
            await open_backend("http://127.0.0.1:1").start()
        gc.collect()
        return complaints

    assert asyncio.run(main()) == []


def test_a_token_comes_from_the_environment_or_a_file_and_is_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with open_engine("memory://") as engine, Server(engine, SETTINGS) as server:
            _, text = await token(engine, Scope.READ)
            secret = text.split("_")[2]

            async def asks() -> None:
                backend = open_backend(server.address)
                try:
                    await backend.start()
                    assert (await backend.list_executions()).items == ()
                    assert secret not in repr(backend)
                finally:
                    await backend.close()

            with pytest.raises(Unauthorized):
                await asks()
            (tmp_path / "token").write_text(f"{text}\n")
            monkeypatch.setenv("FLOWFABRIC_TOKEN_FILE", str(tmp_path / "token"))
            await asks()
            monkeypatch.setenv("FLOWFABRIC_TOKEN", text)
            (tmp_path / "token").write_text("ff_wrong")
            await asks()
            ff = Fabric(server.address, token=text)
            assert secret not in repr(ff)

    asyncio.run(main())


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with (
            open_engine("memory://") as engine,
            Server(engine, SETTINGS) as server,
            Proxy(server.address) as proxy,
        ):
            monkeypatch.setenv("HTTP_PROXY", proxy.address)
            monkeypatch.delenv("NO_PROXY", raising=False)
            monkeypatch.delenv("no_proxy", raising=False)
            # A name that only the proxy could resolve.
            client = RemoteEngine("http://localhost:1")
            assert proxy.taken == 0
            await within(client.start())
            await within(client.ping())
            assert proxy.taken > 0
            await client.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "url",
    [
        "http://host:9090/?token=ff_x",
        "http://ff_x@host:9090",
        "http://",
        "https://host:9090/#ff_x",
    ],
)
def test_a_token_has_no_place_in_the_address_of_a_server(url: str) -> None:
    with pytest.raises(InvalidInput, match="url") as caught:
        RemoteEngine(url)
    assert "ff_x" not in str(caught.value)


def test_a_submit_in_a_transaction_of_the_caller_is_refused_with_the_embedded_way() -> None:
    async def main() -> None:
        async with open_engine("memory://") as engine, Server(engine, SETTINGS) as server:
            ff = Fabric(server.address)

            @ff.task
            async def nothing() -> None: ...

            async with ff:
                with pytest.raises(NotRemote, match="URL of the store"):
                    await ff.submit(nothing, connection=object())

    asyncio.run(main())


def test_a_worker_that_cannot_reach_its_server_says_so_once_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with (
            open_engine("memory://") as engine,
            Server(engine, SETTINGS) as server,
            Proxy(server.address) as proxy,
        ):
            ff = Fabric(proxy.address)

            @ff.task
            async def one() -> int:
                return 1

            async with ff:
                worker = Worker(ff)
                running = asyncio.create_task(worker.run(handle_signals=False))
                await within((await ff.submit(one)).result())
                address = server.address
                proxy.lead_to("http://127.0.0.1:1")
                await asyncio.sleep(1)
                proxy.lead_to(address)
                await within((await ff.submit(one)).result())
                worker.stop()
                await within(running)

    with caplog.at_level(logging.INFO, "flowfabric"):
        asyncio.run(main())
    lines = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(lines) <= 4, lines
