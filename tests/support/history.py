"""A history with work in every state there is and a row in every table."""

from __future__ import annotations

from typing import Any

from flowfabric.api.executions import NewUnique
from flowfabric.api.leases import Renew
from flowfabric.model.flow import AllSucceeded, AnySucceeded, OnSatisfied
from flowfabric.model.journal import CodeMark
from flowfabric.model.results import Claimed
from flowfabric.model.suspension import Count, CountKind
from tests.support.budgets import make_budget, report, reserve, spend
from tests.support.flows import arrows, node, submit
from tests.support.gates import quota
from tests.support.journal import entry, failed, published, record
from tests.support.lab import Lab
from tests.support.logs import log
from tests.support.mail import open_run, send, take
from tests.support.mail import wait as mail_wait
from tests.support.schedules import schedule, start
from tests.support.statistics import roll_up
from tests.support.streams import append, frame, summary
from tests.support.waits import suspended


async def history(lab: Lab, name: str) -> None:
    """Work in every state there is, with a row in every table, on a lane of its own."""
    engine = lab.engine
    here: dict[str, Any] = {"lane_id": name}
    await make_budget(lab, name, {"tokens": 100}, {"tokens": 2}, scope_type="lane", scope_id=name)
    await quota(lab, name, rate=50, cap=4)
    await engine.configure_lane(
        lane_id=name,
        weight=2,
        quota_policy_id=name,
        tenant_weights={"acme": 3},
        fair_weights={"acme": 2},
    )
    await engine.register_worker(
        worker_id=name,
        worker_instance_id=name,
        lanes=(name,),
        kinds=("work",),
        liveness_ttl_ms=60_000,
    )
    await lab.completed(tags={"a.b": name}, idempotency_key=f"{name}-done", **here)
    lost = await lab.started(**here)
    await engine.fail(lost.handle, reason="lost", failure_class="permanent")
    late = await lab.started(**here)
    await engine.delay(late.handle, delay_until=lab.now + 600_000)
    await lab.create(**here)
    (named,) = await lab.claims(name, lanes=(name,), claim_id=name)
    await engine.complete(named.handle)
    running = await lab.started(
        tags={"a.b": name}, idempotency_key=name, execution_deadline_at=lab.now + 900_000, **here
    )
    await engine.progress(running.handle, percent=10, message="so far")
    await append(lab, running, frame(), frame(mode="best_effort"), summary(b'{"a":1}'))
    await log(lab, running, "so far", first=1)
    await record(
        lab,
        running,
        entry(0, digest=b"d", arguments=b"[[],{}]", code=CodeMark()),
        failed(1),
        next_key="next",
    )
    await record(lab, running, published(2, b"1"))
    await lab.engine.call(Renew(handle=running.handle, next_key="c", next_key_ms=10))
    await reserve(lab, running, {"tokens": 2}, budget_id=name)
    await spend(lab, running.execution_id, {"tokens": 3}, budget_id=name, idempotency_key=name)
    await report(lab, {"tokens": 1}, budget_id=name, dedup_key=name)
    await wait(lab, name)
    await line(lab, name)
    await watch(lab, name, running)
    await ask(lab, name, running)
    await mail(lab, name)
    await flows(lab, name)
    await lab.create(delay_until=lab.now + 700_000, **here)
    await lab.create(fair_key="acme", **here)
    held = await lab.create(**here)
    await engine.hold_execution(execution_id=held, reason="later")
    granted = await lab.create(**here)
    await engine.issue_claim_grant(
        execution_id=granted, worker_id=name, worker_instance_id=name, grant_ttl_ms=60_000
    )
    await lab.create(**here)
    await lab.cancel(await lab.create(**here))
    starts = start("work", lane_id=name)
    await schedule(lab, name=name, starts=starts, pause_on_failure=9)
    await engine.trigger_schedule(schedule_id=name)
    made = await engine.create_access_token(name=name, scopes=("read",), namespaces=(name,))
    await engine.authenticate(token=made.token)
    await engine.revoke_access_token(token_id=made.id)
    await engine.open_session(
        way="oidc", subject=name, roles=("ops",), idle_ms=3_600_000, life_ms=7_200_000
    )
    await engine.create_consumer_group(group_id=name, after=None)
    await engine.read_group(group_id=name, consumer=name, limit=1, wait_ms=0)
    await engine.start_operation(action="release", lane_id=f"{name}-none")
    await engine.retry_with_input(execution_id=lost.execution_id, input_payload=b"2")
    await roll_up(lab)


async def wait(lab: Lab, name: str) -> None:
    """A wait that is half over."""
    twice = Count(2, CountKind.DISTINCT_SIGNALS, ("a",), "go")
    waiting = await suspended(
        lab,
        twice,
        created={"lane_id": name},
        idempotency_key=name,
        timeout_at=lab.now + 800_000,
    )
    await waiting.send(idempotency_key=name, payload=b"{}")


async def line(lab: Lab, name: str) -> None:
    """A line with two behind its head, and one that a failed head holds up."""
    here: dict[str, Any] = {"lane_id": f"{name}-line"}
    failing = await lab.started(serial_key=f"{name}-held", on_head_failure="hold", **here)
    await lab.engine.fail(failing.handle, reason="no", failure_class="permanent")
    await lab.create(serial_key=f"{name}-held", **here)
    for _ in range(3):
        await lab.create(serial_key=name, **here)
    batch = NewUnique(key=name, batch_items=9, batch_ms=600_000)
    for key in ("one", "two"):
        await lab.engine.create_execution(
            execution_kind="work",
            idempotency_key=f"{name}-{key}",
            input_payload=b'{"rows":[1]}',
            unique=batch,
            **here,
        )


async def mail(lab: Lab, name: str) -> None:
    """A mailbox at which a receiver waits, and one with messages: unread, received and answered."""
    claimed = await open_run(lab, lane_id=name)
    for number in range(3):
        await send(lab, claimed, number, wants_reply=True, idempotency_key=f"{name}-{number}")
    await take(lab, claimed, 0)
    taken = await take(lab, claimed, 1)
    await lab.engine.reply_message(
        claimed.handle,
        mailbox="orders",
        number=taken.number,
        message_id=taken.message_id,
        payload=b"1",
    )
    await mail_wait(lab, claimed, "any")


async def watch(lab: Lab, name: str, running: Claimed) -> None:
    """A wait for the end of another execution, and an end that others have yet to be told of."""
    watcher, over = await lab.started(lane_id=name), await lab.started(lane_id=name)
    ids = [running.execution_id, over.execution_id]
    await lab.engine.watch_executions(watcher.handle, execution_ids=ids)
    await lab.engine.complete(over.handle)
    await lab.engine.complete(watcher.handle)


async def ask(lab: Lab, name: str, running: Claimed) -> None:
    """A question of a budget that waits for its answer, and an allowance that is in use."""
    budget_id = f"{name}-asks"
    await make_budget(lab, budget_id, {"tokens": 1, "cents": 1}, on_hard_limit="ask")
    wanted = {"cents": 2}
    await lab.engine.ask_budget(running.handle, budget_id=budget_id, amounts=wanted)
    await lab.engine.answer_budget_ask(
        budget_id=budget_id,
        dimension="cents",
        approve=True,
        once=True,
        execution_id=running.execution_id,
    )
    await reserve(lab, running, wanted, "allowed", budget_id)
    await lab.engine.ask_budget(running.handle, budget_id=budget_id, amounts={"tokens": 2})


async def flows(lab: Lab, name: str) -> None:
    """One that is over, a join that is half met, one that is met and owes others their cancel."""
    over = await submit(lab, [node("a", lane_id=name)])
    await lab.cancel(over.ids["a"])
    for join in (AllSucceeded(), AnySucceeded(OnSatisfied.CANCEL_REMAINING)):
        nodes = [node("a", lane_id=name), node("b", lane_id=name), node("c", join, lane_id=name)]
        graph = await submit(lab, nodes, arrows("a>c", "b>c"))
        claimed = await lab.claim(lanes=(name,))
        assert claimed.execution_id in graph.ids.values()
        await spend(lab, claimed.execution_id, {"tokens": 1}, budget_id=name)
        await lab.engine.complete(claimed.handle, result=b"1")
        await lab.claim(lanes=(name,))
