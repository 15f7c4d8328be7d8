"""Workers and clients behind a network that loses, cuts, delays and truncates."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import aiohttp
import pytest

from flowfabric import Fabric, Worker
from flowfabric.api.hints import lane_topic
from flowfabric.api.leases import Complete
from flowfabric.client import engine as client_engine
from flowfabric.client import pauses
from flowfabric.clock import monotonic
from flowfabric.engine.engine import Engine
from flowfabric.errors import Overloaded, RateLimited, StoreUnavailable
from flowfabric.model.results import Completed, LeaseRenewal
from flowfabric.model.state import PublicState
from flowfabric.server.access.guard import OpenGuard
from flowfabric.server.serve import Server
from flowfabric.server.settings import ServerSettings
from tests.sdk.workshop import until, within, working
from tests.support.behind import behind_a_proxy
from tests.support.proxy import Proxy

LANE = "default"
ME: dict[str, Any] = {"lanes": [LANE], "worker_id": "w1", "worker_instance_id": "w1-1"}


async def created(engine: Engine, count: int = 1) -> list[str]:
    made = [await engine.create_execution(execution_kind="work") for _ in range(count)]
    return [each.execution_id for each in made]


async def state(engine: Engine, execution_id: str) -> PublicState:
    snapshot = await engine.describe_execution(execution_id=execution_id)
    assert snapshot is not None
    return snapshot.public_state


async def awaited(engine: Engine, *, is_it: bool = True) -> None:
    """Return when a claim waits for the lane, or when none does."""

    async def has() -> bool:
        return engine.wakeups.is_awaited(lane_topic(LANE)) is is_it

    await until(has)


# --- answers that are lost -----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["lose_answers", "truncate"])
def test_a_submit_whose_answer_is_cut_off_is_retried_and_exists_once(how: str) -> None:
    async def main() -> None:
        async with behind_a_proxy() as (engine, _, proxy, client):
            setattr(proxy, how, 2)
            made = await client.create_execution(execution_kind="work")
            assert getattr(proxy, how) == 0
            found = (await engine.list_executions()).items
            assert [each.execution_id for each in found] == [made.execution_id]

    asyncio.run(main())


@pytest.mark.parametrize("how", ["lose_answers", "truncate"])
@pytest.mark.parametrize("wait_ms", [0, 5_000])
def test_a_claim_whose_answer_is_lost_gets_the_same_leases(how: str, wait_ms: int) -> None:
    async def main() -> None:
        async with behind_a_proxy() as (engine, _, proxy, client):
            ids = await created(engine, 3)
            proxy.marker = b"claim"
            setattr(proxy, how, 1)
            claimed = await client.claim(**ME, limit=2, wait_ms=wait_ms)
            assert getattr(proxy, how) == 0
            assert [each.execution_id for each in claimed] == ids[:2]
            for each in claimed:
                assert (each.lease_epoch, each.attempt_index) == (1, 0)
                snapshot = await engine.describe_execution(execution_id=each.execution_id)
                assert snapshot is not None
                assert snapshot.reclaim_count == 0
                await client.complete(each.handle)
            assert await state(engine, ids[2]) is PublicState.WAITING

    asyncio.run(main())


def test_a_claim_that_was_given_up_is_asked_for_first_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_engine, "_PATIENCE_S", 0.0)

    async def main() -> None:
        async with behind_a_proxy() as (engine, _, proxy, client):
            (first, second) = await created(engine, 2)
            proxy.lose_answers = 1
            with pytest.raises(StoreUnavailable):
                await client.claim(**ME)
            assert [each.execution_id for each in await client.claim(**ME)] == [first]
            assert [each.execution_id for each in await client.claim(**ME)] == [second]

    asyncio.run(main())


def test_a_report_whose_answer_is_lost_is_repeated_and_counts_once() -> None:
    async def main() -> None:
        async with behind_a_proxy() as (engine, _, proxy, client):
            await created(engine)
            (claimed,) = await client.claim(**ME)
            proxy.lose_answers = 1
            assert isinstance(await client.complete(claimed.handle, result=b"1"), Completed)
            attempts = await engine.list_attempts(execution_id=claimed.execution_id)
            assert len(attempts.items) == 1

    asyncio.run(main())


def test_no_lease_is_given_to_a_connection_that_died_while_it_waited() -> None:
    async def main() -> None:
        async with behind_a_proxy() as (engine, _, _, client):
            claim = asyncio.create_task(client.claim(**ME, wait_ms=20_000))
            await awaited(engine)
            claim.cancel()
            await asyncio.gather(claim, return_exceptions=True)
            await within(awaited(engine, is_it=False))
            (execution_id,) = await created(engine)
            await asyncio.sleep(0.05)
            assert await state(engine, execution_id) is PublicState.WAITING

    asyncio.run(main())


# --- polls that are cut --------------------------------------------------------------------------


def test_a_poll_that_is_cut_after_ten_seconds_is_followed_by_ones_of_eight(
    caplog: pytest.LogCaptureFixture,
) -> None:
    polls = pauses.Polls()
    with caplog.at_level(logging.WARNING, "flowfabric.client"):
        polls.was_cut(1.5)  # the server went away: no reason to wait less
        assert polls.ms == pauses.POLL_MS
        for _ in range(3):
            polls.was_cut(10.0)
    assert polls.ms == 8_000
    assert len(caplog.records) == 1
    for _ in range(30):
        polls.was_whole()
    assert polls.ms == 10_000


def test_a_worker_behind_a_proxy_that_cuts_its_polls_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pauses, "_CUT_S", 0.1)
    monkeypatch.setattr(pauses, "_POLL_LEAST_MS", 50)

    async def main() -> None:
        async with behind_a_proxy(cut_after_s=0.4) as (engine, _, proxy, _client):
            ff = Fabric(proxy.address)

            @ff.task
            async def double(n: int) -> int:
                return 2 * n

            async with ff, working(ff):
                await until(lambda: _is(proxy.cuts > 0))
                for n in range(4):
                    run = await ff.submit(double, n)
                    assert await run.result("30s") == 2 * n
                    await asyncio.sleep(0.45)  # longer than the proxy leaves a poll
                found = (await engine.list_executions()).items
                assert {each.total_attempt_count for each in found} == {1}

    with caplog.at_level(logging.WARNING, "flowfabric.client"):
        asyncio.run(main())
    told = [each for each in caplog.records if each.name == "flowfabric.client"]
    assert [each.args for each in told] == [
        (pytest.approx(0.4, abs=0.2), pytest.approx(0.3, abs=0.2))
    ]


async def _is(value: bool) -> bool:
    return value


# --- stops ---------------------------------------------------------------------------------------


def test_a_cancel_reaches_a_handler_of_a_full_worker_at_once() -> None:
    """Long before its lease is renewed."""

    async def main() -> None:
        async with behind_a_proxy() as (_, server, _, _):
            ff = Fabric(server.address)
            began, ended = asyncio.Event(), asyncio.Event()

            @ff.task
            async def endless() -> None:
                began.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.set()

            async with ff, working(ff, concurrency=1, lease_ttl="10m"):
                run = await ff.submit(endless)
                await within(began.wait())
                cancelled_at = monotonic()
                await run.cancel("enough")
                await within(ended.wait())
                assert monotonic() - cancelled_at < 5

    asyncio.run(main())


def test_a_claim_that_waited_for_longer_than_a_lease_begins_a_whole_lease() -> None:
    async def main() -> None:
        async with behind_a_proxy() as (engine, server, _, _):
            ff = Fabric(server.address)
            ran: list[str] = []

            @ff.task
            async def job() -> None:
                ran.append("begun")
                await asyncio.sleep(0.2)  # two looks at the leases
                ran.append("ended")

            async with ff, working(ff, lease_ttl="1s"):
                await awaited(engine)
                await asyncio.sleep(1.1)
                await within((await ff.submit(job)).result())
            assert ran == ["begun", "ended"]

    asyncio.run(main())


def test_a_claim_over_json_that_does_not_wait_gets_its_leases() -> None:
    async def main() -> None:
        async with behind_a_proxy() as (engine, server, _, _), aiohttp.ClientSession() as session:
            ids = await created(engine)
            wanted = {**ME, "limit": 1, "wait_ms": 0}
            url = f"{server.address}/v1/workers/claim"
            async with session.post(url, json=wanted) as answer:
                items = (await answer.json())["items"]
            assert [each["execution_id"] for each in items] == ids

    asyncio.run(main())


def test_an_operator_ends_a_worker_from_outside() -> None:
    async def main() -> None:
        async with behind_a_proxy() as (engine, server, _, _):
            ff = Fabric(server.address)

            @ff.task
            async def nothing() -> None: ...

            async with ff:
                worker = Worker(ff)
                running = asyncio.create_task(worker.run(handle_signals=False))

                async def is_there() -> bool:
                    return bool((await engine.list_workers()).items)

                await until(is_there)
                await engine.drain_worker(worker_instance_id=worker.settings.instance_id)
                await within(running)
                assert not await is_there()

    asyncio.run(main())


def test_a_worker_cut_off_for_longer_than_its_lease_stops_its_handlers() -> None:
    """Another one finishes; what the first would report is refused."""

    async def main() -> None:
        async with behind_a_proxy() as (engine, server, proxy, _):
            near, far = Fabric(server.address), Fabric(proxy.address)
            began, stopped = asyncio.Event(), asyncio.Event()

            @far.task(name="work")
            async def first() -> str:
                began.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    stopped.set()
                return "first"

            @near.task(name="work")
            async def second() -> str:
                return "second"

            async with near, far, working(far, lease_ttl="1s", drain_timeout="1s"):
                run = await near.submit(second)
                await within(began.wait())
                proxy.is_cut_off = True
                await within(stopped.wait())
                async with working(near):
                    assert await run.result("30s") == "second"
                proxy.is_cut_off = False
                (ended,) = (await engine.list_executions()).items
                assert (ended.reclaim_count, ended.retry_count) == (1, 0)

    asyncio.run(main())


# --- large results, too much at once -------------------------------------------------------------


def test_large_results_upload_slowly_while_leases_are_renewed_on_time() -> None:
    async def main() -> None:
        async with behind_a_proxy() as (engine, _, proxy, client):
            await created(engine, 20)
            claimed = await client.claim(**ME, limit=20, lease_ttl_ms=1_000)
            large, small = claimed[:16], claimed[16:]
            proxy.slow_s = 0.008
            upload = asyncio.create_task(
                client.complete_many(
                    [Complete(handle=each.handle, result=b"x" * 1_000_000) for each in large]
                )
            )
            renewals = 0
            while not upload.done():
                renewed = await client.renew_many([each.handle for each in claimed])
                assert all(isinstance(each, LeaseRenewal) for each in renewed[16:])
                renewals += 1
                await asyncio.sleep(0.1)
            assert renewals > 3
            assert all(isinstance(each, Completed) for each in upload.result())
            for each in small:
                await client.complete(each.handle)

    asyncio.run(main())


def test_a_server_with_too_much_to_do_refuses_new_work_and_takes_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_engine, "_PATIENCE_S", 0.0)

    async def main() -> None:
        async with behind_a_proxy() as (engine, server, _, client):
            await created(engine, 2)
            (claimed,) = await client.claim(**ME)
            monkeypatch.setattr(server.service.pulse, "lag_now_s", lambda: 0.3)
            with pytest.raises(Overloaded) as refused:
                await client.claim(**ME)
            assert refused.value.fields["retry_after_ms"] > 0
            with pytest.raises(Overloaded):
                await client.create_execution(execution_kind="work")
            assert isinstance(await client.renew(claimed.handle), LeaseRenewal)
            await client.complete(claimed.handle)
            monkeypatch.undo()
            assert len(await client.claim(**ME)) == 1

    asyncio.run(main())


def test_a_worker_outlives_a_server_that_has_no_room_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits that out, for claims as for reports."""
    monkeypatch.setattr(client_engine, "_PATIENCE_S", 0.0)

    async def main() -> None:
        async with behind_a_proxy() as (_, server, _, _):
            ff = Fabric(server.address)

            @ff.task
            async def give(n: int) -> int:
                return n

            async with ff:
                run = await ff.submit(give, 7)
                refused, rates = asyncio.Event(), server.service.rates.count

                def refuse(*_: object) -> None:
                    refused.set()
                    raise RateLimited("too often", retry_after_ms=1)

                monkeypatch.setattr(server.service.rates, "count", refuse)
                monkeypatch.setattr(server.service.guard, "has_tokens", _yes)
                worker = Worker(ff)
                running = asyncio.create_task(worker.run(handle_signals=False))
                await within(refused.wait())
                refused.clear()
                await within(refused.wait())  # it has asked again
                monkeypatch.setattr(server.service.rates, "count", rates)
                monkeypatch.setattr(server.service.guard, "has_tokens", _no)
                assert await run.result("30s") == 7
                worker.stop()
                await within(running)

    asyncio.run(main())


async def _yes() -> bool:
    return True


async def _no() -> bool:
    return False


# --- several servers -----------------------------------------------------------------------------


def test_one_of_two_servers_stops_under_load_and_no_caller_sees_an_error() -> None:
    async def main() -> None:
        settings = ServerSettings(bind="127.0.0.1:0", drain_delay_ms=20)
        async with behind_a_proxy() as (engine, one, _, _):
            two = Server(engine, settings, guard=OpenGuard())
            async with two, Proxy(one.address, two.address) as balancer:
                ff = Fabric(balancer.address)

                @ff.task
                async def double(n: int) -> int:
                    return 2 * n

                async def submit(n: int) -> int:
                    run = await ff.submit(double, n)
                    return int(await run.result("30s"))

                async with ff, working(ff, concurrency=10):
                    first = [asyncio.create_task(submit(n)) for n in range(40)]
                    await asyncio.sleep(0.02)
                    leaving = asyncio.create_task(_leave(two))
                    more = [asyncio.create_task(submit(n)) for n in range(40, 80)]
                    await leaving
                    last = [asyncio.create_task(submit(n)) for n in range(80, 100)]
                    answers = await within(asyncio.gather(*first, *more, *last))
                assert answers == [2 * n for n in range(100)]
                counted = await engine.count_executions()
                assert counted[LANE] == {"completed": 100}

    asyncio.run(main())


async def _leave(server: Server) -> None:
    """As on SIGTERM."""
    await server.drain()
    await server.stop()
