"""Submits in handlers: recorded with what they create, so that nothing is submitted twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric import (
    Context,
    Fabric,
    InvalidInput,
    OutsideScope,
    PublicState,
    Run,
    RunFailed,
    SyncContext,
)
from flowfabric.api.backend import EngineBackend
from flowfabric.errors import LaneClosed, OutcomeUnknown
from flowfabric.model.journal import EntryKind
from flowfabric.model.results import Created, Duplicate
from tests.sdk.journal.bench import journal, keys, worked
from tests.sdk.workshop import until


class Office:
    """Handlers that are run again after they have submitted, and what they saw in each run."""

    def __init__(self, url: str) -> None:
        self.ff = ff = Fabric(url)
        self.seen: list[list[str]] = []
        self.ran: list[int] = []
        office = self

        @ff.task
        async def double(number: int) -> int:
            office.ran.append(number)
            return 2 * number

        self.double = double

    async def again(self, ctx: Context, *runs: Run[Any]) -> None:
        """Note what was submitted, and fail the first time."""
        self.seen.append([each.id for each in runs])
        if ctx.attempt == 1:
            raise ValueError("after the submits")

    async def submitted(self) -> set[str]:
        """The ids of everything of the kind."""
        engine = await self.ff.start()
        page = await engine.list_executions(execution_kind="double")
        return {each.execution_id for each in page.items}


@pytest.fixture
def office(url: str) -> Office:
    return Office(url)


def test_another_run_gets_the_same_runs_and_submits_nothing(office: Office) -> None:
    """One submit, one of a task, many, and by a key."""
    ff, double = office.ff, office.double

    @ff.task(retries=1, backoff="1ms")
    async def handle(ctx: Context) -> list[int]:
        one = await ff.submit(double, 1)
        other = await double.submit(2)
        many = await ff.submit_many(double, [3, 4])
        keyed = await double.options(key="five").submit(5)
        again = await ff.submit(double, 5, key="five")
        assert (one.is_new, keyed.is_new, again.is_new) == (True, True, False)
        assert isinstance(one.answer, Created)
        assert isinstance(again.answer, Duplicate)
        runs = (one, other, *many, keyed)
        await office.again(ctx, *runs)
        return [await each.result() for each in runs]

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        assert await run.result() == [2, 4, 6, 8, 10]
        assert len(office.seen) > 1
        assert all(ids == office.seen[0] for ids in office.seen)
        assert await office.submitted() == set(office.seen[0])
        assert sorted(office.ran) == [1, 2, 3, 4, 5]
        found = [each.key for each in await journal(ff, run) if each.kind is EntryKind.SUBMIT]
        assert found == [
            *("submit:double", "submit:double#2", "submit:double#3"),
            *("submit:double[five]", "submit:double[five]#2"),
        ]

    worked(ff, main)


def test_a_flow_is_submitted_once(office: Office) -> None:
    ff, flows = office.ff, []

    @ff.task(retries=1, backoff="1ms")
    async def handle(ctx: Context) -> dict[str, Any]:
        with ff.flow("pair") as f:
            f.add(office.double, f.add(office.double, 1, name="first"), name="second")
        made = await f.submit()
        assert await f.submit() is made
        flows.append((made.flow_id, made.is_new, sorted(await made.nodes())))
        await office.again(ctx)
        return await made.result()

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        assert await run.result() == {"first": 2, "second": 4}
        assert len(flows) == 2
        assert flows[0] == flows[1]
        assert flows[0][1:] == (True, ["first", "second"])
        assert await keys(ff, run) == ["submit:pair"]

    worked(ff, main)


def test_a_sync_handler_submits_once(office: Office) -> None:
    ff = office.ff

    @ff.task(retries=1, backoff="1ms")
    def handle(ctx: SyncContext) -> str:
        with ff.sync.flow("lone") as f:
            f.add(office.double, 4)
        one = ff.sync.submit(office.double, 1)
        many = ff.sync.submit_many(office.double, [2, 3])
        flow = f.submit()
        assert (one.is_new, flow.is_new) == (True, True)
        office.seen.append([one.id, *(each.id for each in many), flow.flow_id])
        if ctx.attempt == 1:
            raise ValueError("after the submits")
        return one.id

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        one = await run.result()
        assert office.seen[0] == office.seen[1]
        assert await ff.run(one, office.double).result() == 2
        assert len(await office.submitted()) == 4
        assert await keys(ff, run) == ["submit:double", "submit:double#2", "submit:lone"]

    worked(ff, main)


def test_submits_of_one_turn_share_a_commit(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that is refused does not keep the others back."""
    ff, double, asked = office.ff, office.double, []
    create = EngineBackend.create_executions

    async def counted(engine: EngineBackend, requests: Any, **more: Any) -> Any:
        asked.append(len(requests))
        return await create(engine, requests, **more)

    monkeypatch.setattr(EngineBackend, "create_executions", counted)

    @ff.task(retries=1, backoff="1ms")
    async def handle(ctx: Context) -> list[int]:
        runs = await asyncio.gather(*(ff.submit(double, number) for number in range(20)))
        await office.again(ctx, *runs)
        shut = double.options(lane="shut")
        several = (double.submit(20), shut.submit(21), double.submit(22))
        made: list[Any] = await asyncio.gather(*several, return_exceptions=True)
        assert isinstance(made.pop(1), LaneClosed)
        return [await each.result() for each in (*runs, *made)]

    async def main(ff: Fabric) -> None:
        engine = await ff.start()
        await engine.set_lane_state(lane_id="shut", lane_state="disabled")
        found = await (await ff.submit(handle)).result()
        assert found == [2 * number for number in range(23) if number != 21]
        assert asked[:2] == [20, 3]
        assert asked[2:5] == [1, 1, 1]

    worked(ff, main)


def test_a_refused_submit_that_is_caught_is_history(office: Office) -> None:
    ff, told = office.ff, []

    @ff.task(retries=1, backoff="1ms")
    async def handle(ctx: Context) -> str:
        try:
            await ff.submit(office.double, 1, lane="shut")
        except LaneClosed as error:
            told.append((error.detail, dict(error.fields)))
        if ctx.attempt == 1:
            engine = await ff.start()
            await engine.set_lane_state(lane_id="shut", lane_state="active")
            raise ValueError("later")
        return "done"

    async def main(ff: Fabric) -> None:
        engine = await ff.start()
        await engine.set_lane_state(lane_id="shut", lane_state="disabled")
        run = await ff.submit(handle)
        assert await run.result() == "done"
        assert len(told) == 2
        assert told[0] == told[1]
        assert await office.submitted() == set()

    worked(ff, main)


def test_a_refused_submit_that_ends_the_attempt_is_tried_again(office: Office) -> None:
    ff = office.ff

    @ff.task
    async def handle() -> int:
        return await (await ff.submit(office.double, 1, lane="shut")).result()

    async def main(ff: Fabric) -> None:
        engine = await ff.start()
        await engine.set_lane_state(lane_id="shut", lane_state="disabled")
        run = await ff.submit(handle)
        with pytest.raises(RunFailed) as caught:
            await run.result()
        assert "shut" in caught.value.reason
        await engine.set_lane_state(lane_id="shut", lane_state="active")
        await engine.replay_execution(execution_id=run.id)
        assert await run.result() == 2

    worked(ff, main, lanes=["default", "shut"])


def test_in_a_step_it_is_plain_code(office: Office) -> None:
    ff = office.ff

    @ff.step
    async def order(number: int) -> str:
        return (await ff.submit(office.double, number)).id

    @ff.task
    async def handle() -> int:
        return await ff.run(await order(3), office.double).result()

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        assert await run.result() == 6
        assert await keys(ff, run) == ["order", "ended"]

    worked(ff, main)


def test_a_task_of_the_handlers_own_needs_a_key(office: Office) -> None:
    ff, double = office.ff, office.double

    @ff.task
    async def handle(ctx: Context) -> list[str]:
        async def later(**options: Any) -> str:
            await asyncio.sleep(0)
            try:
                return (await ff.submit(double, 1, **options)).id
            except OutsideScope as error:
                return error.detail

        refused, known, other = await asyncio.gather(later(), later(key="a"), later(key="b"))
        in_branches = await ctx.gather(later(), later())
        assert len({known, other, *in_branches}) == 4
        return [refused]

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        (refused,) = await run.result()
        assert "ctx.gather" in refused
        assert len(await office.submitted()) == 4
        assert set(await keys(ff, run)) == {
            *("submit:double[a]", "submit:double[b]"),
            *("gather/0/submit:double", "gather/1/submit:double"),
        }

    worked(ff, main)


@pytest.mark.parametrize("what", ["other arguments", "another call", "no submit before"])
def test_code_that_submits_something_else_is_held(office: Office, what: str) -> None:
    ff, double, is_first = office.ff, office.double, True

    @ff.step
    async def submit_double() -> None: ...

    @ff.task(retries=1, backoff="1ms")
    async def handle() -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            await ff.submit(double, 1)
            raise ValueError("again")
        if what == "other arguments":
            await ff.submit(double, 2)
        elif what == "another call":
            await ff.submit("other", {})
        else:
            await submit_double()

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)

        async def is_held() -> bool:
            return await run.state() is PublicState.SUSPENDED

        await until(is_held)
        why = (await run.explain()).summary
        assert "submit:double" in why
        assert len(await office.submitted()) == 1

    worked(ff, main)


def test_a_lost_reply_submits_one(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    create, lost = EngineBackend.create_executions, list[int]()

    async def lose(engine: EngineBackend, requests: Any, **more: Any) -> Any:
        answer = await create(engine, requests, **more)
        if not lost:
            lost.append(1)
            raise OutcomeUnknown("the connection broke")
        return answer

    monkeypatch.setattr(EngineBackend, "create_executions", lose)
    ff = office.ff

    @ff.task
    async def handle() -> str:
        return (await ff.submit(office.double, 1)).id

    async def main(ff: Fabric) -> None:
        run = await (await ff.submit(handle)).result()
        assert await office.submitted() == {run}
        assert lost

    worked(ff, main)


def test_a_worker_that_lost_its_lease_submits_nothing(office: Office) -> None:
    ff, entered, go_on = office.ff, asyncio.Event(), asyncio.Event()
    runs: list[str] = []

    @ff.task
    async def handle(ctx: Context) -> str:
        if not entered.is_set():
            entered.set()
            try:
                await go_on.wait()
            finally:  # it is stopped, and tries all the same
                await ff.submit(office.double, 1)
        runs.append((await ff.submit(office.double, 2)).id)
        return runs[-1]

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        await entered.wait()
        engine = await ff.start()
        await engine.revoke_lease(execution_id=run.id, reason="lost")
        assert await run.result() == runs[0]
        assert await office.submitted() == set(runs)

    worked(ff, main, lease_ttl="2s")


def test_a_fork_submits_nothing_of_its_prefix(office: Office) -> None:
    ff = office.ff

    @ff.step
    async def mark(name: str) -> str:
        return name

    @ff.task
    async def handle() -> str:
        made = await ff.submit(office.double, 1)
        await mark("after it")
        return made.id

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        first = await run.result()
        fork = await run.fork(before="mark")
        assert await fork.result() == first
        assert await office.submitted() == {first}

    worked(ff, main)


def test_a_submit_to_another_store_or_by_a_connection_is_no_entry(url: str) -> None:
    ff, other = Fabric(url), Fabric("memory://")

    @ff.task
    async def handle() -> None:
        await other.submit("elsewhere", {})
        with pytest.raises(InvalidInput):  # what is no connection is refused as ever
            await ff.submit("here", {}, connection=object())

    async def main(ff: Fabric) -> None:
        async with other:
            run = await ff.submit(handle)
            await run.result()
            assert await keys(ff, run) == []
            found = await (await other.start()).list_executions(execution_kind="elsewhere")
            assert len(found.items) == 1

    worked(ff, main)
