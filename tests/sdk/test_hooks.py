"""Hooks of tasks and of single submits: what is created when a run ends, and how it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric import Context, Fabric, Fatal, FlowEnded, InvalidInput, Run, RunEnded, SyncContext
from flowfabric.api.executions import NewHook
from flowfabric.model.successor import Origin, Role
from tests.sdk.workshop import until, within, working


class Office:
    """Tasks, and what their hooks were told."""

    def __init__(self, url: str) -> None:
        self.ff = ff = Fabric(url)
        self.told: list[tuple[str, RunEnded]] = []
        self.silent = 0
        told = self.told

        @ff.task(on_end="ended")  # its own hook: hooks have none
        async def alert(ctx: Context, ended: RunEnded, loud: bool = False) -> None:
            told.append(("alert", ended))

        @ff.task
        def ended(ctx: SyncContext, how: RunEnded) -> None:
            told.append(("ended", how))

        @ff.task
        async def silent() -> None:
            self.silent += 1

        @ff.task(on_failure=alert.options(priority=5, delay="0s"), on_end="ended")
        async def order(n: int) -> dict[str, int]:
            if n < 0:
                raise Fatal("negative")
            return {"n": n}

        @ff.task
        async def parent(ctx: Context) -> int:
            found = await ctx.call(order, 3)
            return found["n"]

        self.alert, self.ended, self.quiet, self.order, self.parent = (
            alert,
            ended,
            silent,
            order,
            parent,
        )

    async def is_told(self, count: int) -> bool:
        """Whether hooks were told so often."""
        return len(self.told) == count

    async def hooks(self, run: Run[Any]) -> dict[Role, str | None]:
        """What has followed a run."""
        return {each.role: each.execution_id for each in (await run.info()).successors}


@pytest.fixture
def office(url: str) -> Office:
    return Office(url)


def test_hooks_of_a_task_run_with_what_has_happened(office: Office) -> None:
    asyncio.run(_hooks_run(office))
    told = {each.state: (name, each) for name, each in office.told if each.result != {"n": 3}}
    name, good = told["completed"]
    assert name == "ended"
    assert (good.kind, good.key, good.result) == ("order", "k", {"n": 1})
    assert good.tags == {"a.b": "c"}
    name, bad = told["failed"]
    assert (name, bad.category) == ("alert", "Fatal")
    assert "negative" in (bad.reason or "")
    assert office.silent == 1


async def _hooks_run(office: Office) -> None:
    ff = office.ff
    async with ff, working(ff):
        good = await office.order.options(key="k", tags={"a.b": "c"}).submit(1)
        assert await within(good.result()) == {"n": 1}
        bad = await ff.submit(office.order, -1, on_success="silent", on_end=office.quiet)
        await until(lambda: office.is_told(2))
        child = await ff.submit(office.parent)
        assert await within(child.result()) == 3
        await until(lambda: office.is_told(3))
        hooks = await office.hooks(bad)
        assert set(hooks) == {Role.ON_FAILURE, Role.ON_END}
        await within(ff.run(hooks[Role.ON_END] or "").result())
        alert = await ff.run(hooks[Role.ON_FAILURE] or "", office.alert).info()
        assert alert.successors == ()
        assert alert.origin == Origin(Role.ON_FAILURE, 0, bad.id)


def test_hooks_may_be_given_by_name_and_with_options() -> None:
    """A hook that is not known here has the usual argument."""
    office = Office("memory://")
    call = office.order.call(1)
    assert call.request().on_end == NewHook(
        execution_kind="ended", argument="how", priority=0, policy=office.ended.policy
    )
    named = office.order.options(on_end="elsewhere").call(1).request()
    assert named.on_end == NewHook(execution_kind="elsewhere")
    chosen = call.request().on_failure
    assert chosen is not None
    assert (chosen.argument, chosen.priority) == ("ended", 5)


def test_tasks_that_are_no_hooks_are_refused() -> None:
    ff = Fabric("memory://")

    @ff.task
    async def two(a: RunEnded, b: int) -> None: ...

    @ff.task
    async def wrong(a: int) -> None: ...

    @ff.task(concurrency_key=lambda a: a, quota="q")
    async def keyed(a: RunEnded) -> None: ...

    @ff.task
    async def fit(a: RunEnded) -> None: ...

    @ff.task
    async def work() -> None: ...

    bad: list[tuple[Any, str]] = [
        (two, "b"),
        (wrong, "a"),
        (keyed, "on_end"),
        (fit.options(key="k"), "key"),
        (fit.options(on_end=work), "on_end"),
        (7, "on_end"),
        ("", "on_end"),
    ]
    for hook, field in bad:
        with pytest.raises(InvalidInput) as caught:
            work.options(on_end=hook).call().request()
        assert caught.value.fields["field"] == field
    with pytest.raises(InvalidInput, match="on_failure"):
        ff.task(on_failure=3)(lambda: None)


def test_hooks_of_a_flow_run_with_how_it_ended(office: Office) -> None:
    ff, told, ends = office.ff, [], []

    @ff.task
    async def flow_told(how: FlowEnded) -> None:
        told.append(how)

    @ff.task
    async def any_end(how: dict[str, Any]) -> None:  # one task for flows and runs
        ends.append(how["state"])

    async def run() -> None:
        async with ff, working(ff):
            with ff.flow("deploy", key="k", tags={"a.b": "c"}, on_success=flow_told) as good:
                good.add(office.order, 1)
            with ff.flow("deploy", on_failure=flow_told, on_end=any_end) as bad:
                bad.add(office.order.options(on_failure=any_end), -1)
            run = await good.submit()
            await within(run.result())
            lost = await bad.submit()
            await until(_holds(lambda: len(told) == 2 and len(ends) == 2))
            hooks = {each.role: each for each in (await lost.info()).successors}
            assert set(hooks) == {Role.ON_FAILURE, Role.ON_END}
            hook = await ff.run(hooks[Role.ON_FAILURE].execution_id or "").info()
            assert hook.origin == Origin(Role.ON_FAILURE, 0, flow_id=lost.flow_id)

    asyncio.run(run())
    first, second = sorted(told, key=lambda each: each.state)
    assert (first.kind, first.state, first.key) == ("deploy", "completed", "k")
    assert (first.tags, first.members) == ({"a.b": "c"}, {"completed": 1})
    assert (second.state, second.members) == ("failed", {"failed": 1})
    assert ends == ["failed", "failed"]


def _holds(says: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return says()

    return holds


def test_what_follows_a_run_alone_follows_no_flow() -> None:
    office = Office("memory://")
    for hook in (office.alert, 7, ""):  # the first takes a RunEnded
        with pytest.raises(InvalidInput) as caught:  # noqa: PT012 - either may refuse it
            flow = office.ff.flow("f", on_end=hook)
            flow.add(office.order, 1)
            flow.request()
        assert caught.value.fields["field"] in {"ended", "on_end"}
