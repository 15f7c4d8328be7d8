"""Overview, lanes, workers and schedules: what stands, and what is done about it."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.model.failure import FailureGroup
from flowfabric.model.gauges import Gauges, LaneGauge
from flowfabric.model.statistic import HOUR_MS, MINUTE_MS, Statistic
from flowfabric.server.ui.draw.spark import minute_chart, spark
from flowfabric.server.ui.showing import iso
from flowfabric.server.ui.views.curves import MINUTES, by_lane, hour_of
from flowfabric.server.ui.views.overview import overview_of
from tests.support.http import Desk
from tests.support.lab import LANE, Lab, scenario
from tests.support.pages import Document, sent, shown
from tests.support.schedules import HOURLY, start
from tests.support.statistics import roll_up
from tests.ui.asking import token

HOSTILE = "<img src=x onerror=alert(1)>\u202e\"'{{7*7}}"


@pytest.fixture
def lab(quick: Lab) -> Lab:
    """In memory: what the operations answer on each store is tested elsewhere."""
    return quick


def text_of(page: Document) -> str:
    return " ".join(" ".join(page.texts).split())


# --- pure ----------------------------------------------------------------------------------------


def statistic(at: int, **more: Any) -> Statistic:
    words = {"namespace": "default", "lane_id": "mail", "execution_kind": "brief", **more}
    return Statistic(begins_at=at, **words)


def test_an_hour_has_every_minute_and_nothing_else() -> None:
    now = 100 * HOUR_MS + 17
    counted = [
        statistic(now - now % MINUTE_MS, succeeded=2, failed=1, expired=1, cancelled=3),
        statistic(now - HOUR_MS - MINUTE_MS, succeeded=50),  # too old
    ]
    minutes = hour_of(counted, now)
    assert len(minutes) == MINUTES
    assert [each.begins_at for each in minutes] == sorted(each.begins_at for each in minutes)
    assert (minutes[-1].succeeded, minutes[-1].failed, minutes[-1].other) == (2, 2, 3)
    assert sum(each.ended for each in minutes) == 7
    assert by_lane(counted, now)["mail"].total == 7


def test_a_chart_is_bounded_and_says_in_words_what_it_draws() -> None:
    assert "M" not in spark([0, 0], "nothing").partition("<path")[2].partition("/>")[0]
    many = overview_of(
        [statistic(minute * MINUTE_MS, succeeded=9, failed=2, skipped=1) for minute in range(60)],
        [],
        None,
        approvals=0,
        asks=(),
        budgets=(),
        is_new=False,
        now=59 * MINUTE_MS,
        complete_until=0,
        is_whole=True,
    )
    markup = minute_chart(many.columns)
    assert markup.count("<rect") + markup.count("<a ") <= 300
    assert markup.count("<title>") == MINUTES
    assert "9 completed, 2 failed" in markup


def test_what_needs_a_person_is_said_first_and_nothing_else_is() -> None:
    def seen(**more: Any) -> Any:
        words: dict[str, Any] = {
            "approvals": 0,
            "asks": (),
            "budgets": (),
            "is_new": False,
            "now": 10 * HOUR_MS,
            "complete_until": 0,
            "is_whole": True,
        }
        gauges = more.pop("gauges", None)
        return overview_of(more.pop("statistics", []), [], gauges, **{**words, **more})

    assert seen().sentence == "All right."
    assert seen(approvals=1).sentence == "1 thing needs you."
    assert seen(approvals=2).alerts[0].text == "2 approvals wait for people"
    group = FailureGroup(
        namespace="default",
        fingerprint="f",
        category="error",
        message="RateLimitError: 429",
        exception=None,
        frame=None,
        line=None,
        execution_kinds=("brief",),
        versions=(),
        failed=5,
        retried=0,
        first_seen_at=0,
        last_seen_at=0,
    )
    told = seen(groups=[group]).alerts[0]
    assert told.text == "brief: 5 failures in 24 h, RateLimitError: 429"
    assert told.href == "/ui/failures/f?namespace=default"
    gauges = Gauges(at=0, lanes=(), workers={}, unroutable={"gpu": 17}, overdue=0, counted_until=0)
    assert seen(gauges=gauges).alerts[0].text == "17 need gpu, which no worker offers"
    waiting = LaneGauge(lane_id="mail", ready=3, ready_since=0)
    assert seen(gauges=Gauges(at=0, lanes=(waiting,), workers={}, unroutable={}, overdue=0,
                              counted_until=0)).tiles[1].value == "3"  # fmt: skip


# --- pages ---------------------------------------------------------------------------------------


@scenario
async def test_a_store_without_work_shows_the_first_steps(lab: Lab) -> None:
    desk = Desk(lab.engine)
    page = await shown(desk, "/ui")
    assert "Nothing was submitted yet." in text_of(page)
    assert "ff worker app:ff" in text_of(page)
    await lab.create()
    assert "All right." in text_of(await shown(desk, "/ui"))


@scenario
async def test_the_first_page_tells_what_stands_and_what_ended(lab: Lab) -> None:
    desk = Desk(lab.engine)
    await lab.completed()
    await lab.create(lane_id="mail")
    await lab.create(policy={"routing_requirements": {"required_capabilities": ["<b>gpu</b>"]}})
    await lab.engine.pause_lane(lane_id="mail", reason=HOSTILE)
    await roll_up(lab)
    page = await shown(desk, "/ui")
    assert "need you." in text_of(page)
    assert "lane mail is paused" in text_of(page)
    assert "which no worker offers" in text_of(page)
    assert "<img" not in [tag for tag, _ in page.elements]
    assert [each.text for each in page.all("h2")][:3] == ["Needs you", "Last hour", "Lanes"]


@scenario
async def test_a_token_that_may_not_read_is_led_to_what_it_may(lab: Lab) -> None:
    made = await lab.engine.create_access_token(name="x", scopes=("worker",))
    bearer = {"Authorization": f"Bearer {made.token.reveal()}"}
    await shown(Desk(lab.engine), "/ui", 403, headers=bearer)
    reply = await Desk(lab.engine).get("/ui")
    assert (reply.status, reply.headers["location"]) == (303, "/ui/login?next=/ui")


@scenario
async def test_a_lane_is_switched_and_set_by_forms(lab: Lab) -> None:
    desk = Desk(lab.engine)
    await lab.create(lane_id="mail")
    page = await shown(desk, "/ui/lanes")
    reply = await sent(desk, "/ui/lanes/mail/state", page, state="paused", reason="deploy")
    assert (reply.status, reply.headers["location"]) == (303, "/ui/lanes")
    (lane,) = (await lab.engine.list_lanes(with_counts=False)).items
    assert (lane.lane_state, lane.reason) == ("paused", "deploy")
    page = await shown(desk, "/ui/lanes")
    offered = [a["value"] for tag, a in page.elements if a.get("name") == "state"]
    assert offered == ["active", "disabled"]
    await sent(desk, "/ui/lanes/mail/settings", page, weight="3", aging="10m")
    (lane,) = (await lab.engine.list_lanes(with_counts=False)).items
    assert (lane.weight, lane.aging_ms) == (3, 600_000)
    page = await shown(desk, "/ui/lanes")
    cookie = {"cookie": ""}
    for fields in ({"weight": "0", "aging": "1m"}, {"weight": "2", "aging": "soon"}):
        reply = await sent(desk, "/ui/lanes/mail/settings", page, **fields)
        cookie = {"cookie": reply.headers["set-cookie"].partition(";")[0]}
    assert "aging: expected a duration" in text_of(await shown(desk, "/ui/lanes", headers=cookie))
    (lane,) = (await lab.engine.list_lanes(with_counts=False)).items
    assert (lane.weight, lane.aging_ms) == (3, 600_000)


@scenario
async def test_a_worker_is_drained_and_taken_off_by_forms(lab: Lab) -> None:
    desk = Desk(lab.engine)
    words: dict[str, Any] = {"worker_id": HOSTILE[:20], "lanes": (LANE,), "kinds": ("brief",)}
    for name in ("w 1/2", "w-2"):
        await lab.engine.register_worker(
            **words, worker_instance_id=name, liveness_ttl_ms=30_000, concurrency=4, host="h"
        )
    page = await shown(desk, "/ui/workers")
    assert "2 live, 0 of 8 places taken" in text_of(page)
    space = {"namespace": "default"}
    await sent(desk, "/ui/workers/w%201%2F2/drain", page, reason="deploy", **space)
    await sent(desk, "/ui/workers/w-2/dead", page, **space)
    (left,) = (await lab.engine.list_workers()).items
    assert (left.worker_instance_id, left.draining) == ("w 1/2", 1)
    reply = await sent(desk, "/ui/workers/w-2/drain", page, **space)
    cookie = {"cookie": reply.headers["set-cookie"].partition(";")[0]}
    page = await shown(desk, "/ui/workers", headers=cookie)
    assert "is not registered any more" in text_of(page)


@scenario
async def test_a_schedule_is_shown_paused_and_triggered(lab: Lab) -> None:
    desk = Desk(lab.engine)
    await shown(desk, "/ui/schedules")
    await lab.engine.create_schedule(schedule_id="daily/1", timing=HOURLY, start=start())
    page = await shown(desk, "/ui/schedules")
    (link,) = {each.attributes["href"] for each in page.all("a") if each.text == "daily/1"}
    page = await shown(desk, link)
    space = {"namespace": "default"}
    await sent(desk, "/ui/schedules/daily%2F1/pause", page, reason=HOSTILE, **space)
    page = await shown(desk, link)
    assert "paused by" in text_of(page)
    await sent(desk, "/ui/schedules/daily%2F1/resume", page, **space)
    page = await shown(desk, link)
    reply = await sent(desk, "/ui/schedules/daily%2F1/trigger", page, **space)
    assert reply.headers["location"].startswith("/ui/runs/")
    page = await shown(desk, link)
    assert "manual" in text_of(page)
    await sent(desk, "/ui/schedules/daily%2F1/delete", page, **space)
    assert (await lab.engine.list_schedules()).items == ()
    await shown(desk, link, 404)


@scenario
async def test_a_backfill_is_counted_before_it_is_started(lab: Lab) -> None:
    desk = Desk(lab.engine)
    await lab.engine.create_schedule(schedule_id="s", timing=HOURLY, start=start())
    page = await shown(desk, "/ui/schedules/s?namespace=default")
    begins = lab.now - lab.now % HOUR_MS - 4 * HOUR_MS + MINUTE_MS
    window = {"begin": iso(begins), "end": iso(begins + 3 * HOUR_MS)}

    async def fill(**more: str) -> str:
        reply = await sent(desk, "/ui/schedules/s/backfill", page, **window, **more)
        cookie = {"cookie": reply.headers["set-cookie"].partition(";")[0]}
        return text_of(await shown(desk, "/ui/schedules", headers=cookie))

    assert "3 ticks of this range would run" in await fill()
    assert "3 ticks would run, not 2" in await fill(number="2")
    assert not (await lab.engine.list_executions()).items
    assert "3 runs of schedule s started" in await fill(number="3")
    assert len((await lab.engine.list_executions()).items) == 3


@scenario
async def test_what_belongs_to_all_namespaces_is_offered_to_tokens_for_all_alone(lab: Lab) -> None:
    await lab.create(namespace="a")
    desk = Desk(lab.engine)
    for spaces, is_offered in ((None, True), (("a",), False)):
        headers = await token(lab, "operate", namespaces=spaces)
        page = await shown(desk, "/ui/lanes", headers=headers)
        led = {each.attributes["href"] for each in page.all("a")}
        assert ({"/ui/budgets", "/ui/system"} <= led) is is_offered
        assert led.isdisjoint({"/ui/budgets", "/ui/system"}) is not is_offered
        actions = [each.attributes.get("action", "") for each in page.all("form")]
        assert any(each.startswith("/ui/lanes/") for each in actions) is is_offered
