"""Submits of handlers in the kit: recorded, replayed without a store, and in histories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowfabric import Context, Fabric
from flowfabric.errors import LaneClosed
from flowfabric.model.record import replace
from flowfabric.testing import ReplayMismatch, TestFabric, check, read_history, run, write_history
from flowfabric.testing.debugging import debug
from flowfabric.testing.history import history_of
from tests.testing.conftest import Play

ff = Fabric("memory://")
STEPS: list[str] = []


@ff.step
async def note(value: str) -> str:
    STEPS.append(value)
    return value


@ff.task
async def double(number: int) -> int:
    return 2 * number


@ff.task(retries=1)
async def handle(ctx: Context) -> list[Any]:
    one = await ff.submit(double, 1)
    many = await ff.submit_many(double, [2, 3])
    try:
        await double.options(lane="shut").submit(4)
    except LaneClosed as error:
        await note(error.code)
    with ff.flow("pair") as f:
        f.add(double, f.add(double, 5, name="first"), name="second")
    flow = await f.submit()
    await ctx.sleep("1d")
    keyed = await double.options(key="six").submit(6)
    if ctx.attempt == 1:
        raise ValueError("once more")
    results = [await each.result() for each in (one, *many, keyed)]
    return [*results, flow.flow_id, flow.is_new]


def test_submits_replay_from_every_prefix(play: Play, tmp_path: Path) -> None:
    STEPS.clear()

    async def scenario(fabric: TestFabric) -> None:
        engine = await ff.start()
        await engine.set_lane_state(lane_id="shut", lane_state="disabled")
        made = await fabric.submit(handle)
        await fabric.settle(skip=True)  # and every prefix is replayed
        result = await made.result()
        assert result[:4] == [2, 4, 6, 12]
        assert result[-1] is True
        assert STEPS == ["lane_closed"]
        page = await fabric.ff.start()
        found = await page.list_executions(execution_kind="double")
        assert len(found.items) == 6
        history = await history_of(engine, made.id)
        file = tmp_path / "history.jsonl"
        write_history(history, file)
        again = read_history(file)
        assert [each.value for each in again.entries] == [each.value for each in history.entries]
        await check(handle, again)

    play(scenario, ff)


@pytest.mark.parametrize("fault", ["other arguments", "one more", "one less"])
def test_a_replay_finds_other_submits(fault: str) -> None:
    app, is_changed = Fabric("memory://"), False

    @app.task
    async def other(number: int) -> int:
        return number

    @app.task
    async def changed(ctx: Context) -> None:
        await app.submit(other, 7 if is_changed and fault == "other arguments" else 1)
        if is_changed and fault == "one more":
            await app.submit(other, 2)
        if not (is_changed and fault == "one less"):
            await ctx.value("last", lambda: 1)
            await app.submit(other, 3)

    async def main() -> None:
        nonlocal is_changed
        async with TestFabric(app) as fabric:
            made = await fabric.submit(changed)
            await fabric.settle()
            history = await history_of(await app.start(), made.id)
            is_changed = True
            with pytest.raises(ReplayMismatch, match=r"submit:other|last"):
                await check(changed, history)
            is_changed = False

    run(main())


def test_a_debugger_stops_where_the_journal_has_no_submit() -> None:
    app = Fabric("memory://")

    @app.task
    async def other(number: int) -> int:
        return number

    @app.task
    async def debugged() -> str:
        first = await app.submit(other, 1)
        second = await app.submit(other, 2)
        return first.id + second.id

    async def main() -> None:
        async with TestFabric(app) as fabric:
            made = await fabric.submit(debugged)
            await fabric.settle()
            history = await history_of(await app.start(), made.id)
            whole = await debug(debugged, history)
            assert whole.why.startswith("the handler returned")
            until = await debug(debugged, history, until="submit:other#2")
            assert until.key == "submit:other#2"
            cut = await debug(debugged, replace(history, entries=history.entries[:1]))
            assert cut.key == "submit:other#2"
            assert cut.fits

    run(main())
