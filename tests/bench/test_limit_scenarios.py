"""usage and admission: every key, work that was really done, a floor that writes the same rows."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from benchmarks.scenarios import SCENARIOS, admission, usage
from benchmarks.scenarios.preload import preload_blocked
from benchmarks.scenarios.raw import connect
from benchmarks.scenarios.usage_floor import measure_usage_floor
from benchmarks.tables import render
from flowfabric.assemble import open_engine
from flowfabric.bench.databases import Databases
from flowfabric.bench.main import run
from flowfabric.bench.measurement import Measurement, MeasurementFailed

KEYS = set(Measurement.__struct_fields__)
MACHINE = {"when": "now", "commit": "abc", "uncommitted_changes": False}


def test_usage_is_measured_against_its_floors(databases: Databases) -> None:
    found = usage.measure(databases, 130, rounds=1).to_dict()
    assert set(found) == KEYS
    assert found["ratio_to_floor"] == pytest.approx(
        found["throughput_per_s"] / found["floor_per_s"],
        rel=0.01,
        abs=0.001,  # it is rounded
    )
    assert 0 < found["p50_ms"] <= found["p95_ms"] <= found["p99_ms"]
    assert found["extra"]["with_dedup_key_per_s"] > 0
    assert found["extra"]["floor_of_single_updates_per_s"] > 0
    text = render({"machine": MACHINE, "quick": True, "ours": [found], "peers": []})
    assert f"| {databases.store} | 130 |" in text


def test_every_report_is_answered_and_counted(databases: Databases) -> None:
    with databases.empty() as url:
        assert asyncio.run(usage.usage_round(url, 70)).answers == {"Ok": 70}
        # What was used before does not disturb the count of the next round.
        assert asyncio.run(usage.usage_round(url, 70, keyed=True)).answers == {"Ok": 70}


def test_a_hard_limit_is_met_exactly_by_racing_callers(databases: Databases) -> None:
    usage.check_hard_limit(databases, 101)


def test_a_limit_that_is_not_exact_is_no_figure(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def generous(*_: object, **__: object) -> usage.UsageRound:
        return usage.UsageRound(1.0, 1.0, [], {"Ok": 10})

    monkeypatch.setattr(usage, "usage_round", generous)
    with pytest.raises(MeasurementFailed, match="hard limit"):
        usage.check_hard_limit(databases, 10)


@pytest.mark.parametrize("coalesced", [True, False])
def test_the_floor_of_usage_writes_the_rows_of_the_budget(
    databases: Databases, coalesced: bool
) -> None:
    async def rows(url: str) -> list[tuple[str, int]]:
        database = await connect(url)
        found = await database.fetch("SELECT dimension, used FROM ff_budget_usage ORDER BY 1")
        await database.close()
        return [(str(row[0]), int(row[1])) for row in found]

    with databases.empty() as url:
        asyncio.run(usage.usage_round(url, 1))
        asyncio.run(measure_usage_floor(url, usage.BUDGET, 9, 4, coalesced=coalesced))
        assert asyncio.run(rows(url)) == [("cost_micros", 30 + 9), ("input_tokens", 7 + 9)]


def test_admission_is_measured_against_plain_claims(databases: Databases) -> None:
    found = admission.measure(databases, 120, rounds=1, blocked=30).to_dict()
    assert set(found) == KEYS
    assert found["ratio_to_floor"] == pytest.approx(
        found["throughput_per_s"] / found["floor_per_s"],
        rel=0.01,
        abs=0.001,  # it is rounded
    )
    extra = found["extra"]
    assert set(extra["claim_ratio"]) == {"limit_500", "limit_100"}
    assert extra["create_ratio"] > 0
    assert extra["complete_ratio"] > 0
    assert extra["beside_blocked"]["blocked"] == 30
    assert extra["beside_blocked"]["claim_ratio"] > 0
    text = render({"machine": MACHINE, "quick": True, "ours": [found], "peers": []})
    assert f"| {databases.store} | plain, beside 30 blocked |" in text


def test_the_blocked_are_sound_and_come_back_when_there_is_room(databases: Databases) -> None:
    async def look(url: str) -> None:
        async with open_engine(url) as engine:
            assert (await engine.count_executions())["default"] == {"rate_limited": 25}
            assert (await engine.doctor()).problems == ()
            await engine.update_budget(
                budget_id="bench-exhausted", hard_limits={"cost_micros": 100}
            )
            assert (await engine.count_executions())["default"] == {"waiting": 25}

    with databases.empty() as url:
        asyncio.run(preload_blocked(url, 25))
        asyncio.run(look(url))


@pytest.mark.parametrize("scenario", ["usage", "admission"])
def test_the_command_knows_the_scenarios(
    scenario: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(usage, "ROUNDS", 1)
    monkeypatch.setattr(admission, "_beside_blocked", lambda *_: {})
    url = f"sqlite:///{tmp_path / 'mine.db'}"
    assert run(scenario, "sqlite", 70, url, as_json=True, among=SCENARIOS) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed) == KEYS
    assert printed["scenario"] == scenario
