"""What a server must do as a whole: scenarios that no other file has. `docs/RELIABILITY.md` lists
all of them, each with its test."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

from flowfabric import Fabric, Worker, approval
from flowfabric.assemble import open_engine
from flowfabric.client.engine import RemoteEngine
from flowfabric.clock import stopwatch
from flowfabric.config import EngineConfig
from flowfabric.engine import bulk_work
from flowfabric.metrics.registry import Registry
from flowfabric.sdk.context.context import Context
from flowfabric.server.access.guard import OpenGuard
from flowfabric.server.routes.values import path_id
from flowfabric.server.serve import Server
from flowfabric.server.settings import ServerSettings
from tests.sdk.workshop import within, working
from tests.support.behind import behind_a_proxy
from tests.support.http import Desk
from tests.support.lab import Lab, scenario
from tests.support.proxy import Proxy
from tests.support.scrape import Scrape

if TYPE_CHECKING:
    import pytest

DRAINED: Final = int(os.environ.get("FF_REMOTE_DRAIN", "300"))
WAITS: Final = int(os.environ.get("FF_OPEN_WAITS", "400"))
WAIT_BYTES: Final = 20 * 1024  # 200 MiB for 10,000
SETTINGS: Final = ServerSettings(bind="127.0.0.1:0", drain_delay_ms=0)
ME: Final[dict[str, Any]] = {
    "lanes": ["default"],
    "worker_id": "w1",
    "worker_instance_id": "w1-1",
}


async def until_waits(desk: Desk, count: int) -> None:
    while desk.service.waits != count:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.001)


# --- waits ----------------------------------------------------------------------------------------


@scenario
async def test_a_wait_answers_within_50_ms_of_the_end(lab: Lab, desk: Desk) -> None:
    """Scenario 7: `?wait=25s` on an execution that ends while it waits answers within 50 ms of the
    end. The best of a few: this machine may be busy with something else."""
    best = 1.0
    for _ in range(3):
        claimed = await lab.started()
        path = f"/v1/executions/{path_id(claimed.execution_id)}/outcome?wait=25s"
        asked = asyncio.create_task(desk.get(path))
        await until_waits(desk, 1)
        await lab.engine.complete(claimed.handle, result=b"7")
        ended = stopwatch()
        told = await asked
        best = min(best, stopwatch() - ended)
        assert (told.status, told.json["result"]) == (200, 7)
    assert best < 0.05


@scenario
async def test_a_wait_that_does_not_end_answers_202_with_the_snapshot_never_504(
    lab: Lab, desk: Desk
) -> None:
    """Scenario 8: for an execution, a submit and many of them."""
    made = await desk.created()
    told = await desk.get(f"/v1/executions/{made}/outcome?wait=5ms")
    assert (told.status, told.json["public_state"]) == (202, "waiting")
    assert path_id(told.json["execution_id"]) == made
    submitted = await desk.post("/v1/executions?wait=5ms", {"execution_kind": "work"})
    assert (submitted.status, submitted.json["outcome"]) == (201, None)
    many = {"execution_ids": [told.json["execution_id"]], "wait_ms": 5}
    assert (await desk.post("/v1/executions/outcomes", many)).json == {"outcomes": {}}


def rss() -> int:
    return int(psutil.Process().memory_info().rss)


@scenario
async def test_open_waits_cost_hardly_anything_and_one_more_is_429(quick: Lab) -> None:
    """Scenario 36: 10,000 open waits cost < 5 queries/s and < 200 MiB; the 10,001st is 429. So many
    in a soak, a few hundred here; without sockets, whose buffers are the machine's."""
    desk = Desk(quick.engine, waits_max=WAITS)
    counted = Registry()
    quick.direct.measure(counted)

    def queries() -> float:
        return Scrape(counted.text()).total("ff_store_seconds_count")

    ids = [await desk.created() for _ in range(WAITS)]
    path = "/v1/executions/{}/outcome?wait=25s"
    before = rss()
    waits = [asyncio.create_task(desk.get(path.format(each))) for each in ids]
    await until_waits(desk, WAITS)
    assert rss() - before < max(WAITS * WAIT_BYTES, 16 << 20)
    asked, began = queries(), stopwatch()
    await asyncio.sleep(1)
    assert (queries() - asked) / (stopwatch() - began) < 5
    told = await desk.get(path.format(ids[0]))
    assert (told.status, told.json["code"]) == (429, "too_many_waits")
    desk.service.stopping.set()
    assert {each.status for each in await asyncio.gather(*waits)} == {202}


# --- workers --------------------------------------------------------------------------------------


def test_a_remote_worker_at_concurrency_100_drains_and_each_ran_once() -> None:
    """Scenario 9: a remote worker at concurrency 100 drains 10,000 (a few hundred here); each ran
    once."""
    ran: Counter[int] = Counter()

    async def main() -> None:
        async with behind_a_proxy() as (engine, server, _, _):
            ff = Fabric(server.address)

            @ff.task
            async def count(number: int) -> int:
                ran[number] += 1
                return number

            async with ff:
                made = await ff.submit_many([count.call(number) for number in range(DRAINED)])
                worker = Worker(ff, concurrency=100)
                running = asyncio.create_task(worker.run(handle_signals=False))
                results = [await each.result("120s") for each in made]
                worker.stop()
                await running
            assert results == list(range(DRAINED))
            states = Counter[str]()
            for each in (await engine.count_executions()).values():
                states.update(each)
            assert states == {"completed": DRAINED}

    asyncio.run(main())
    assert set(ran.values()) == {1}


def test_a_server_killed_between_a_claim_and_its_answer_keeps_the_leases(tmp_path: Path) -> None:
    """Scenario 10: the repeated `claim_id` returns the same leases, no recovery is counted. The
    answer is lost, the server is gone, and another one on the same store is asked again."""
    url = f"sqlite:///{tmp_path}/killed.db"

    async def main() -> None:
        first = open_engine(url, config=EngineConfig(loops=False))
        await first.start(migrate=True)
        server = Server(first, SETTINGS, guard=OpenGuard())
        await server.__aenter__()
        made = [await first.create_execution(execution_kind="work") for _ in range(3)]
        async with Proxy(server.address) as proxy:
            proxy.marker, proxy.lose_answers = b"claim", 1
            client = RemoteEngine(proxy.address)
            await client.start()
            claim = asyncio.create_task(client.claim(**ME, limit=2))
            while proxy.lose_answers:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.001)
            await server.stop()
            await first.close()
            async with (
                open_engine(url, config=EngineConfig(loops=False)) as second,
                Server(second, SETTINGS, guard=OpenGuard()) as other,
            ):
                proxy.lead_to(other.address)
                claimed = await within(claim)
                assert {each.execution_id for each in claimed} < {e.execution_id for e in made}
                assert [each.lease_epoch for each in claimed] == [1, 1]
                for each in claimed:
                    snapshot = await second.describe_execution(execution_id=each.execution_id)
                    assert snapshot is not None
                    assert snapshot.reclaim_count == 0
                    await client.complete(each.handle)
                await client.close()

    asyncio.run(main())


def test_a_suspend_from_a_remote_handler_returns_a_link_that_resumes_it_without_a_key() -> None:
    """Scenario 19: `POST /signals` with the link of a handler elsewhere resumes it."""

    async def main() -> None:
        async with behind_a_proxy() as (engine, server, _, _):
            ff = Fabric(server.address)

            @ff.task
            async def publish(ctx: Context) -> str:
                if not ctx.resumed:
                    await ctx.suspend(approval("publish"), timeout="2d")
                return ctx.signals[-1].name

            async with ff, working(ff):
                run = await publish.submit()
                while (await run.state()).value != "suspended":  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                link = await ff.link(run, "publish")
                desk = Desk(engine)
                await engine.create_access_token(name="first", scopes=("admin",))
                body = {"link": link, "signal_name": "approved"}
                assert (await desk.post("/v1/signals", body)).status == 200
                assert (await desk.get("/v1/executions")).status == 401
                state = await within(engine.wait_for_outcome(execution_id=run.id, wait_ms=20_000))
                assert state.result == b'"approved"'

    asyncio.run(main())


# --- operations -----------------------------------------------------------------------------------


@scenario
async def test_a_bulk_cancel_counts_survives_a_kill_half_way_and_cancels_each_once(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scenario 32: the dry run counts; the operation survives the end of its server half way; each
    execution is cancelled once; the count by outcome adds up."""
    monkeypatch.setattr("flowfabric.limits.OPERATION_PIECE", 3)
    monkeypatch.setattr(bulk_work, "_SIZES", (3, 1, 0))
    desk = Desk(lab.engine)
    ids = [await desk.created("page") for _ in range(8)]
    await desk.created("other")
    wanted = {"action": "cancel", "execution_kind": "page", "reason": "enough"}
    counted = await desk.post("/v1/executions/bulk", wanted)
    assert counted.status == 200, counted
    assert counted.json["matched"] == 8
    begins = {**wanted, "dry_run": False}
    far = await desk.post("/v1/executions/bulk", {**begins, "expect_count": 100})
    assert (far.status, far.json["code"]) == (409, "count_changed")
    begun = await desk.post("/v1/executions/bulk", {**begins, "expect_count": 8})
    assert begun.status == 202
    place = begun.headers["location"]
    await lab.after(1)
    half = (await desk.get(place)).json
    assert 0 < half["done"] < 8
    if not lab.url.startswith("memory:"):  # which forgets all
        await lab.configure()
        desk = Desk(lab.engine)
    for _ in range(20):
        await lab.after(60_000)
    ended = (await desk.get(place)).json
    assert (ended["state"], ended["done"], ended["matched"]) == ("done", 8, 8)
    assert (ended["unchanged"], ended["refused"]) == (0, {})
    for each in ids:
        told = (await desk.get(f"/v1/executions/{each}")).json
        assert told["public_state"] == "cancelled"
        assert len(await lab.completions(told["execution_id"])) == 1
