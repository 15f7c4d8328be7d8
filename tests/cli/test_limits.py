"""budget, quota, lanes set, and what why, show and ps say about limits."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from flowfabric.cli.exits import Exit
from flowfabric.cli.program import main, parse
from flowfabric.cli.show.bars import Gauge, bar
from flowfabric.engine.engine import Engine
from flowfabric.model.budget import EnforcementMode, HardAction, SoftAction
from flowfabric.model.results import Claimed
from tests.cli.desk import Desk


def report(desk: Desk, **amounts: int) -> None:
    """Somebody used something of the budget gpt."""
    desk.given(
        lambda engine: engine.report_usage_admin(
            budget_id="gpt", dimensions=list(amounts), deltas=list(amounts.values())
        )
    )


def claims(desk: Desk, limit: int = 10) -> list[Claimed]:
    async def work(engine: Engine) -> list[Claimed]:
        return await engine.claim(
            lanes=["default"], worker_id="ada", worker_instance_id="ada-1", limit=limit
        )

    return desk.given(work)


# --- bars -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gauge", "drawn"),
    [
        (Gauge(used=0, hard=100), "[..........]   0%"),
        (Gauge(used=1, hard=100), "[#.........]   1%"),
        (Gauge(used=99, hard=100), "[#########.]  99%"),
        (Gauge(used=100, hard=100), "[##########] 100%"),
        (Gauge(used=250, hard=100), "[##########] 250%"),
        (Gauge(used=30, held=20, hard=100), "[###==.....]  50%"),
        (Gauge(used=30, held=1, hard=100), "[##=.......]  31%"),
        (Gauge(used=0, held=100, hard=100), "[==========] 100%"),
        (Gauge(used=20, hard=100, soft=80), "[##......|.]  20%"),
        (Gauge(used=95, hard=100, soft=80), "[########|.]  95%"),
        (Gauge(used=40, soft=80), "[#####.....]  50%"),
        (Gauge(used=40, hard=100, soft=100), "[####......]  40%"),
        (Gauge(used=40), ""),
    ],
)
def test_a_bar_shows_used_held_free_and_the_soft_limit(gauge: Gauge, drawn: str) -> None:
    assert bar(gauge, cells=10) == drawn


def test_a_bar_has_the_colour_of_its_trouble() -> None:
    assert Gauge(used=1, hard=10, soft=5).style == "green"
    assert Gauge(used=6, hard=10, soft=5).style == "yellow"
    assert Gauge(used=6, held=4, hard=10, soft=5).style == "red"


def test_a_terminal_gets_blocks_and_colours(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert desk.ff("budget", "create", "gpt", "--hard", "tokens=100") == 0
    report(desk, tokens=100)

    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert main(["budget", "ls", "--url", desk.url]) == 0
    assert "\x1b[31m[████████████████████] 100%" in screen.getvalue()


# --- budgets --------------------------------------------------------------------------------------


def test_the_words_of_the_command_line_are_those_of_the_model() -> None:
    for option, known in (
        ("--on-hard", HardAction),
        ("--on-soft", SoftAction),
        ("--mode", EnforcementMode),
    ):
        for word in known:
            assert parse(["budget", "set", "gpt", option, word.value]).command == "set"


def test_a_budget_is_created_listed_shown_set_raised_and_reset(desk: Desk) -> None:
    words = ("--hard", "tokens=1_200", "--hard", "cost=15000", "--soft", "tokens=800")
    assert desk.ff("budget", "create", "gpt", *words, "--on-hard", "deny", "--every", "1d") == 0
    assert "gpt: created" in desk.err
    assert desk.ff("budget", "create", "gpt", *words, "--on-hard", "deny", "--every", "1d") == 0
    assert "exists already" in desk.err
    report(desk, tokens=900)
    assert desk.ff("budget", "ls") == 0
    header, cost, tokens = desk.out.splitlines()
    assert re.split(r" {2,}", header) == [
        *("BUDGET", "DIMENSION", "USAGE", "USED", "HELD", "SOFT", "HARD", "ON HARD", "RESETS")
    ]
    assert "[....................]   0%" in cost
    assert re.split(r" {2,}", tokens)[:2] == ["gpt", "tokens"]
    assert "[#############|#.....]  75%" in tokens
    assert desk.ff("budget", "show", "gpt") == 0
    assert desk.out.splitlines()[0] == "gpt  over its soft limit"
    assert "deny" in desk.out
    assert "every 1d" in desk.out
    assert "1 soft" in desk.out

    changed = desk.json("budget", "set", "gpt", "--soft", "tokens=0", "--on-hard", "block")
    assert changed["policy"]["soft_limits"]["tokens"] == 0
    assert changed["policy"]["on_hard_limit"] == "block"
    raised = desk.json("budget", "raise", "gpt", "tokens=2000", "cost=+500")
    assert raised["policy"]["hard_limits"] == {"cost": 15500, "tokens": 2000}
    assert raised["usage"] == {"tokens": 900}
    assert desk.json("budget", "reset", "gpt")["usage"] == {"tokens": 0}
    (listed,) = desk.json("budget", "ls")
    assert listed["reset_count"] == 1
    assert desk.json("budget") == [listed]
    assert desk.json("budget", "show", "gpt")["budget_id"] == "gpt"


def test_a_budget_may_have_a_scope(desk: Desk) -> None:
    assert desk.ff("budget", "create", "gpu", "--hard", "ms=10", "--scope", "lane:gpu") == 0
    assert "lane gpu" in desk.out
    execution_id = desk.submit("greet", "--lane", "gpu")
    assert desk.json("show", execution_id)["bounds"]["budget_ids"] == ["gpu"]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("create", "b", "--hard", "tokens"), Exit.USAGE, "dimension=number"),
        (("create", "b", "--hard", "tokens=-1"), Exit.USAGE, "below zero"),
        (("create", "b", "--hard", "tokens=many"), Exit.USAGE, "whole number"),
        (("create", "b", "--hard", "a=1", "--hard", "a=2"), Exit.USAGE, "twice"),
        (("create", "b", "--on-hard", "blok"), Exit.USAGE, "did you mean block?"),
        (("create", "b", "--scope", "gpu"), Exit.USAGE, "lane:…"),
        (("create", "b", "--every", "10ms"), Exit.USAGE, "reset_interval_ms"),
        (("create",), Exit.USAGE, "NAME"),
        (("create", "gpt", "--hard", "tokens=11"), Exit.REFUSED, "exists with another policy"),
        (("show", "none"), Exit.NOT_FOUND, "ff: no budget none"),
        (("set", "none", "--hard", "a=1"), Exit.NOT_FOUND, "ff: no budget none"),
        (("set", "gpt"), Exit.USAGE, "nothing to change"),
        (("reset", "none"), Exit.NOT_FOUND, "ff: no budget none"),
        (("raise", "gpt", "tokens=9"), Exit.USAGE, "below the present 10"),
        (("raise", "gpt", "cost=9"), Exit.USAGE, "no such limit"),
        (("raise", "gpt"), Exit.USAGE, "DIMENSION=N"),
        (("rise", "gpt"), Exit.USAGE, "did you mean raise?"),
    ],
)
def test_mistakes_about_budgets_are_told_and_change_nothing(
    desk: Desk, words: tuple[str, ...], code: Exit, told: str
) -> None:
    assert desk.ff("budget", "create", "gpt", "--hard", "tokens=10") == 0
    before = desk.json("budget")
    assert desk.ff("budget", *words) == code
    assert told in desk.err
    assert desk.json("budget") == before


def test_looking_at_limits_makes_no_database(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = Desk(tmp_path, capsys)  # a server has made one
    for words in (("budget",), ("budget", "show", "b"), ("quota", "ls"), ("quota", "show", "q")):
        assert desk.ff(*words) == Exit.NOT_FOUND
    assert not desk.path.exists()
    assert desk.ff("quota", "create", "q", "--at-once", "1") == 0
    assert desk.ff("budget") == 0
    assert "no budgets yet" in desk.err


# --- quotas ---------------------------------------------------------------------------------------


def test_a_quota_is_created_listed_shown_and_set(desk: Desk) -> None:
    words = ("--starts", "3", "--per", "10s", "--at-once", "2", "--jitter", "250ms")
    assert desk.ff("quota", "create", "crawl", *words) == 0
    assert "3 per 10s" in desk.out
    assert desk.ff("quota", "create", "crawl", *words) == 0
    assert "exists already" in desk.err
    for _ in range(3):
        desk.submit("greet", "--quota", "crawl", "--concurrency-key", "ada")
    desk.submit("greet", "--quota", "crawl")
    assert len(claims(desk)) == 3
    assert desk.ff("quota", "show", "crawl") == 0
    assert "up to 250ms" in desk.out
    rows = {line.split()[0]: line for line in desk.out.splitlines()[-2:]}
    assert rows["ada"].count("[####################] 100%") == 1
    assert "[#############.......]  66%" in rows["ada"]
    assert "[##########..........]  50%" in rows["(no"]
    assert desk.ff("quota") == 0
    assert desk.out.splitlines()[1].split() == [
        "crawl",
        "3",
        "per",
        "10s",
        "2",
        "up",
        "to",
        "250ms",
    ]
    changed = desk.json("quota", "set", "crawl", "--at-once", "0", "--per", "1m")
    assert changed["policy"]["active_concurrency_cap"] == 0
    assert changed["policy"]["requests_per_window_seconds"] == 60
    assert desk.json("quota", "show", "crawl")["gates"][0]["dimension"] == "ada"
    assert desk.ff("quota", "ls") == 0
    assert "any" in desk.out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("create", "q", "--per", "0s"), Exit.USAGE, "window_seconds"),
        (("create", "q", "--per", "1500ms"), Exit.USAGE, "whole seconds"),
        (("create", "q", "--starts", "-3"), Exit.USAGE, "below zero"),
        (("create", "crawl", "--at-once", "9"), Exit.REFUSED, "crawl"),
        (("show", "none"), Exit.NOT_FOUND, "none"),
        (("set", "none", "--at-once", "1"), Exit.NOT_FOUND, "none"),
        (("set", "crawl"), Exit.USAGE, "nothing to change"),
    ],
)
def test_mistakes_about_quotas_are_told(
    desk: Desk, words: tuple[str, ...], code: Exit, told: str
) -> None:
    assert desk.ff("quota", "create", "crawl", "--at-once", "1") == 0
    assert desk.ff("quota", *words) == code
    assert told in desk.err


# --- executions -----------------------------------------------------------------------------------


def test_submit_attaches_limits_and_names_what_is_missing(desk: Desk) -> None:
    assert desk.ff("budget", "create", "gpt", "--hard", "tokens=10") == 0
    assert desk.ff("quota", "create", "crawl", "--at-once", "1") == 0
    words = ("--budget", "gpt", "--quota", "crawl", "--concurrency-key", "ada")
    execution_id = desk.submit("greet", *words)
    assert desk.json("show", execution_id)["bounds"] == {
        "budget_ids": ["gpt"],
        "quota_policy_id": "crawl",
        "concurrency_key": "ada",
    }
    assert desk.ff("show", execution_id) == 0
    assert "budget gpt, quota crawl, key ada" in desk.out
    for option in ("--budget", "--quota"):
        assert desk.ff("submit", "greet", option, "none") == Exit.NOT_FOUND
        assert "none" in desk.err


def test_an_execution_blocked_by_a_budget_says_so_everywhere(desk: Desk) -> None:
    assert desk.ff("budget", "create", "gpt", "--hard", "tokens=10") == 0
    assert desk.ff("budget", "create", "idle", "--hard", "tokens=10") == 0
    report(desk, tokens=10)
    execution_id = desk.submit("greet", "--budget", "gpt", "--budget", "idle")
    assert claims(desk) == []
    assert desk.ff("ps") == 0
    assert "rate_limited" in desk.out
    assert "budget gpt: tokens 10/10" in desk.out
    assert desk.ff("show", execution_id) == 0
    assert re.search(r"waits for +budget gpt: tokens 10/10", desk.out)
    assert desk.ff("why", execution_id) == 0
    assert "ff budget raise gpt tokens=…" in desk.out
    rows = [line.split() for line in desk.out.splitlines() if line.startswith("budget ")]
    assert rows == [
        ["budget", "gpt", "tokens", "10/10", "yes"],
        ["budget", "idle", "tokens", "0/10", "no"],
    ]
    limits = desk.json("why", execution_id)["limits"]
    assert [limit["keeps_back"] for limit in limits] == [True, False]
    assert desk.ff("budget", "raise", "gpt", "tokens=+1") == 0
    assert [claimed.execution_id for claimed in claims(desk)] == [execution_id]


def test_an_execution_blocked_by_a_quota_says_when_it_may_start(desk: Desk) -> None:
    assert desk.ff("quota", "create", "crawl", "--starts", "1", "--per", "1h") == 0
    desk.submit("greet", "--quota", "crawl")
    second = desk.submit("greet", "--quota", "crawl")
    assert len(claims(desk)) == 1
    assert desk.ff("ps", "--state", "rate_limited") == 0
    assert "1/1 starts in 3600 s" in desk.out
    assert ", in 59m" in desk.out
    assert desk.ff("why", second) == 0
    (row,) = [line for line in desk.out.splitlines() if line.startswith("quota crawl")]
    assert "1/1 starts in 3600 s" in row
    assert "yes" in row
    assert "in 59m" in row


# --- lanes and workers ----------------------------------------------------------------------------


def test_a_lane_gets_weight_aging_and_limits(desk: Desk) -> None:
    assert desk.ff("budget", "create", "gpt", "--hard", "tokens=10") == 0
    assert desk.ff("quota", "create", "crawl", "--at-once", "1") == 0
    words = ("--weight", "3", "--aging", "1m", "--budget", "gpt", "--quota", "crawl")
    assert desk.ff("lanes", "set", "video", *words) == 0
    assert desk.out.strip() == "lane video: weight 3, aging 1m, budget gpt, quota crawl"
    execution_id = desk.submit("greet", "--lane", "video")
    assert desk.json("show", execution_id)["bounds"]["budget_ids"] == ["gpt"]
    assert desk.ff("lanes") == 0
    assert "weight 3, aging 1m, budget gpt, quota crawl" in desk.out
    cleared = desk.json(
        "lanes", "set", "video", "--no-budget", "--no-quota", "--aging", "0", "--weight", "1"
    )
    assert cleared["bounds"] == {
        "budget_ids": [],
        "quota_policy_id": None,
        "concurrency_key": None,
    }
    assert desk.ff("lanes") == 0
    assert "SETTINGS" not in desk.out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("set",), Exit.USAGE, "which lane"),
        (("set", "video"), Exit.USAGE, "nothing to set"),
        (("set", "video", "--budget", "a", "--no-budget"), Exit.USAGE, "contradict"),
        (("pause", "video", "--weight", "2"), Exit.USAGE, "--weight belongs to ff lanes set"),
        (("set", "video", "--budget", "none"), Exit.NOT_FOUND, "none"),
        (("set", "video", "--weight", "0"), Exit.USAGE, "at least 1"),
    ],
)
def test_mistakes_about_lanes_are_told(
    desk: Desk, words: tuple[str, ...], code: Exit, told: str
) -> None:
    desk.submit("greet")
    assert desk.ff("lanes", *words) == code
    assert told in desk.err


# --- what was spent -------------------------------------------------------------------------------


def test_spend_of_one_of_a_flow_and_of_kinds(desk: Desk) -> None:
    async def work(engine: Engine) -> tuple[str, str]:
        flow = await engine.create_flow()
        made = await engine.create_execution(execution_kind="greet", colocate_with=flow.flow_id)
        await engine.add_execution_to_flow(flow_id=flow.flow_id, execution_id=made.execution_id)
        await engine.record_spend(
            budget_id="gpt", execution_id=made.execution_id, deltas={"tokens": 12}
        )
        return made.execution_id, flow.flow_id

    execution_id, flow_id = desk.given(work)
    for wanted in ([execution_id], ["--flow", flow_id]):
        assert desk.ff("spend", *wanted) == 0
        assert re.search(r"gpt +tokens +12", desk.out)
        line = {"budget_id": "gpt", "dimension": "tokens", "spent": 12}
        assert desk.json("spend", *wanted) == {"spend": [line]}
    for wanted in ([], ["--kind", "greet"]):
        assert desk.ff("spend", *wanted) == 0
        assert re.search(r"greet +gpt +tokens +12", desk.out)
    assert desk.ff("spend", "--kind", "other") == 0
    assert "nothing was spent yet" in desk.err
    assert desk.ff("spend", execution_id, "--kind", "greet") == Exit.USAGE
    assert desk.ff("spend", "{fp:0}:01890000-0000-7000-8000-000000000001") == Exit.NOT_FOUND


def test_lanes_set_weighs_tenants(desk: Desk) -> None:
    desk.submit()
    weigh = ["lanes", "set", "gpu", "--tenant-weight"]
    assert desk.ff(*weigh, "acme=3", "--tenant-weight", "bolt=2") == 0
    assert "lane gpu: acme 3, bolt 2" in desk.out
    assert desk.json(*weigh, "bolt=1")["tenant_weights"] == {"acme": 3}
    assert desk.ff("lanes") == 0
    assert "acme 3" in desk.out
    for wrong in ("acme", "acme=x", "=3", "acme=0"):
        assert desk.ff(*weigh, wrong) == Exit.USAGE
    assert desk.ff(*weigh, "a=2", "--tenant-weight", "a=3") == Exit.USAGE


def test_submits_with_a_fair_key(desk: Desk) -> None:
    first = desk.submit("greet", "--fair", "acme")
    assert desk.json("show", first)["fair_key"] == "acme"
    desk.submit("greet", "--fair", "acme")
    assert desk.ff("why", first) == 0
    assert "acme; 0 with fair keys before it" in desk.out
    assert desk.ff("lanes", "set", "default", "--fair-weight", "acme=3") == 0
    assert "fair acme 3" in desk.out
