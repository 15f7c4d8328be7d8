"""The plugin runs async tests, gives each its fabric, and replays with other hash seeds."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from flowfabric import Fabric
from flowfabric.testing import TestFabric
from flowfabric.testing.blocking import SyncTestFabric
from tests.support.databases import PostgresServer

ff = Fabric("memory://")


@ff.step
async def fetch(topic: str) -> str:
    return topic.upper()


@ff.task
async def brief(topic: str) -> str:
    return await fetch(topic)


@pytest.mark.flowfabric(app=ff)
async def test_an_async_test_runs_in_the_loop_of_its_fabric(fabric: TestFabric) -> None:
    run = await fabric.submit(brief, "solar")
    assert await run.result() == "SOLAR"


@pytest.mark.flowfabric(app="tests.testing.test_plugin:ff", store="sqlite", replay="always")
async def test_a_mark_chooses_the_fabric(fabric: TestFabric, tmp_path: Path) -> None:
    assert fabric.replay == "always"
    assert fabric.ff.url.startswith("sqlite:///")
    assert "brief" in fabric.ff.tasks
    assert tmp_path.name


@pytest.mark.flowfabric(app=ff)
def test_a_sync_test_has_the_same_calls(sync_fabric: SyncTestFabric) -> None:
    run = sync_fabric.submit(brief, "wind", delay="1d")
    sync_fabric.settle()
    assert run.state() == "delayed"
    sync_fabric.advance("2d")
    assert run.result() == "WIND"
    sync_fabric.assert_steps(run, ["fetch"])


APP = """
from flowfabric import Fabric

ff = Fabric("postgresql://nobody@nowhere.invalid/never")


@ff.step
async def note(word: str) -> str:
    return word


@ff.task
async def steady(words: list[str]) -> list[str]:
    return [await note(word) for word in sorted(set(words))]


@ff.task
async def unsteady(words: list[str]) -> list[str]:
    return [await note(word) for word in set(words)]
"""

TESTS = """
import pytest

WORDS = ["ada", "bo", "cy", "di", "eve", "flo"]


@pytest.mark.parametrize("number", range(3))
async def test_{kind}(fabric, number):
    import app
    run = await fabric.submit(app.{kind}, WORDS)
    assert sorted(await run.result()) == WORDS
"""

FAILING = """
import asyncio
import time

import pytest
from flowfabric import Fabric

ff = Fabric()


@ff.step
async def note(word: int) -> int:
    return word


@ff.task
async def by_time() -> None:
    await note(time.time_ns())


@pytest.mark.flowfabric(app=ff)
async def test_by_time(fabric):
    await fabric.settle()
    await fabric.submit(by_time)
    await asyncio.sleep(1)
"""


def pytest_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def project(folder: Path, kind: str) -> Path:
    (folder / "app.py").write_text(APP)
    (folder / "test_app.py").write_text(TESTS.format(kind=kind))
    (folder / "pytest.ini").write_text("[pytest]\nflowfabric_app = app:ff\npythonpath = .\n")
    return folder


def test_a_project_needs_one_line_of_settings(tmp_path: Path) -> None:
    done = pytest_in(project(tmp_path, "steady"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_the_order_of_a_set_is_found_with_another_hash_seed(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = pytest_in(project(tmp_path, "unsteady"), *arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    assert "not the same with another hash seed" in done.stdout
    assert "unsteady does not do the same again" in done.stdout


def test_a_run_that_no_settle_checked_is_checked_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FAILING)
    done = pytest_in(tmp_path)
    assert done.returncode == 1
    assert "1 passed, 1 error" in done.stdout
    assert "ReplayMismatch: by_time does not do the same again" in done.stdout


@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_processes_on_one_server_do_not_meet(
    tmp_path: Path,
    arguments: tuple[str, ...],
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLOWFABRIC_TEST_URL", postgres.uri)
    settings = project(tmp_path, "steady") / "pytest.ini"
    settings.write_text(f"{settings.read_text()}flowfabric_store = postgresql\n")
    done = pytest_in(tmp_path, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    assert not asyncio.run(databases_of(postgres.uri))


async def databases_of(url: str) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        wanted = "SELECT datname FROM pg_database WHERE datname LIKE 'flowfabric_test%'"
        return [row["datname"] for row in await connection.fetch(wanted)]
    finally:
        await connection.close()
