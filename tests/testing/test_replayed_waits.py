"""Replays go on behind waits: their outcomes are in histories, in files too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowfabric import Context, Fabric, Run, SyncContext, WaitTimedOut
from flowfabric.model.journal import EntryKind
from flowfabric.testing import (
    ReplayMismatch,
    TestFabric,
    check,
    read_history,
    redacted,
    run,
    write_history,
)
from tests.testing.conftest import Play
from tests.testing.test_replay_check import FAULTS, Handler

ff = Fabric("memory://")
CALLED: list[str] = []


@ff.step
async def note(value: Any) -> Any:
    CALLED.append(str(value))
    return value


@ff.task
async def double(number: int) -> int:
    return 2 * int(await note(number))


@ff.task
async def fails(number: int) -> int:
    raise ValueError(f"no {number}")


@ff.task
async def everything(ctx: Context, other: str) -> list[Any]:
    """Each kind of wait, in a row and beside each other."""
    found: list[Any] = [await note("begin")]
    await ctx.sleep("1d")
    found.append(await ctx.wait_for("reply", str, timeout="30d"))
    found.append(list(await ctx.approval("publish", of=2)))
    found.append(await ctx.wait_for("never", str, timeout="1d", default="nothing"))
    found.append(await ctx.call(double, 4))
    try:
        await ctx.call(fails, 1)
    except Exception as error:  # noqa: BLE001 - how it failed is what counts
        found.append(type(error).__name__)
    found.append(await ff.run(other).result())
    found.append(await ctx.gather(_waits(ctx, "left"), _waits(ctx, "right"), ctx.call(double, 5)))
    found.append(await ctx.first_of(ctx.sleep("9d"), _waits(ctx, "one"), ctx.call(double, 6)))
    async for name, each in ctx.as_completed(late=ctx.sleep("2d"), soon=_waits(ctx, "two")):
        found.append([name, each.result()])
    with pytest.raises(WaitTimedOut):
        await ctx.wait_for("late", timeout="1h")
    return [*found, await note("end")]


async def _waits(ctx: Context, word: str) -> str:
    said: str = await ctx.wait_for(word, str)
    await ctx.sleep("1h")
    return f"{await note(word)} {said}"


@ff.task
def in_thread(ctx: SyncContext) -> list[Any]:
    ctx.sleep("1d")
    said = ctx.wait_for("reply", str)
    child = ctx.call(double, 3)
    won = ctx.first_of(ctx.later.sleep("3d"), note.later("won"), ctx.later.wait_for("never", str))
    beside = ctx.as_completed(late=ctx.later.sleep("2d"), soon=ctx.later.sleep("1d"))
    order = [name for name, _ in beside]
    return [said, child, *won, *order, ctx.step("end", str, child)]


@ff.task
async def joins(ctx: Context) -> list[str]:
    return [name async for name, _ in ctx.as_completed(a=ctx.sleep("2d"), b=ctx.sleep("1d"))]


def other_code() -> Fabric:
    """A program whose tasks have the same names."""
    return Fabric("memory://")


async def played(fabric: TestFabric) -> Run[Any]:
    """A run through all of it."""
    other = await fabric.submit(double, 21)
    made = await fabric.submit(everything, other.id)
    await fabric.advance("1d")
    await fabric.signal(made, "reply", "hi")
    await fabric.advance("1h")
    for name in ("ada", "bo"):
        await fabric.approve(made, "publish", by=name)
    await fabric.advance("1d")
    for word in ("right", "left", "two"):
        if word == "two":
            await fabric.advance("2h")
        await fabric.signal(made, word, f"{word}!")
        await fabric.advance("10m")
    await fabric.settle(skip=True)
    return made


def test_a_replay_goes_through_every_kind_of_wait(play: Play, tmp_path: Path) -> None:
    async def scenario(fabric: TestFabric) -> None:
        made = await played(fabric)
        found = await made.result()
        assert found[1:5] == ["hi", ["operator:ada", "operator:bo"], "nothing", 8]
        assert found[5:8] == ["ChildFailed", 42, ["left left!", "right right!", 10]]
        history = await fabric.history(made)
        path = tmp_path / "everything.history"
        write_history(history, path)
        again = read_history(path)
        assert (again.outcomes, again.ends) == (history.outcomes, history.ends)
        CALLED.clear()
        await check(everything, again)
        assert CALLED == []
        text = path.read_text()
        write_history(redacted(again, ["wait:reply", "spawn:double", "result"]), path)
        assert '"hi"' in text
        assert '"hi"' not in path.read_text()
        await check(everything, read_history(path))

        @other_code().task(name="everything")
        async def changed(ctx: Context, other: str) -> None:
            await note("begin")
            await ctx.sleep("1d")
            await ctx.wait_for("reply", str, timeout="30d")
            await note("inserted")

        with pytest.raises(ReplayMismatch, match=r"next call is 'note#2'.*is 'approval:publish'"):
            await check(changed, again)

    play(scenario, ff)


def test_a_handler_that_waits_in_as_completed_has_no_worker() -> None:
    async def main() -> None:
        async with TestFabric(ff) as fabric:
            made = await fabric.submit(joins)
            await fabric.settle()
            assert await made.state() == "suspended"
            await fabric.advance("36h")
            assert await made.state() == "suspended"
            await fabric.advance("1d")
            assert await made.result() == ["b", "a"]

    run(main())


def test_a_sync_handler_is_replayed_behind_its_waits(play: Play) -> None:
    async def scenario(fabric: TestFabric) -> None:
        made = await fabric.submit(in_thread)
        await fabric.advance("1d")
        await fabric.signal(made, "reply", "hi")
        await fabric.advance("3d")
        assert await made.result() == ["hi", 6, 1, "won", "soon", "late", "6"]
        history = await fabric.history(made)
        await check(in_thread, history)

        @other_code().task(name="in_thread")
        def changed(ctx: SyncContext) -> None:
            ctx.sleep("1d")
            ctx.wait_for("reply", str)
            ctx.call(double, 3)
            ctx.step("other", str)

        with pytest.raises(ReplayMismatch, match="'other'"):
            await check(changed, history)

    play(scenario, ff)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_found_behind_waits(fault: Handler) -> None:
    async def main() -> None:
        async with TestFabric(ff) as fabric:

            async def behind(ctx: Context) -> Any:
                await ctx.sleep("1d")
                await ctx.gather(ctx.wait_for("left"), ctx.sleep("1h"))
                await ctx.call(double, 2)
                return await fault(ctx)

            made = await fabric.submit(fabric.task(behind))
            await fabric.advance("1d")
            await fabric.signal(made, "left", 1)
            with pytest.raises(ReplayMismatch, match="behind does not do the same"):
                await fabric.advance("2h")

    run(main())


def test_a_file_of_an_earlier_release_is_replayed_up_to_its_first_wait(tmp_path: Path) -> None:
    async def main() -> None:
        async with TestFabric(ff) as fabric:
            made = await played(fabric)
            path = tmp_path / "old.history"
            write_history(await fabric.history(made), path)
            _as_format_1(path)
            old = read_history(path)
            assert old.outcomes == {}
            await check(everything, old)

            @other_code().task(name="everything")
            async def changed(ctx: Context, other: str) -> None:
                await note("other")

            with pytest.raises(ReplayMismatch, match="After 0 of"):
                await check(changed, old)

    run(main())


def _as_format_1(path: Path) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["format"] = 1
    for line in lines[1:]:
        for word in ("refers_to", "outcome", "ends"):
            line.pop(word, None)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


APP = """
from flowfabric import Context, Fabric

ff = Fabric("sqlite:///{path}")


@ff.step
async def note(value: int) -> int:
    return value


@ff.task
async def child(number: int) -> int:
    return await note(number)


@ff.task
async def sends(ctx: Context, other: str) -> int:
    await ctx.sleep("1d")
    told = await ctx.call(child, 1)
    await note(told{changed})
    await ff.run(other).result()
    return await note(3)
"""


def test_ff_replay_goes_behind_waits_and_opens_no_store(tmp_path: Path) -> None:
    store, app = tmp_path / "app.db", tmp_path / "waiting.py"

    async def main() -> None:
        names: dict[str, Any] = {"__name__": "waiting"}
        exec(app.read_text(), names)  # noqa: S102 - our own text
        async with TestFabric(names["ff"]) as fabric:
            other = await fabric.submit("child", {"number": 7})
            made = await fabric.submit("sends", {"other": other.id})
            await fabric.settle(skip=True)
            assert await made.result() == 3
            write_history(await fabric.history(made), tmp_path / "sends.history")

    app.write_text(APP.format(path=store, changed=""))
    run(main())
    command = [sys.executable, "-m", "flowfabric.cli", "replay", "sends.history", "waiting:ff"]
    said = ""
    for changed, code in (("", 0), (" + 1", 1)):
        app.write_text(APP.format(path=store, changed=changed))
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        said = done.stdout
        assert done.returncode == code, said + done.stderr
    assert "'note' has other arguments" in said
    assert not store.exists()


@ff.task
async def races(ctx: Context) -> list[Any]:
    async def slowly(word: str) -> str:
        await note(word)
        await ctx.sleep("30m")
        return word

    first = await ctx.first_of(slowly("lost"), ctx.sleep("2m"))
    names = []
    async for name, _ in ctx.as_completed(late=slowly("late"), soon=ctx.sleep("2m")):
        names.append(name)
        break
    await ctx.sleep("10m")
    return [first[0], names]


@pytest.mark.parametrize("at", ["checkpoint", "commit"])
def test_a_race_has_its_winner_after_a_crash(play: Play, at: Any) -> None:
    """A step that a loser has recorded is not asked for again, and missed by no replay."""

    async def scenario(fabric: TestFabric) -> None:
        CALLED.clear()
        fabric.crash(after="first_of", at=at)
        made = await fabric.submit(races)
        await fabric.settle(skip=True)
        assert await made.result() == [1, ["soon"]]
        assert CALLED == ["lost", "late"]
        history = await fabric.history(made)
        assert {each.kind for each in history.entries} >= {EntryKind.WINNER, EntryKind.STEP}

    play(scenario, ff)
