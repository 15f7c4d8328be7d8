"""`/metrics`: each metric moves when its cause happens, and a scrape costs the store nothing."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from flowfabric.errors import LeaseExpired, StoreUnavailable
from flowfabric.metrics.catalogue import CATALOGUE, Source
from flowfabric.model.budget import HardAction
from flowfabric.model.policy import ExecutionPolicy, FixedBackoff, RetryPolicy
from flowfabric.server.metering import Metering
from flowfabric.stores.base import StoreConflict
from tests.support.budgets import make_budget, report
from tests.support.http import Desk
from tests.support.lab import Lab, scenario
from tests.support.scrape import Scrape
from tests.support.statistics import roll_up
from tests.support.waits import suspended

RETRY: Final = ExecutionPolicy(
    retry_policy=RetryPolicy(max_retries=1, backoff=FixedBackoff(delay_ms=0))
)
WORK: Final = {"lane": "default", "kind": "work"}


async def measured(lab: Lab, **settings: Any) -> tuple[Desk, Metering]:
    """A desk whose engine counts from now on, and that has looked once."""
    desk = Desk(lab.engine, **settings)
    metering = desk.service.metering
    assert metering is not None
    lab.engine.measure(metering.registry)
    await roll_up(lab)
    await metering.figures.look()
    return desk, metering


async def scraped(desk: Desk) -> Scrape:
    answer = await desk.get("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return Scrape(answer.body.decode())


async def looked(lab: Lab, desk: Desk, metering: Metering) -> Scrape:
    await roll_up(lab)
    await metering.figures.look()
    return await scraped(desk)


# --- requests -------------------------------------------------------------------------------------


@scenario
async def test_requests_are_counted_by_their_routes_and_never_by_ids(quick: Lab) -> None:
    desk, _ = await measured(quick)
    made = await desk.created()
    await desk.get(f"/v1/executions/{made}")
    await desk.get("/v1/executions/nonsense-planted")
    await desk.get("/planted/nowhere")
    scrape = await scraped(desk)
    of = {"route": "/v1/executions/{execution_id}", "method": "GET"}
    assert scrape.value("ff_http_requests_total", **of, status="2xx") == 1
    assert scrape.value("ff_http_requests_total", **of, status="4xx") == 1
    assert scrape.value("ff_http_requests_total", route="none", method="none", status="4xx") == 1
    assert scrape.value("ff_http_request_seconds_count", **of) == 2
    assert scrape.value("ff_http_in_flight") == 1  # the scrape itself
    assert "planted" not in str(scrape.samples)


# --- what happens to executions -------------------------------------------------------------------


async def _lost(lab: Lab) -> None:
    claimed = await lab.started()
    await lab.after(claimed.lease_expires_at - lab.now)
    await lab.cancel(claimed.execution_id)


async def _retried(lab: Lab) -> None:
    claimed = await lab.started(policy=RETRY)
    await lab.engine.fail(claimed.handle, reason="no", failure_class="transient")
    await lab.cancel(claimed.execution_id)


async def _failed(lab: Lab) -> None:
    claimed = await lab.started()
    await lab.engine.fail(claimed.handle, reason="no", failure_class="permanent")


async def _cancelled(lab: Lab) -> None:
    await lab.cancel(await lab.create())


async def _expired(lab: Lab) -> None:
    await lab.create(execution_deadline_at=lab.now + 1_000)
    await lab.after(2_000)


HAPPENINGS: Final[dict[str, Callable[[Lab], Awaitable[Any]]]] = {
    "created": lambda lab: lab.create(),
    "started": lambda lab: lab.started(),
    "completed": lambda lab: lab.completed(),
    "failed": _failed,
    "retried": _retried,
    "recovered": _lost,
    "cancelled": _cancelled,
    "expired": _expired,
}


@pytest.mark.parametrize("event", HAPPENINGS)
def test_each_event_of_executions_is_counted_once(quick: Lab, event: str) -> None:
    async def story() -> None:
        desk, metering = await measured(quick)
        await HAPPENINGS[event](quick)
        for _ in range(3):  # the same minute is looked at again and again
            scrape = await looked(quick, desk, metering)
            assert scrape.value("ff_executions_total", **WORK, event=event) == 1
        quick.clock.advance(180_000)
        await HAPPENINGS[event](quick)
        scrape = await looked(quick, desk, metering)
        assert scrape.value("ff_executions_total", **WORK, event=event) == 2
        assert scrape.value("ff_leases_lost_total") == (2 if event == "recovered" else 0)

    quick.run(story())


@scenario
async def test_what_happened_before_the_process_started_is_not_counted(quick: Lab) -> None:
    await quick.completed()
    desk, metering = await measured(quick)
    assert (await looked(quick, desk, metering)).total("ff_executions_total") == 0


@scenario
async def test_percentiles_of_pickup_lie_in_the_bucket_of_the_true_ones(quick: Lab) -> None:
    desk, metering = await measured(quick)
    waits = [3, 40, 40, 40, 150, 150, 150, 900, 900, 70_000]
    for wait_ms in waits:
        await quick.create()
        quick.clock.advance(wait_ms)
        claimed = await quick.claim()
        await quick.engine.complete(claimed.handle)
    scrape = await looked(quick, desk, metering)
    assert scrape.value("ff_pickup_seconds_count", **WORK) == len(waits)
    assert scrape.value("ff_pickup_seconds_sum", **WORK) == pytest.approx(sum(waits) / 1000)
    assert scrape.value("ff_pickup_seconds_bucket", **WORK, le="0.05") == 4
    assert scrape.value("ff_pickup_seconds_bucket", **WORK, le="0.2") == 7  # p50: 150 ms
    assert scrape.value("ff_pickup_seconds_bucket", **WORK, le="60") == 9
    assert scrape.value("ff_pickup_seconds_bucket", **WORK, le="300") == 10  # p95: 70 s
    assert scrape.value("ff_run_seconds_count", **WORK) == len(waits)


# --- what stands where ----------------------------------------------------------------------------


@scenario
async def test_work_and_workers_are_shown_by_lane(lab: Lab, desk: Desk) -> None:
    desk, metering = await measured(lab)
    await suspended(lab)
    await lab.started(lane_id="mail")
    await lab.create(policy={"routing_requirements": {"required_capabilities": ["gpu"]}})
    await lab.create()
    await lab.engine.register_worker(
        worker_id="w", worker_instance_id="w-1", lanes=("mail", "default"), liveness_ttl_ms=30_000
    )
    await lab.create(delay_until=lab.now + 10)
    lab.clock.advance(4_000)
    scrape = await looked(lab, desk, metering)
    assert scrape.value("ff_ready", lane="default") == 2
    assert scrape.value("ff_running", lane="mail") == 1
    assert scrape.value("ff_suspended", lane="default") == 1
    assert scrape.value("ff_oldest_ready_seconds", lane="default") == 4
    assert scrape.value("ff_workers", lane="mail") == 1
    assert scrape.value("ff_unroutable", capability="gpu") == 1
    assert scrape.value("ff_due_backlog") == 1
    assert (scrape.value("ff_event_lag_seconds") or 0) < 60


@scenario
async def test_limits_are_shown(quick: Lab) -> None:
    desk, metering = await measured(quick)
    await make_budget(quick, hard={"tokens": 100}, on_hard_limit=HardAction.BLOCK)
    await report(quick, {"tokens": 60})
    scrape = await looked(quick, desk, metering)
    assert scrape.value("ff_budget_used_ratio", limit="b", dimension="tokens") == 0.6
    assert scrape.value("ff_budget_spend_total", limit="b", dimension="tokens") == 60
    await report(quick, {"tokens": 60})
    await report(quick, {"tokens": 40})
    await quick.create(budget_ids=["b"])
    assert await quick.claims() == []
    scrape = await looked(quick, desk, metering)
    assert scrape.value("ff_budget_used_ratio", limit="b", dimension="tokens") == 1
    assert scrape.value("ff_budget_spend_total", limit="b", dimension="tokens") == 100
    assert scrape.value("ff_budget_breaches_total", limit="b", level="hard") == 1
    assert scrape.value("ff_admission_denied_total", limit="budget:b") == 1


# --- the engine -----------------------------------------------------------------------------------


@scenario
async def test_commits_reads_and_renewals_are_measured(lab: Lab) -> None:
    desk, _ = await measured(lab)
    before = await scraped(desk)
    claimed = await lab.started()
    await lab.engine.renew(claimed.handle)
    await lab.engine.complete(claimed.handle)
    await lab.describe(claimed.execution_id)
    late = await lab.started()
    lab.clock.set(late.lease_expires_at)
    for call in (lab.engine.renew, lab.engine.complete):
        with pytest.raises(LeaseExpired):
            await call(late.handle)
    scrape = await scraped(desk)

    def more(name: str, **labels: str) -> float:
        return scrape.total(name, **labels) - before.total(name, **labels)

    assert more("ff_batch_size_count") >= 4
    assert more("ff_store_seconds_count", operation="write") >= 4
    assert more("ff_store_seconds_count", operation="read") >= 1
    assert scrape.value("ff_lease_renewals_total", outcome="renewed") == 1
    assert scrape.value("ff_lease_renewals_total", outcome="refused") == 1
    assert scrape.value("ff_stale_writes_refused_total", outcome="lease_expired") == 1
    if lab.url.startswith("postgres"):
        assert more("ff_pool_wait_seconds_count") >= 5


@scenario
async def test_conflicts_and_errors_of_the_store_are_counted(
    quick: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, _ = await measured(quick)
    store, troubles = quick.direct.store, [StoreConflict("x"), StoreUnavailable("y")]
    transact = store.transact

    async def troubled(work: Any) -> Any:
        if troubles:
            raise troubles.pop(0)
        return await transact(work)

    monkeypatch.setattr(store, "transact", troubled)
    with pytest.raises(StoreUnavailable):
        await quick.create()
    scrape = await scraped(desk)
    assert scrape.value("ff_conflicts_total") == 1
    assert scrape.value("ff_store_errors_total", operation="write") == 1


@scenario
async def test_an_outage_leaves_the_numbers_and_is_told(
    quick: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, metering = await measured(quick)
    await quick.create()
    await metering.start()
    try:
        assert (await scraped(desk)).value("ff_store_up") == 1

        async def down(_: Any) -> Any:
            raise StoreUnavailable("down")

        monkeypatch.setattr(quick.direct, "call", down)
        await metering.figures.turn()
        scrape = await scraped(desk)
        assert scrape.value("ff_store_up") == 0
        assert scrape.value("ff_ready", lane="default") == 1
        monkeypatch.undo()
        await metering.figures.turn()
        assert (await scraped(desk)).value("ff_store_up") == 1
    finally:
        await metering.stop()


# --- scrapes --------------------------------------------------------------------------------------


@scenario
async def test_scrapes_cost_the_store_nothing(quick: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    desk, _ = await measured(quick)
    asked = []

    async def call(request: Any) -> Any:
        asked.append(request)

    monkeypatch.setattr(quick.direct, "call", call)
    for _ in range(20):
        await scraped(desk)
    assert asked == []


@scenario
async def test_where_metrics_are_off_there_are_none(quick: Lab) -> None:
    desk = Desk(quick.engine, metrics=False)
    assert (await desk.get("/metrics")).status == 404
    assert quick.direct.meter is None


@scenario
async def test_a_scrape_through_a_proxy_needs_a_token_once_one_exists(lab: Lab) -> None:
    made = await lab.engine.create_access_token(
        name="prom", scopes=("metrics",), expires_in_ms=10_000_000
    )
    other = await lab.engine.create_access_token(
        name="reader", scopes=("read",), expires_in_ms=10_000_000
    )
    far = {"x-forwarded-for": "203.0.113.9"}
    asks: tuple[tuple[dict[str, Any], dict[str, str]], ...] = (
        ({}, far),
        ({"metrics_auth": True}, {}),
        ({"behind_proxy": True}, {}),
    )
    for settings, headers in asks:
        desk = Desk(lab.engine, **settings)
        assert (await desk.get("/metrics", headers=headers)).status == 401
        for token, status in ((made.token, 200), (other.token, 403)):
            shown = {"authorization": f"Bearer {token.reveal()}", **headers}
            assert (await desk.get("/metrics", headers=shown)).status == status
    assert (await Desk(lab.engine).get("/metrics")).status == 200


def test_every_metric_says_what_it_tells_of() -> None:
    for metric in CATALOGUE:
        assert metric.name.startswith("ff_")
        assert metric.name.endswith("_total") == (metric.form == "counter")
        assert metric.source in Source
        assert metric.text


def test_the_guide_lists_every_metric_with_its_labels() -> None:
    guide = Path(__file__).parents[2] / "docs" / "guides" / "observability.md"
    row = re.compile(r"^\| `(ff_\w+)` \| (\w+) \| (\w+) \| ([^|]*) \|", re.MULTILINE)
    told = [
        (name, form, of, tuple(re.findall(r"`(\w+)`", labels)))
        for name, form, of, labels in row.findall(guide.read_text("utf-8"))
    ]
    assert told == [(each.name, each.form, each.source, each.labels) for each in CATALOGUE]
