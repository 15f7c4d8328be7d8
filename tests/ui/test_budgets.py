"""Budgets and quotas: meters, projections, and changes that never undo a colleague's."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.model.statistic import HOUR_MS, MINUTE_MS, Spending
from flowfabric.server.ui.draw.burn import burn_chart
from flowfabric.server.ui.views.budgets import DAY_MS, Meter, burn_of
from tests.support.http import Desk
from tests.support.lab import Lab, scenario
from tests.support.pages import Document, sent, shown
from tests.support.statistics import roll_up

HOSTILE = "<b onclick=x>\u202e'\""
NOW = 1_000 * HOUR_MS


@pytest.fixture
def lab(quick: Lab) -> Lab:
    """In memory: what the operations answer on each store is tested elsewhere."""
    return quick


def text_of(page: Document) -> str:
    return " ".join(" ".join(page.texts).split())


def spent(minutes_ago: int, amount: int) -> Spending:
    at = NOW - minutes_ago * MINUTE_MS
    return Spending(begins_at=at, budget_id="gpt", dimension="tokens", spent=amount)


def meter(**more: Any) -> Meter:
    usual: dict[str, Any] = {"used": 600, "held": 0, "hard": 1_000, "soft": 800}
    return Meter(dimension="tokens", **{**usual, **more})


# --- projections ---------------------------------------------------------------------------------


def test_a_steady_spender_is_projected_within_a_fifth() -> None:
    steady = [spent(ago, 10) for ago in range(60)]
    burn = burn_of(meter(), steady, NOW - DAY_MS, NOW)
    assert burn.empty_at is not None
    true = NOW + 40 * MINUTE_MS
    assert abs(burn.empty_at - true) <= (true - NOW) / 5
    assert burn.points[0] == (NOW - DAY_MS, 0)
    assert burn.points[-1] == (NOW, 600)
    assert [used for _, used in burn.points] == sorted(used for _, used in burn.points)


def test_what_cannot_be_projected_is_said() -> None:
    def verdict(spending: list[Spending], **more: Any) -> str:
        burn = burn_of(meter(**more), spending, NOW - DAY_MS, NOW)
        assert burn.empty_at is None
        return burn.verdict

    assert verdict([spent(ago, 10) for ago in range(9)]).startswith("not enough data")
    assert verdict([]).startswith("not enough data")
    assert verdict([spent(ago, 1) for ago in range(60)], hard=0) == "no hard limit"
    assert verdict([spent(ago, 1) for ago in range(60)], used=1_000) == "used up"
    assert verdict([spent(ago, 10) for ago in range(90, 150)]).startswith("nothing was spent")


def test_a_chart_is_small_and_stays_within_its_box() -> None:
    many = [spent(ago, 3) for ago in range(1_440)]
    markup = burn_chart(burn_of(meter(used=5_000, allowed=10**15), many, NOW - DAY_MS, NOW))
    assert markup.count("<path") <= 6
    assert "nan" not in markup
    assert "inf" not in markup
    assert "tokens: " in markup


# --- pages ---------------------------------------------------------------------------------------


async def made(lab: Lab, name: str = "gpt", **more: Any) -> None:
    words: dict[str, Any] = {"dimensions": ["tokens", "usd"], "hard_limits": [1_000, 0]}
    await lab.engine.create_budget(budget_id=name, **{**words, "soft_limits": [800, 0], **more})


@scenario
async def test_budgets_show_what_is_used_and_which_are_nearly_empty(lab: Lab) -> None:
    desk = Desk(lab.engine)
    page = await shown(desk, "/ui/budgets")
    assert "ff budget create" in text_of(page)
    await made(lab)
    await made(lab, HOSTILE[:9])
    await lab.engine.create_quota_policy(quota_policy_id="calls", max_concurrent=5)
    await lab.engine.report_usage_admin(budget_id="gpt", dimensions=["tokens"], deltas=[950])
    page = await shown(desk, "/ui/budgets")
    assert "Nearly used up: gpt" in text_of(page)
    assert "5 at once" in text_of(page)
    await lab.create()
    assert "budget gpt has used 95 % of its tokens" in text_of(await shown(desk, "/ui"))


@scenario
async def test_a_budget_is_raised_from_what_was_seen_and_never_over_a_colleague(lab: Lab) -> None:
    """Acceptance 16: a collision shows both versions."""
    desk = Desk(lab.engine)
    await made(lab)
    await lab.engine.report_usage_admin(budget_id="gpt", dimensions=["tokens"], deltas=[100])
    await roll_up(lab)
    page = await shown(desk, "/ui/budgets/gpt")
    assert "10 %" in text_of(page)
    fields = {"dimension": "tokens", "hard": "+500", "revision": "0"}
    await sent(desk, "/ui/budgets/gpt/limits", page, **fields)
    status = await lab.engine.get_budget_status(budget_id="gpt")
    assert status.hard_limits["tokens"] == 1_500
    reply = await sent(desk, "/ui/budgets/gpt/limits", page, **{**fields, "hard": "9000"})
    cookie = {"cookie": reply.headers["set-cookie"].partition(";")[0]}
    told = text_of(await shown(desk, "/ui/budgets/gpt", headers=cookie))
    assert "it has tokens 1500" in told
    assert "your change to tokens 9000 was not made" in told
    assert (await lab.engine.get_budget_status(budget_id="gpt")).hard_limits["tokens"] == 1_500
    for wrong in ("", "-5", "many", "1e9", "9" * 19):
        async with lab.unchanged():
            await sent(desk, "/ui/budgets/gpt/limits", page, **{**fields, "hard": wrong})


@scenario
async def test_a_reset_wants_the_name_of_the_budget(lab: Lab) -> None:
    desk = Desk(lab.engine)
    await made(lab)
    await lab.engine.report_usage_admin(budget_id="gpt", dimensions=["tokens"], deltas=[100])
    page = await shown(desk, "/ui/budgets/gpt")
    async with lab.unchanged():
        await sent(desk, "/ui/budgets/gpt/reset", page, name="gpt4")
    await sent(desk, "/ui/budgets/gpt/reset", page, name="gpt")
    assert (await lab.engine.get_budget_status(budget_id="gpt")).usage == {"tokens": 0}
    await shown(desk, "/ui/budgets/nothing", 404)


@scenario
async def test_a_quota_shows_its_fullest_keys_and_finds_others(lab: Lab) -> None:
    desk = Desk(lab.engine)
    await lab.engine.create_quota_policy(
        quota_policy_id="calls", max_concurrent=2, max_requests_per_window=10
    )
    for number, key in enumerate(("acme", HOSTILE, "zoo", "zoo")):
        created = await lab.create(f"kind-{number}")
        await lab.engine.check_admission(
            quota_policy_id="calls", execution_id=created, dimension=key
        )
    page = await shown(desk, "/ui/quotas/calls")
    assert [each.text for each in page.all("b") if each.text in ("acme", "zoo")] == ["zoo", "acme"]
    assert "zoo" not in text_of(await shown(desk, "/ui/quotas/calls?q=ACM"))
    fields = {"max_concurrent": "9", "max_requests_per_window": "0", "window_seconds": "60"}
    await sent(desk, "/ui/quotas/calls/limits", page, revision="0", **fields)
    status = await lab.engine.get_quota_status(quota_policy_id="calls")
    assert (status.policy.active_concurrency_cap, status.policy.max_requests_per_window) == (9, 0)
