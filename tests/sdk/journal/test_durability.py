"""When an entry is durable: before anything that another system sees begins, and no earlier."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from flowfabric import Context, EntryState, Fabric, OutcomeUnknown, Run, SyncContext
from flowfabric.api.backend import EngineBackend
from flowfabric.model.journal import Checkpointed
from flowfabric.stores.callers.receipts import receipts_sql
from tests.sdk.journal.bench import journal, keys, worked
from tests.sdk.workshop import WAIT_S, until, within, working


class Gate:
    """Checkpoints of an engine, held up at will."""

    def __init__(self, engine: EngineBackend) -> None:
        self._checkpoint = engine.checkpoint
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.asked: list[tuple[str, ...]] = []
        self.next_keys: list[str | None] = []
        self.before: Callable[[], Awaitable[None]] | None = None
        self.after: Callable[[], Awaitable[None]] | None = None
        engine.checkpoint = self._pass  # type: ignore[method-assign]

    async def _pass(self, handle: Any, **asked: Any) -> Checkpointed:
        self.asked.append(tuple(each.key for each in asked["entries"]))
        self.next_keys.append(asked.get("next_key"))
        await self.is_open.wait()
        answer = await self._checkpoint(handle, **asked)
        if self.after is not None:
            await self.after()
        return answer


@asynccontextmanager
async def gated(ff: Fabric) -> AsyncIterator[Gate]:
    """A worker whose checkpoints pass a gate."""
    async with ff:
        gate = Gate(await ff.start())
        async with working(ff):
            yield gate
            gate.is_open.set()


def test_no_effect_begins_before_what_it_depends_on_is_durable(url: str) -> None:
    """7.1.11."""
    ff, ran = Fabric(url), []

    @ff.step
    async def work(name: str) -> str:
        ran.append(name)
        return name

    @ff.task
    async def chain() -> None:
        await work("a")
        await work("b")

    async def story() -> None:
        async with gated(ff) as gate:
            gate.is_open.clear()
            run = await ff.submit(chain)

            async def asked() -> bool:
                return bool(gate.asked)

            await until(asked)
            for _ in range(50):
                await asyncio.sleep(0)
            assert (ran, gate.asked, gate.next_keys) == (["a"], [("work",)], ["work#2"])
            gate.is_open.set()
            await within(run.result())
            assert ran == ["a", "b"]

    asyncio.run(story())


def test_a_transaction_does_not_begin_before_other_branches_are_durable(
    url: str, tmp_path: Path
) -> None:
    """A branch that ends while the connection is opened has a result that the function may see."""
    ff, shop = Fabric(url), tmp_path / "shop.db"
    may_end, opening, may_open = asyncio.Event(), threading.Event(), threading.Event()
    closed, begun, gates = threading.Event(), list[bool](), list[Gate]()
    with closing(sqlite3.connect(shop)) as connection:
        connection.execute(receipts_sql("sqlite"))

    class Watched(sqlite3.Connection):
        def close(self) -> None:
            closed.set()
            super().close()

    def pool() -> sqlite3.Connection:
        opening.set()
        assert may_open.wait(WAIT_S)
        return sqlite3.connect(shop, factory=Watched)

    @ff.step
    async def note() -> str:
        await may_end.wait()
        return "noted"

    def sell(connection: sqlite3.Connection) -> None:
        begun.append(gates[0].is_open.is_set())

    @ff.task
    async def order(ctx: Context) -> None:
        await ctx.gather(note(), ctx.transaction("sell", pool, sell))

    async def story() -> None:
        async with gated(ff) as gate:
            gates.append(gate)
            run = await ff.submit(order)
            await asyncio.to_thread(opening.wait, WAIT_S)
            gate.is_open.clear()
            may_end.set()

            async def is_held_up() -> bool:
                return ("note",) in gate.asked

            await until(is_held_up)
            may_open.set()
            await asyncio.to_thread(closed.wait, WAIT_S)  # of the first try
            gate.is_open.set()
            await within(run.result())
            assert begun == [True]

    asyncio.run(story())


def test_reads_run_ahead_of_the_commit(url: str) -> None:
    """7.1.12."""
    ff, ran, all_ran = Fabric(url), [], asyncio.Event()

    @ff.step(effects=False)
    async def read(name: str) -> str:
        ran.append(name)
        await asyncio.sleep(0)
        if name == "c":
            all_ran.set()
        return name

    @ff.task
    async def chain() -> None:
        for name in "abc":
            await read(name)

    async def story() -> None:
        async with gated(ff) as gate:
            gate.is_open.clear()
            run = await ff.submit(chain)
            await within(all_ran.wait())
            assert ran == ["a", "b", "c"]
            assert gate.asked[0][0] == "read"  # sent in the background
            assert await journal(ff, run) == ()
            gate.is_open.set()
            await within(run.result())
            assert await keys(ff, run) == ["read", "read#2", "read#3"]

    asyncio.run(story())


def test_completion_carries_the_tail(url: str) -> None:
    """7.1.13: one step and return, and no commit but claim and completion."""
    ff = Fabric(url)

    @ff.step
    async def work() -> str:
        await asyncio.sleep(0)
        return "done"

    @ff.task
    async def one() -> str:
        return await work()

    async def story() -> None:
        async with gated(ff) as gate:
            run = await ff.submit(one)
            assert await within(run.result()) == "done"
            assert gate.asked == []
            (entry,) = await journal(ff, run)
            assert (entry.key, entry.value) == ("work", b'"done"')

    asyncio.run(story())


def test_flush_waits_until_everything_is_durable(url: str) -> None:
    ff, seen = Fabric(url), []

    @ff.task
    async def careful(ctx: Context) -> None:
        await ctx.step.options(effects=False)("read", lambda: 1)
        await ctx.flush()
        seen.append(await keys(ff, Run(ff, ctx.execution_id)))

    @ff.task
    def careful_in_a_thread(ctx: SyncContext) -> None:
        ctx.step.options(effects=False)("read", lambda: 1)
        ctx.flush()

    async def main(ff: Fabric) -> None:
        await (await ff.submit(careful)).result()
        await (await ff.submit(careful_in_a_thread)).result()
        assert seen == [["read"]]

    worked(ff, main)


def test_a_commit_of_unknown_outcome_is_repeated_and_recorded_once(url: str) -> None:
    """7.1.16."""
    ff, ran, lost = Fabric(url), [], list[int]()

    @ff.step
    async def work(name: str) -> str:
        ran.append(name)
        return name

    @ff.task
    async def chain() -> None:
        for name in "abc":
            await work(name)

    async def lose_the_reply() -> None:
        if len(lost) < 2:
            lost.append(1)
            raise OutcomeUnknown("the connection was cut after the commit")

    async def story() -> None:
        async with gated(ff) as gate:
            gate.after = lose_the_reply
            run = await ff.submit(chain)
            await within(run.result())
            assert (ran, len(lost)) == (["a", "b", "c"], 2)
            assert await keys(ff, run) == ["work", "work#2", "work#3"]

    asyncio.run(story())


def test_a_stale_owner_records_nothing(url: str) -> None:
    """7.1.15: its lease was taken over while its step ran."""
    ff, ran, entered, go_on = Fabric(url), [], asyncio.Event(), asyncio.Event()

    @ff.step
    async def work(name: str) -> str:
        ran.append(name)
        if len(ran) == 1:
            entered.set()
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                await go_on.wait()  # it does not let itself be stopped
        return f"{name}{len(ran)}"

    @ff.task
    async def chain() -> list[str]:
        return [await work("a"), await work("b")]

    async def main(ff: Fabric) -> None:
        engine = await ff.start()
        run = await ff.submit(chain)
        await entered.wait()
        await engine.revoke_lease(execution_id=run.id, reason="suspicious")
        assert await run.result() == ["a2", "b3"]
        go_on.set()
        await asyncio.sleep(0)
        found = await journal(ff, run)
        assert [each.value for each in found] == [b'"a2"', b'"b3"']
        assert ran == ["a", "a", "b"]

    worked(ff, main)


def test_drain_in_the_middle_of_a_step_goes_on_elsewhere(url: str) -> None:
    """7.1.52: as the same attempt, with the steps that were recorded."""
    ff, ran, entered = Fabric(url), [], asyncio.Event()

    @ff.step(effects=False)
    async def work(name: str) -> str:
        ran.append(name)
        if name == "c" and ran.count("c") == 1:
            entered.set()
            await asyncio.Event().wait()
        return name

    @ff.task
    async def chain(ctx: Context) -> int:
        for name in "abc":
            await work(name)
        return ctx.attempt

    async def story() -> None:
        async with ff:
            run = await ff.submit(chain)
            async with working(ff, drain_timeout="1ms"):
                await within(entered.wait())
            async with working(ff):
                assert await within(run.result()) == 1
            assert ran == ["a", "b", "c", "c"]
            assert len(await journal(ff, run)) == 3

    asyncio.run(story())


def test_many_entries_are_sent_in_pieces(url: str) -> None:
    ff = Fabric(url)

    @ff.step(effects=False)
    async def number(n: int) -> str:
        return "x" * 2_000

    @ff.task(retries=1, backoff="1ms")
    async def many(ctx: Context) -> int:
        for n in range(1_500):
            await number(n)
        if ctx.attempt == 1:
            raise ValueError("again")
        return ctx.attempt

    async def main(ff: Fabric) -> None:
        run = await ff.submit(many)
        assert await run.result() == 2
        found = await run.journal()
        assert [each.position for each in found] == list(range(1_500))
        assert all(each.state is EntryState.OK for each in found)

    worked(ff, main)


@pytest.mark.parametrize("is_sync", [False, True])
def test_progress_and_frames_are_not_shown_again(url: str, is_sync: bool) -> None:
    """What was shown while a step was first run is not shown by its replay."""
    ff = Fabric(url)

    @ff.task(retries=1, backoff="1ms")
    async def show(ctx: Context) -> list[bool]:
        before = ctx.is_replaying
        await ctx.progress(10 * ctx.attempt)
        await ctx.step("work", lambda: 1)
        if ctx.attempt == 1:
            raise ValueError("again")
        return [before, ctx.is_replaying]

    @ff.task(retries=1, backoff="1ms")
    def show_in_a_thread(ctx: SyncContext) -> list[bool]:
        before = ctx.is_replaying
        ctx.progress(10 * ctx.attempt)
        ctx.step("work", lambda: 1)
        if ctx.attempt == 1:
            raise ValueError("again")
        return [before, ctx.is_replaying]

    async def main(ff: Fabric) -> None:
        run = await ff.submit(show_in_a_thread if is_sync else show)
        assert await run.result() == [True, False]
        assert (await run.info()).progress_pct == 10

    worked(ff, main)


def test_branches_do_not_end_a_replay(url: str) -> None:
    ff, seen = Fabric(url), list[list[bool]]()

    @ff.step
    async def work(number: int) -> int:
        return number

    @ff.task(retries=1, backoff="1ms")
    async def show(ctx: Context) -> None:
        told = [ctx.is_replaying]
        await work(1)
        told.append(ctx.is_replaying)
        await ctx.map(work, [2, 3])
        told.append(ctx.is_replaying)
        await work(4)
        told.append(ctx.is_replaying)
        seen.append(told)
        if ctx.attempt == 1:
            raise ValueError("again")

    async def main(ff: Fabric) -> None:
        await (await ff.submit(show)).result()
        assert seen == [[False] * 4, [True, True, True, False]]

    worked(ff, main)
