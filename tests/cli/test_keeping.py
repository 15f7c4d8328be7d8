"""db, doctor, workers, version and bench: the place itself."""

from __future__ import annotations

import sqlite3
import sys
import types
from contextlib import closing

import pytest

import benchmarks.scenarios
from flowfabric.bench.main import SCENARIOS
from flowfabric.cli import main
from flowfabric.cli.exits import Exit
from flowfabric.engine.engine import Engine
from tests.cli.desk import Desk


def test_db_migrate_makes_a_database_and_says_what_it_did(desk: Desk) -> None:
    assert desk.ff("db", "migrate") == Exit.OK
    assert "applied " in desk.out
    assert desk.path.exists()
    assert desk.json("db", "migrate")["applied"] == []


def test_db_check_compares_the_schema(desk: Desk) -> None:
    desk.ff("db", "migrate")
    checked = desk.json("db", "check")
    assert checked["up_to_date"] is True
    assert all(row["applied_at"] for row in checked["migrations"])
    assert desk.ff("db", "check") == Exit.OK


def test_db_check_finds_an_empty_database(desk: Desk) -> None:
    sqlite3.connect(desk.path).execute("create table unrelated (x)").connection.close()
    assert desk.json("db", "check", code=Exit.FAILED)["up_to_date"] is False
    assert desk.ff("db", "check") == Exit.FAILED
    assert "ff db migrate" in desk.err


def test_a_database_without_our_schema_is_refused_with_what_to_do(desk: Desk) -> None:
    sqlite3.connect(desk.path).execute("create table unrelated (x)").connection.close()
    assert desk.ff("ps") == Exit.REFUSED
    assert "ff db migrate" in desk.err
    diagnosed = desk.json("doctor", code=Exit.FAILED)
    assert diagnosed["problems"][0]["code"] == "schema_mismatch"


def test_db_sql_prints_the_schema_and_touches_nothing(desk: Desk) -> None:
    assert desk.ff("db", "sql") == Exit.OK
    assert "ff_exec_core" in desk.out
    assert not desk.path.exists()
    assert "ff_exec_core" in desk.json("db", "sql")["sql"]


def test_db_sql_prints_the_table_of_receipts(desk: Desk) -> None:
    assert desk.ff("db", "sql", "--receipts") == Exit.OK
    made = sqlite3.connect(":memory:").execute(desk.out).connection
    made.execute(
        "INSERT INTO ff_receipt (receipt_key, execution_id, step, result) VALUES (1,2,3,4)"
    )
    made.close()
    assert not desk.path.exists()
    other = desk.json("db", "sql", "--receipts", "--dialect", "postgres")["sql"]
    assert "timestamptz" in other
    for wrong in (("check", "--receipts"), ("sql", "--dialect", "sqlite")):
        assert desk.ff("db", *wrong) == Exit.USAGE
        assert "is for ff db sql" in desk.err


def test_doctor_finds_a_healthy_database_healthy(desk: Desk) -> None:
    desk.completed()
    assert desk.ff("doctor") == Exit.OK
    assert "healthy" in desk.out
    assert desk.json("doctor")["problems"] == []


def test_doctor_says_where_what_and_what_to_do_in_eighty_columns(desk: Desk) -> None:
    for _ in range(12):
        desk.submit()
    with sqlite3.connect(desk.path) as connection:
        connection.execute("UPDATE ff_exec_core SET started_at = -7")
        connection.execute("DROP INDEX ff_exec_body_created")
    assert desk.ff("doctor") == Exit.FAILED
    lines = desk.out.splitlines()
    found = lines[lines.index("") :]  # behind the facts, of which a path may be long
    assert max(map(len, found)) <= 80
    text = " ".join(" ".join(found).split())
    assert "corrupt (12)" in text
    assert "started_at: -7 is not between 0 and" in text
    assert "and 2 more: --json lists all" in text
    assert "index ff_exec_body.ff_exec_body_created is missing" in text
    assert "→ run `ff db migrate`" in text
    report = desk.json("doctor", code=Exit.FAILED)
    assert not report["healthy"]
    assert sum(each["code"] == "corrupt" for each in report["problems"]) == 12
    assert all(each["advice"] for each in report["problems"])


def test_doctor_repairs_what_the_rows_prove(desk: Desk) -> None:
    desk.completed()
    assert desk.ff("quota", "create", "q", "--at-once", "2") == Exit.OK
    assert desk.ff("budget", "create", "b", "--hard", "tokens=9") == Exit.OK
    with closing(sqlite3.connect(desk.path)) as file:
        file.execute(
            "INSERT INTO ff_budget_usage (budget_id, dimension, used, held, updated_at) "
            "VALUES ('b', 'tokens', 0, 4, 1)"
        )
        file.commit()
    assert desk.ff("doctor") == Exit.FAILED
    assert "ff doctor --repair" in desk.out
    assert desk.ff("doctor", "--repair", "--actor", "ann") == Exit.OK
    assert "repaired (1)" in desk.out
    assert "held tokens: 4 → 0" in desk.out
    with closing(sqlite3.connect(desk.path)) as file:
        told = "SELECT actor FROM ff_operator_event WHERE event_type = 'counters_repaired'"
        assert file.execute(told).fetchall() == [("ann",)]
    assert desk.json("doctor", "--repair")["repaired"] == []
    assert "repaired" not in desk.json("doctor")


def test_doctor_reports_how_the_file_is_doing(desk: Desk) -> None:
    desk.completed()
    facts = desk.json("doctor")["facts"]
    assert facts["bytes"] > 0
    assert {"free_bytes", "wal_bytes", "overdue_ms", "looked_at"} <= facts.keys()
    assert desk.ff("doctor") == Exit.OK
    assert "KiB" in desk.out


def test_doctor_asks_for_loops_when_nothing_moves_what_is_due(desk: Desk) -> None:
    """It sees what the loops of other processes leave undone, and runs none of its own."""
    late = desk.submit("greet", "--delay", "1h")
    with sqlite3.connect(desk.path) as connection:
        connection.execute("UPDATE ff_exec_core SET eligible_at = 1, due_at = 1")
    problems = desk.json("doctor", code=Exit.FAILED)["problems"]
    assert {"overdue": late} == {
        e["code"]: e["subject"] for e in problems if e["code"] == "overdue"
    }
    (asked,) = [each["detail"] for each in problems if each["code"] == "loops"]
    assert asked.startswith("1 record is overdue by more than 60 s: is any ")


def test_a_quick_doctor_leaves_out_what_reads_every_row(desk: Desk) -> None:
    desk.completed()
    assert "looked_at" not in desk.json("doctor", "--quick")["facts"]
    with sqlite3.connect(desk.path) as connection:
        connection.execute("DROP INDEX ff_exec_body_created")
    found = desk.json("doctor", "--quick", code=Exit.FAILED)
    (problem,) = found["problems"]
    assert problem["subject"] == "index ff_exec_body.ff_exec_body_created"


def test_workers_lists_live_workers(desk: Desk) -> None:
    desk.submit()
    assert desk.ff("workers") == Exit.OK
    assert "ff worker MODULE:APP" in desk.err

    async def register(engine: Engine) -> None:
        await engine.register_worker(
            worker_id="ada",
            worker_instance_id="ada-1",
            lanes=["default"],
            capabilities=["gpu"],
            liveness_ttl_ms=60_000,
        )

    desk.given(register)
    assert desk.ff("workers") == Exit.OK
    assert "ada" in desk.out
    assert "gpu" in desk.out
    assert desk.json("workers")[0]["lanes"] == ["default"]


def test_version_names_the_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == Exit.OK
    assert sqlite3.sqlite_version in capsys.readouterr().out


def test_bench_hands_over_to_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    stand_in = types.ModuleType("flowfabric.bench.main")
    stand_in.__dict__["run"] = lambda *words, **options: calls.append((words, options))
    monkeypatch.setitem(sys.modules, "flowfabric.bench", types.ModuleType("flowfabric.bench"))
    monkeypatch.setitem(sys.modules, "flowfabric.bench.main", stand_in)
    assert main(["bench", "cycle", "--store", "sqlite", "--n", "10", "--json"]) == Exit.OK
    assert calls == [(("cycle", "sqlite", 10, None), {"as_json": True})]


@pytest.mark.parametrize("scenario", sorted({*benchmarks.scenarios.SCENARIOS} - {*SCENARIOS}))
def test_a_scenario_of_the_report_says_where_it_is(
    scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", scenario]) == Exit.USAGE
    told = capsys.readouterr().err
    assert "bin/bench" in told
    assert f"python -m benchmarks.scenarios {scenario}" in told


def test_an_unreachable_store_exits_with_five_and_hides_the_password(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("asyncpg")
    assert main(["ps", "--url", "postgresql://ada:hunter2@127.0.0.1:1/none"]) == Exit.UNAVAILABLE
    captured = capsys.readouterr()
    assert "hunter2" not in captured.out + captured.err
    assert captured.err.count("\n") == 1


def test_an_unknown_kind_of_url_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ps", "--url", "mongodb://somewhere"]) == Exit.USAGE
    assert "mongodb" in capsys.readouterr().err


def test_a_file_that_is_no_database_is_reported_in_one_line(desk: Desk) -> None:
    desk.path.write_text("this is not a database " * 100)
    assert desk.ff("ps") in (Exit.REFUSED, Exit.UNAVAILABLE, Exit.USAGE)
    assert desk.err.count("\n") == 1


def test_memory_serves_commands_that_need_nothing_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor", "--url", "memory://", "--json"]) == Exit.OK
    assert '"healthy": true' in capsys.readouterr().out


def test_the_environment_names_the_store(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.submit()
    monkeypatch.setenv("FLOWFABRIC_URL", desk.url)
    assert main(["ps"]) == Exit.OK
    monkeypatch.setenv("FLOWFABRIC_URL", desk.url + ".missing")
    assert main(["ps"]) == Exit.NOT_FOUND
