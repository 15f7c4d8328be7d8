"""What only an embedded file must prove: several engines, hints between them, no lock errors."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flowfabric.assemble import open_engine, open_store
from flowfabric.config import EngineConfig
from flowfabric.errors import InvalidInput, StoreUnavailable

SLOW_POLL = EngineConfig(loops=False, poll_interval_ms=3_600_000)


async def claim(engine: Any, **fields: Any) -> Any:
    return await engine.claim(
        lanes=("default",), worker_id="w", worker_instance_id="i", limit=100, **fields
    )


def test_a_waiting_claim_in_another_process_is_woken_by_a_datagram(tmp_path: Path) -> None:
    """The poll interval is an hour: only a hint can have woken it."""

    async def story() -> None:
        url = f"sqlite:///{tmp_path / 'shared.db'}"
        async with (
            open_engine(url, config=SLOW_POLL) as worker,
            open_engine(url, config=SLOW_POLL) as submitter,
        ):
            waiting = asyncio.create_task(claim(worker, wait_ms=60_000))
            await asyncio.sleep(0)
            while not waiting.done():  # a hint sent before the claim looked is no use to it
                await submitter.create_execution(execution_kind="k")
                await asyncio.wait((waiting,), timeout=0.2)
            claimed = await waiting
            result = asyncio.create_task(
                submitter.wait_for_result(execution_id=claimed[0].execution_id, wait_ms=60_000)
            )
            await asyncio.sleep(0)
            await worker.complete(claimed[0].handle)
            assert (await result).public_state.value == "completed"

    asyncio.run(story())


def test_many_writers_on_one_file_never_see_a_lock(tmp_path: Path) -> None:
    async def story() -> None:
        url = f"sqlite:///{tmp_path / 'shared.db'}"
        engines = [open_engine(url, config=EngineConfig(loops=False)) for _ in range(4)]
        await asyncio.gather(*(engine.start() for engine in engines))

        async def write(engine: Any) -> None:
            for _ in range(40):
                await engine.create_execution(execution_kind="k")
                for each in await claim(engine):
                    await engine.complete(each.handle)

        await asyncio.gather(*map(write, engines))
        left = await claim(engines[0])
        counts = await engines[0].count_executions()
        assert counts["default"].get("completed", 0) + len(left) == 160
        await asyncio.gather(*(engine.close() for engine in engines))

    asyncio.run(story())


def test_a_writer_that_holds_the_file_only_delays_others(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "held.db"
        async with open_engine(f"sqlite:///{path}", config=SLOW_POLL) as engine:
            await engine.create_execution(execution_kind="k")
            with closing(sqlite3.connect(path, isolation_level=None)) as rival:
                rival.execute("BEGIN IMMEDIATE")
                creating = asyncio.create_task(engine.create_execution(execution_kind="k"))
                done, _ = await asyncio.wait((creating,), timeout=0.3)
                assert not done
                rival.execute("COMMIT")
            await creating

    asyncio.run(story())


def test_a_file_that_cannot_be_opened_is_a_typed_error(tmp_path: Path) -> None:
    async def story() -> None:
        (tmp_path / "folder.db").mkdir()
        engine = open_engine(f"sqlite:///{tmp_path / 'folder.db'}", config=SLOW_POLL)
        with pytest.raises(StoreUnavailable, match=r"folder\.db"):
            await engine.start()

    asyncio.run(story())


@pytest.mark.parametrize("url", ["sqlite://", "sqlite://host/x", "sqlite:///", "mysql://x", "", 5])
def test_a_strange_url_is_refused_by_name(url: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        open_store(url)
    assert refused.value.fields["field"] == "url"


def test_a_socket_that_cannot_be_bound_is_closed_and_work_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is left open is a warning at some later moment, in whatever test runs then."""
    far = tmp_path / ("x" * 120)  # too long for the address of a socket
    far.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(far))
    made: list[socket.socket] = []
    really = socket.socket

    def kept(*words: Any) -> socket.socket:
        made.append(really(*words))
        return made[-1]

    async def story() -> None:
        async with open_engine(f"sqlite:///{tmp_path / 'far.db'}", config=SLOW_POLL) as engine:
            await engine.create_execution(execution_kind="k")
            assert len(await claim(engine)) == 1

    with asyncio.Runner() as runner:
        runner.get_loop()  # has sockets of its own
        monkeypatch.setattr(socket, "socket", kept)
        runner.run(story())
    assert [each.fileno() for each in made] == [-1]
