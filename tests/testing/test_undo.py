"""Undos and hooks in the kit: they run as in production, and every journal is replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowfabric import (
    ChildFailed,
    Context,
    Fabric,
    Fatal,
    InvalidInput,
    PublicState,
    RunEnded,
    RunFailed,
    SyncContext,
)
from flowfabric.errors import UndosNotRun
from flowfabric.model.journal import EntryKind
from flowfabric.testing import TestFabric, check, read_history, run, write_history
from tests.testing.conftest import Play


class Shop:
    """A saga of three steps; `done` tells what was done and undone, in order."""

    def __init__(self) -> None:  # noqa: C901 - a flat list of small functions
        self.ff = ff = Fabric("memory://")
        self.done: list[str] = []
        done = self.done

        @ff.step
        async def act(what: str) -> str:
            done.append(what)
            return what

        @ff.task
        async def refund(what: str) -> None:
            done.append(f"undo {what}")

        @ff.task
        async def broken(what: str) -> None:
            done.append(f"try {what}")
            raise Fatal("no")

        @ff.task
        async def told(ended: RunEnded) -> None:
            done.append(f"told {ended.state}")

        async def fail(ctx: Context) -> None:
            raise Fatal("sold out")

        async def undo_now(ctx: Context) -> None:
            await ctx.undo_now()
            await ctx.undo_now()  # nothing is left
            await act("else")
            await ctx.undo(refund, "else")
            raise Fatal("after all")

        async def sleep(ctx: Context) -> None:
            await ctx.sleep("30d")

        async def go_on(ctx: Context) -> None:
            with pytest.raises(UndosNotRun, match="undo:refund, side/undo:refund"):
                await ctx.continue_as_new("other")

        async def succeed(ctx: Context) -> None:
            pass

        ends = {"fail": fail, "now": undo_now, "sleep": sleep, "continue": go_on}
        ends |= {"well": succeed, "broken": succeed}

        @ff.task(on_failure=told, deadline="2d")
        async def order(ctx: Context, how: str) -> str:
            await act("charge")
            await ctx.undo(refund, "charge")
            async with ctx.branch("side"):
                await ctx.undo(refund.options(priority=3), what="side")
            await act("book")
            await ctx.undo(broken if how == "broken" else refund, "book")
            await ends[how](ctx)
            return how

        @ff.task(undo_stops=True)
        def sync_order(ctx: SyncContext, how: str) -> str:
            ctx.undo(refund, "a")
            ctx.undo(broken, "b")
            if how == "now":
                with pytest.raises(ChildFailed):
                    ctx.undo_now()
                return how
            raise Fatal("no")

        self.order, self.sync_order, self.refund = order, sync_order, refund


UNDONE = ["undo book", "undo side", "undo charge"]


def test_a_failed_saga_is_undone_last_first_and_told(play: Play) -> None:
    shop = Shop()

    async def scenario(fabric: TestFabric) -> None:
        found = await fabric.submit(shop.order, "fail")
        await fabric.settle()
        assert shop.done[:2] == ["charge", "book"]
        assert [each for each in shop.done if each.startswith("undo")] == UNDONE
        assert "told failed" in shop.done
        history = await fabric.history(found)
        undos = [each.key for each in history.entries if each.kind is EntryKind.UNDO]
        assert undos == ["undo:refund", "side/undo:refund", "undo:refund#2"]

    play(scenario, shop.ff)


def test_histories_of_a_run_its_hook_and_its_undos_are_replayed_from_files(tmp_path: Path) -> None:
    """What a hook is told is in the file, and so is what an undo was called with: no store is asked
    when they are replayed."""
    shop = Shop()

    async def record() -> list[str]:
        kinds = []
        async with TestFabric(shop.ff) as fabric:
            for how in ("fail", "well"):
                await fabric.submit(shop.order, how)
                await fabric.settle()
            page = await fabric._stage_here().front.list_executions(limit=100)
            for each in page.items:
                history = await fabric.history(each.execution_id)
                write_history(history, tmp_path / f"{each.execution_id[-12:]}.history")
                kinds.append(history.kind)
        return kinds

    kinds = run(record())
    assert {"order", "told", "refund"} <= set(kinds)
    done = list(shop.done)
    found = [read_history(path) for path in sorted(tmp_path.iterdir())]
    assert sorted(each.kind for each in found) == sorted(kinds)
    (hook,) = [each for each in found if each.kind == "told"]
    assert b'"state":"failed"' in hook.payload
    for each in found:
        run(check(shop.ff.tasks[each.kind], each))
    assert shop.done != done  # handlers without steps run again, as in any replay


@pytest.mark.parametrize("how", ["cancel", "expire"])
def test_a_sleeping_saga_is_undone_without_its_handler(play: Play, how: str) -> None:
    """Scenario 38: no handler is asked."""
    shop = Shop()

    async def scenario(fabric: TestFabric) -> None:
        found = await fabric.submit(shop.order, "sleep")
        await fabric.settle()
        assert shop.done == ["charge", "book"]
        if how == "cancel":
            await found.cancel("changed their mind")
        else:
            await fabric.advance("2d")
        await fabric.settle()
        assert [each for each in shop.done if each.startswith("undo")] == UNDONE
        assert ("told expired" in shop.done) is (how == "expire")

    play(scenario, shop.ff)


def test_a_success_undoes_nothing(play: Play) -> None:
    shop = Shop()

    async def scenario(fabric: TestFabric) -> None:
        for how in ("well", "continue"):
            found = await fabric.submit(shop.order, how)
            await fabric.settle()
            assert await found.result() == how
        assert shop.done == ["charge", "book"] * 2

    play(scenario, shop.ff)


def test_a_handler_undoes_itself_and_waits_for_it(play: Play) -> None:
    """The end undoes only what was registered since; a retry begins from the top."""
    shop = Shop()

    async def scenario(fabric: TestFabric) -> None:
        found = await fabric.submit(shop.order, "now")
        await fabric.advance("1s")  # a wait that is locked is told a little later
        whole = ["charge", "book", *UNDONE, "else"]
        assert shop.done[:6] == whole
        assert sorted(shop.done[6:]) == ["told failed", "undo else"]
        with pytest.raises(RunFailed, match="after all"):
            await found.result()
        del shop.done[:]
        await found.retry()
        await fabric.advance("1s")
        assert shop.done[:6] == whole

    play(scenario, shop.ff)


def test_a_failed_undo_stops_the_others_where_the_task_says_so(play: Play) -> None:
    shop = Shop()

    async def scenario(fabric: TestFabric) -> None:
        for how in ("fail", "now"):
            found = await fabric.submit(shop.sync_order, how)
            await fabric.advance("1s")
            assert (await found.state() is PublicState.COMPLETED) is (how == "now")
            assert shop.done == ["try b"]
            del shop.done[:]
        found = await fabric.submit(shop.order, "broken")
        await fabric.settle()
        await found.result()

    play(scenario, shop.ff)


def test_what_cannot_be_an_undo_is_refused_in_the_handler(play: Play) -> None:
    shop = Shop()

    @shop.ff.task
    async def wrong(ctx: Context) -> None:
        for task, args, field in (
            (shop.refund.options(key="k"), ("a",), "key"),
            (shop.refund, (1,), "what"),
            ("refund", ("a",), "task"),
        ):
            with pytest.raises(InvalidInput) as caught:
                await ctx.undo(task, *args)  # type: ignore[arg-type]
            assert caught.value.fields["field"] == field

    async def scenario(fabric: TestFabric) -> None:
        found = await fabric.submit(wrong)
        await fabric.settle()
        await found.result()

    play(scenario, shop.ff)
