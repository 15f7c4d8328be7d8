"""schedules, sleepers and order: the work is really done, and every figure is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowfabric.bench import order, schedules, sleepers
from flowfabric.bench.databases import Databases
from tests.bench.test_bench import KEYS

if TYPE_CHECKING:
    import pytest


def test_due_schedules_are_measured_and_counted(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "_AHEAD_S", 1)
    found = schedules.measure(databases, 30, due=10, rounds=1, idle_s=0.1)
    assert set(found.to_dict()) == KEYS
    assert found.extra["last_run_created_ms_after_its_tick"] >= 0
    assert found.extra["all_seen_ms_after_their_tick"] > 0
    assert found.extra["create_schedule_per_s"] > 0


def test_sleepers_go_on(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_REST_S", 0.0), ("_AHEAD_S", 1.0)):
        monkeypatch.setattr(sleepers, name, value)
    found = sleepers.measure(databases, 40, idle_s=0.1)
    assert (found.extra["asleep"], found.extra["due_at_once"]) == (36, 4)
    assert found.extra["all_went_on_s"] > 0


def test_keys_hooks_lines_and_operations_are_compared(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("BATCH", 20), ("LINES", 5), ("_CLAIMED", 10)):
        monkeypatch.setattr(order, name, value)
    extra = order.measure(databases, 60, laps=1).extra
    for form in ("serial", "unique", "hooks"):
        assert extra[f"{form}_to_plain"] > 0
        assert extra[f"{form}_to_plain_one_by_one"] > 0
    assert (extra["beside_lines"]["waiting"], extra["beside_lines"]["lines"]) == (55, 5)
    assert extra["beside_operation"]["matched"] == 60
    assert extra["beside_lines"]["claim_ratio"] > 0
