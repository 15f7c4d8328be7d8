"""The benchmark measures what it says: every key, verified work and a floor that does the same."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.scenarios import backlog, flow, idle, suspend, wal
from benchmarks.scenarios import cycle as cycle_and_floor
from benchmarks.scenarios.floor import measure_floor
from benchmarks.scenarios.preload import LISTED_RUNNING, preload, preload_listed, preload_suspended
from benchmarks.scenarios.raw import connect
from benchmarks.scenarios.specimen import CORE, TABLES, read_specimen
from benchmarks.tables import render
from flowfabric.assemble import open_engine
from flowfabric.bench import cycle, latency, single, worker
from flowfabric.bench.databases import Databases, open_databases
from flowfabric.bench.main import run
from flowfabric.bench.measurement import MeasurementFailed, check_count, percentile
from flowfabric.config import EngineConfig
from flowfabric.errors import InvalidInput

KEYS = {
    "scenario",
    "store",
    "n",
    "throughput_per_s",
    "floor_per_s",
    "ratio_to_floor",
    "p50_ms",
    "p95_ms",
    "p99_ms",
    "settings",
    "versions",
    "extra",
}
FAR = 4_000_000_000_000


def test_the_command_prints_one_object_with_every_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("latency", "sqlite", 3, f"sqlite:///{tmp_path / 'mine.db'}", as_json=True) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed) == KEYS
    assert printed["scenario"] == "latency"
    assert 0 < printed["p50_ms"] <= printed["p95_ms"] <= printed["p99_ms"]
    assert list(tmp_path.iterdir()) == []  # the file of the URL is not touched, nothing is left


def test_a_cycle_is_measured_against_its_floor(databases: Databases) -> None:
    found = cycle_and_floor.measure(databases, 40, rounds=1)
    assert set(found.to_dict()) == KEYS
    assert found.throughput_per_s is not None
    assert found.floor_per_s is not None
    rounded = found.throughput_per_s / found.floor_per_s
    assert found.ratio_to_floor == pytest.approx(rounded, rel=0.01)
    assert found.settings["drivers"] == 1


def test_a_cycle_is_measured_without_a_floor_where_there_is_no_checkout(
    databases: Databases,
) -> None:
    found = cycle.measure(databases, 40, rounds=1)
    assert found.throughput_per_s is not None
    assert found.floor_per_s is None
    assert found.extra["cpu_us_per_cycle"] > 0


@pytest.mark.parametrize("wide", [False, True])
def test_the_floor_writes_the_rows_of_the_engine(databases: Databases, wide: bool) -> None:
    """As many rows in the same tables, and the same words in every column that is not an id."""
    with databases.empty() as ours, databases.empty() as floor:
        asyncio.run(cycle.engine_rate(ours, 7, batch=4))
        specimen = asyncio.run(read_specimen(floor, delay_until=FAR))
        asyncio.run(_delete_all(floor))
        asyncio.run(measure_floor(floor, specimen, 7, 4, wide=wide))
        assert asyncio.run(_words(floor)) == asyncio.run(_words(ours))


async def _delete_all(url: str) -> None:
    database = await connect(url)
    for table in TABLES:
        await database.execute(f"DELETE FROM {table}")
    await database.close()


_OWN = (
    "execution_id",
    "partition_key",
    "lease_id",
    "attempt_id",
    "event_id",
    "took_ms",
    "ready_rank",  # made of an instant
)


async def _words(url: str) -> dict[str, list[str]]:
    """Every row without ids, instants and names."""
    database = await connect(url)
    found = {}
    for table in TABLES:
        names = list(await database.columns(table))
        rows = await database.fetch(f"SELECT * FROM {table}")
        kept = [
            at
            for at, name in enumerate(names)
            if name not in _OWN and not name.endswith("_at") and "worker" not in name
        ]
        found[table] = sorted(str([row[at] for at in kept]) for row in rows)
    await database.close()
    return found


def test_a_worker_process_drains_and_is_counted(databases: Databases) -> None:
    with databases.empty() as url:
        rate, submit_rate, cpu_us = worker.drain_rate(url, 30, 10)
        assert min(rate, submit_rate, cpu_us) > 0
        # What is already finished is not counted again.
        assert worker.drain_rate(url, 5, 10)[0] > 0


def test_latency_with_a_worker_in_another_process(databases: Databases) -> None:
    with databases.empty() as url:
        assert len(latency.laps_beside(url, 2)) == 2


def test_single_drains_a_backlog_one_by_one(databases: Databases) -> None:
    found = single.measure(databases, 20, rounds=1)
    assert found.throughput_per_s is not None
    assert found.throughput_per_s > 0
    assert found.extra["cpu_us_per_cycle"] > 0


def test_idle_counts_statements(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "WARM_UP_S", 0.5)
    found = idle.measure(databases, 2)
    assert found.extra["queries_per_s"] > 0
    assert found.extra["with_transaction_brackets_per_s"] >= found.extra["queries_per_s"]


def test_a_preloaded_store_is_sound_and_has_the_past(databases: Databases) -> None:
    with databases.empty() as url:
        asyncio.run(preload(url, finished=25, delayed=5))

        async def look() -> tuple[Any, Any]:
            async with open_engine(url) as engine:
                return await engine.count_executions(), await engine.doctor()

        counts, report = asyncio.run(look())
        assert counts["default"] == {"completed": 26, "delayed": 6}  # and the specimens
        assert report.problems == ()


def test_suspended_executions_are_preloaded_as_the_engine_left_them(databases: Databases) -> None:
    with databases.empty() as url:
        asyncio.run(preload_suspended(url, 12))

        async def look() -> tuple[Any, Any, Any]:
            async with open_engine(url) as engine:
                counts, report = await engine.count_executions(), await engine.doctor()
                shown = (await engine.list_suspended(limit=50)).items
                answers = [
                    await engine.resume_execution(execution_id=each.execution_id) for each in shown
                ]
                return counts, report, answers

        counts, report, answers = asyncio.run(look())
        assert counts["default"] == {"suspended": 12}
        assert report.problems == ()
        assert [each.public_state for each in answers] == ["waiting"] * 12


def test_waits_are_measured_and_counted(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspend, "LAPS", 2)
    monkeypatch.setattr(suspend, "WARM_UP", 1)
    monkeypatch.setattr(suspend, "CONCURRENT", 4)
    found = suspend.measure(databases, 8, suspended=5, rounds=1)
    assert set(found.to_dict()) == KEYS
    assert found.throughput_per_s is not None
    assert found.settings["laps"] == 2
    assert set(found.extra["slower_percent"]) == {"latency", "throughput"}
    assert found.extra["beside_suspended"]["throughput_per_s"] > 0


def test_flows_are_measured_and_counted(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "SIBLINGS", 20)
    monkeypatch.setattr(flow, "CALLERS", 2)
    found = flow.measure(databases, 3, rounds=1, laps=2, races=2, fan=20, fan_rounds=2)
    assert set(found.to_dict()) == KEYS
    assert found.throughput_per_s is not None
    assert found.settings["laps"] == 2
    assert found.extra["race"]["last_cancelled_ms"]["max"] > 0
    assert found.extra["fan_out"]["ratio_to_plain"] > 0


def test_backlog_compares_empty_and_full(tmp_path: Path) -> None:
    with open_databases("sqlite", f"sqlite:///{tmp_path / 'mine.db'}") as databases:
        found = backlog.measure(databases, 10, finished=20, delayed=5, rounds=1)
    assert set(found.extra["slower_percent"]) == {"cycle", "worker", "latency"}


def test_missing_work_is_no_figure() -> None:
    with pytest.raises(MeasurementFailed, match="completed: 9, expected 10"):
        check_count("completed", 9, 10)


def test_unknown_scenarios_and_stores_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="scenario"):
        run("speed", "sqlite", 1, None)
    with pytest.raises(InvalidInput, match="store"):
        run("cycle", "mongo", 1, None)
    with pytest.raises(InvalidInput, match="url"):
        run("cycle", "sqlite", 1, "postgresql://somewhere")


def test_percentiles_are_ranks() -> None:
    samples = [float(number) for number in range(1, 101)]
    assert [percentile(samples, each) for each in (50, 95, 99)] == [50.0, 95.0, 99.0]
    assert percentile([7.0], 99) == 7.0


def test_the_report_renders(databases: Databases) -> None:
    ours = cycle_and_floor.measure(databases, 10, rounds=1).to_dict()
    peer = {
        "name": "huey",
        "store": "sqlite",
        "version": "3",
        "throughput_per_s": 0,
        "note": "not installed",
        "setting": "",
        "scenario": "drain",
        "p50_ms": None,
    }
    machine = {"when": "now", "commit": "abc", "uncommitted_changes": False}
    text = render({"machine": machine, "quick": True, "ours": [ours], "peers": [peer]})
    assert f"| {databases.store} | 10 |" in text
    assert CORE not in text


def test_the_log_of_a_cycle_is_measured_in_bytes(postgres_url: str) -> None:
    with open_databases("postgres", postgres_url) as databases:
        found = wal.measure(databases, 500)
    assert found.extra["wal_bytes_per_cycle"] > 1_000
    assert "ff_exec_core_pkey" in found.extra["by_index"]


def test_only_a_server_has_such_a_log(tmp_path: Path) -> None:
    with (
        open_databases("sqlite", f"sqlite:///{tmp_path / 'mine.db'}") as databases,
        pytest.raises(MeasurementFailed, match="PostgreSQL"),
    ):
        wal.measure(databases, 1)


def test_a_preloaded_listing_has_executions_in_every_state_it_times(postgres_url: str) -> None:
    async def story(url: str) -> None:
        await preload_listed(url, finished=20, others=10)
        async with open_engine(url, config=EngineConfig(loops=False)) as engine:
            counts = (await engine.count_executions())["default"]
            page = await engine.list_executions(execution_kind="listed-3", limit=1000)
        assert counts == {
            "completed": 30,
            "failed": 20,
            "delayed": 20,
            "waiting": 20,
            "active": 10 + LISTED_RUNNING,
        }
        assert len(page.items) == 9 + 1 + LISTED_RUNNING // 10

    with open_databases("postgres", postgres_url) as databases, databases.empty() as url:
        asyncio.run(story(url))
