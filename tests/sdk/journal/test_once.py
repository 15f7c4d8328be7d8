"""Steps that begin at most once: an interrupted one is never begun again, and doubt is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric import (
    Context,
    EntryKind,
    EntryState,
    Fabric,
    InvalidInput,
    InvalidPayload,
    Run,
    RunFailed,
    StepFailed,
    StepInterrupted,
    SyncContext,
    current_step,
)
from tests.sdk.journal.bench import journal, keys, worked
from tests.sdk.journal.test_waiting import waits

QUESTION = "did pay happen?"


async def lose_lease(ff: Fabric) -> None:
    """The worker loses its execution: whatever it records from here on is refused."""
    owner = current_step().journal.owner
    engine = await ff.start()
    await engine.revoke_lease(execution_id=owner.claimed.execution_id, reason="the test says so")


def payer(ff: Fabric, ran: list[int], **options: Any) -> Any:
    """A step whose first worker dies in it."""

    async def pay(amount: int) -> str:
        ran.append(amount)
        await lose_lease(ff)
        return "paid by the first"

    return ff.step(once=True, **options)(pay)


def test_once_interrupted_is_told_and_never_begun_again(url: str) -> None:
    """7.1.19: begun and without an end: `StepInterrupted`, the same in every later run."""
    ff, ran, seen = Fabric(url), list[int](), list[str]()
    pay = payer(ff, ran)

    @ff.step
    async def note(text: str) -> str:
        return text

    @ff.task(retries=2, backoff="1ms")
    async def order(ctx: Context) -> str:
        await note("before")
        try:
            await pay(7)
        except StepInterrupted as error:
            seen.append(f"{type(error).__name__} {error.step}")
        after = await note("after")
        if len(seen) < 3:
            raise ValueError("again")
        return after

    async def main(ff: Fabric) -> None:
        run = await ff.submit(order)
        assert await run.result() == "after"
        assert ran == [7]
        assert len(seen) == 3
        assert {each.partition(" ")[0] for each in seen} == {"StepInterrupted"}
        entries = await journal(ff, run)
        assert [(each.key, each.kind, each.state) for each in entries] == [
            ("note", EntryKind.STEP, EntryState.OK),
            ("pay", EntryKind.STARTED, EntryState.OPEN),
            ("pay", EntryKind.STEP, EntryState.FAILED),
            ("note#2", EntryKind.STEP, EntryState.OK),
        ]

    worked(ff, main)


def test_a_start_is_durable_with_everything_before_it_when_the_body_begins(url: str) -> None:
    ff, seen = Fabric(url), list[Any]()

    @ff.step(effects=False)
    async def read() -> int:
        return 1

    @ff.step(once=True)
    async def pay() -> None:
        run = Run[Any](ff, current_step().journal.owner.claimed.execution_id)
        seen.extend((each.key, each.kind, each.next_key) for each in await journal(ff, run))

    @ff.task
    async def order() -> None:
        await read()
        await pay()

    async def main(ff: Fabric) -> None:
        await (await ff.submit(order)).result()
        assert seen == [("read", EntryKind.STEP, None), ("pay", EntryKind.STARTED, "pay")]

    worked(ff, main)


@pytest.mark.parametrize("is_sync", [False, True])
def test_a_failed_once_step_stays_failed_until_fresh(url: str, is_sync: bool) -> None:
    """Another attempt, and a replay by an operator, meet the same failure."""
    ff, ran = Fabric(url), list[int]()

    def pay() -> str:
        ran.append(1)
        if len(ran) == 1:
            raise ConnectionError("no line")
        return "paid"

    step: Any = ff.step(once=True)(pay)

    @ff.task(retries=2, backoff="1ms")
    async def order(ctx: Context) -> str:
        try:
            paid: str = await step()
            return paid
        except StepFailed as error:
            raise RuntimeError("not paid") from error  # which ends the attempt, and is tried again

    @ff.task(retries=2, backoff="1ms")
    def order_in_a_thread(ctx: SyncContext) -> str:
        try:
            paid: str = step()
            return paid
        except StepFailed as error:
            raise RuntimeError("not paid") from error

    async def main(ff: Fabric) -> None:
        run = await ff.submit(order_in_a_thread if is_sync else order)
        with pytest.raises(RunFailed, match="not paid"):
            await run.result()
        assert ran == [1]
        await run.retry()
        with pytest.raises(RunFailed, match="not paid"):
            await run.result()
        assert ran == [1]
        await run.retry(fresh=True)
        assert await run.result() == "paid"
        assert ran == [1, 1]

    worked(ff, main)


def test_an_uncaught_failure_of_a_once_step_needs_no_more_attempts(url: str) -> None:
    ff, ran = Fabric(url), list[int]()

    @ff.step(once=True)
    async def pay() -> None:
        ran.append(1)
        raise ConnectionError("no line")

    @ff.task(retries=5, backoff="1h")
    async def order() -> None:
        await pay()

    async def main(ff: Fabric) -> None:
        with pytest.raises(RunFailed, match="no line"):
            await (await ff.submit(order)).result()
        assert ran == [1]

    worked(ff, main)


def test_people_are_asked_whether_it_happened(url: str) -> None:
    """7.1.19: with `ask` an approval appears, its typed answer is the result."""
    ff, ran = Fabric(url), list[int]()
    pay = payer(ff, ran, on_interrupted="ask")

    @ff.step
    async def note(text: str) -> str:
        return text

    @ff.task(retries=1, backoff="1ms")
    async def order(ctx: Context) -> list[Any]:
        paid = await pay(7)
        is_new = ctx.patched("later")
        found = [paid, await note(paid), is_new]
        if ctx.attempt == 1:
            raise ValueError("again")
        return found

    async def main(ff: Fabric) -> None:
        run = await ff.submit(order)
        await waits(run)
        engine = await ff.start()
        (wait,) = (await engine.list_waits()).items
        assert QUESTION in wait.waits_for
        assert wait.reason == "waiting_for_approval"
        with pytest.raises(InvalidPayload):
            await ff.approve(run, QUESTION, by="ada")
        with pytest.raises(InvalidPayload):
            await ff.approve(run, QUESTION, by="ada", payload=8)
        await ff.approve(run, QUESTION, by="ada", payload="paid, says the bank")
        assert await run.result() == ["paid, says the bank", "paid, says the bank", True]
        assert ran == [7]
        assert await keys(ff, run) == ["pay", "ask:pay/asked", "pay", "patch:later", "note"]

    worked(ff, main)


@pytest.mark.parametrize("how", ["resume", "reject"])
def test_an_answer_may_be_that_it_did_not_happen(url: str, how: str) -> None:
    ff, ran = Fabric(url), list[Any]()

    @ff.step(once=True, on_interrupted="ask")
    async def pay() -> str | None:
        ran.append(1)
        await lose_lease(ff)
        return None

    @ff.task
    async def order() -> str:
        try:
            await pay.options(key="order/7")()
        except StepInterrupted as error:
            return error.reason
        return "paid"

    async def main(ff: Fabric) -> None:
        run = await ff.submit(order)
        await waits(run)
        if how == "reject":
            await ff.reject(run, "did pay[order/7] happen?", by="ada")
            expected = "operator:ada says that it did not happen"
        else:
            engine = await ff.start()
            await engine.resume_execution(execution_id=run.id, actor="ada")
            expected = "ada gave no answer whether it happened"
        assert await run.result() == expected
        assert ran == [1]

    worked(ff, main)


def test_a_sync_handler_asks_too(url: str) -> None:
    ff, ran = Fabric(url), list[int]()
    loops: list[asyncio.AbstractEventLoop] = []

    @ff.step(once=True, on_interrupted="ask")
    def pay() -> int:
        ran.append(1)
        engine = asyncio.run_coroutine_threadsafe(ff.start(), loops[0]).result()
        execution_id = current_step().journal.owner.claimed.execution_id
        revoked = engine.revoke_lease(execution_id=execution_id, reason="x")
        asyncio.run_coroutine_threadsafe(revoked, loops[0]).result()
        return 1

    @ff.task
    def order() -> int:
        return pay()

    async def main(ff: Fabric) -> None:
        loops.append(asyncio.get_running_loop())
        run = await ff.submit(order)
        await waits(run)
        await ff.signal(run, QUESTION, payload=12)
        assert await run.result() == 12
        assert ran == [1]

    worked(ff, main)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"once": True, "retries": 1}, "once"),
        ({"once": True, "effects": False}, "once"),
        ({"once": 1}, "once"),
        ({"on_interrupted": "ask"}, "on_interrupted"),
        ({"once": True, "on_interrupted": "wait"}, "on_interrupted"),
        ({"once": True, "on_interrupted": ["ask"]}, "on_interrupted"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    options: dict[str, Any], field: str
) -> None:
    """7.2: when decorated."""
    ff = Fabric("memory://")
    with pytest.raises(InvalidInput) as caught:
        ff.step(**options)(lambda: None)
    assert caught.value.fields["field"] == field
