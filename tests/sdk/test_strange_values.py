"""Whatever is passed for whichever argument of the SDK: an outcome, or a typed refusal."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from flowfabric import Context, EngineConfig, Fabric, FlowFabricError, Run, Worker
from flowfabric.errors import InvalidInput, StoreError
from flowfabric.model.shown import shown
from flowfabric.sdk.options import SubmitKeywords, TaskKeywords
from flowfabric.sdk.selecting import RunFilter
from tests.conformance.test_strange_values import STRANGE, UNKNOWN

FLOW = "01890000-0000-7000-8000-000000000003"
# What makes up a call that could succeed, by the name of the argument.
USUAL: dict[str, Any] = {
    "amounts": {"tokens": 1},
    "budget": "b",
    "by": "ada",
    "chosen": RunFilter(kind="nothing"),
    "execution_id": UNKNOWN,
    "flow_id": FLOW,
    "hard": {"tokens": 1},
    "key": "k",
    "kind": "f",
    "lane": "default",
    "name": "b",
    "per": "1m",
    "run": UNKNOWN,
    "target": UNKNOWN,
}
WRONG: Any = 5  # where neither a list nor true or false is meant by it
TEXTS = ("namespace", "waitpoint_secret", "waitpoint_kid", "synchronous")
# Calls that wait, or are about the program itself.
NOT_CALLED = ("add_task", "close", "sibling", "start", "submit_call", "sync", "task", "tasks")


def fabric() -> Fabric:
    ff = Fabric("memory://", config=EngineConfig(loops=False))

    @ff.task
    async def work(ctx: Context, topic: str = "x") -> str:
        return topic

    return ff


def parameters(call: Callable[..., Any]) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    found = inspect.signature(call).parameters.values()
    return [each for each in found if each.kind not in kinds and each.name != "fabric"]


def arguments(call: Callable[..., Any], ff: Fabric) -> dict[str, Any]:
    """What a call needs; all others keep their defaults."""
    usual = {**USUAL, "task": ff.tasks["work"]}
    needed = [each.name for each in parameters(call) if each.default is each.empty]
    missing = set(needed) - set(usual)
    assert not missing, f"{call.__qualname__}: give {missing} a usual value"
    return {name: usual[name] for name in needed}


async def refused_or_done(call: Callable[..., Any], given: dict[str, Any], name: str) -> Any:
    """Nothing but a typed error, and none that says the store choked on it."""
    positional = [each.name for each in parameters(call) if each.kind is each.POSITIONAL_ONLY]
    said = f"{call.__qualname__}({name}={shown(given[name])})"
    first = [given[each] for each in positional if each in given]
    rest = {each: value for each, value in given.items() if each not in positional}
    try:
        answer = call(*first, **rest)
        if isinstance(answer, AsyncIterator):
            return [each async for each in answer]
        return await answer if inspect.isawaitable(answer) else answer
    except StoreError as error:
        pytest.fail(f"{said}: {error!r}")
    except FlowFabricError:
        return None
    except Exception as error:
        raise AssertionError(f"{said}: {error!r}") from error


async def try_all(call: Callable[..., Any], ff: Fabric) -> None:
    usual = arguments(call, ff)
    for each in parameters(call):
        for strange in STRANGE:
            await refused_or_done(call, {**usual, each.name: strange}, each.name)


def methods(thing: Any) -> list[Callable[..., Any]]:
    names = [name for name in dir(type(thing)) if not name.startswith("_")]
    calls = [getattr(thing, name) for name in names if name not in NOT_CALLED]
    return [call for call in calls if inspect.ismethod(call)]


def test_no_argument_of_a_fabric_is_an_accident() -> None:
    async def story() -> None:
        async with fabric() as ff:
            await ff.create_budget("b", hard={"tokens": 5})
            for call in methods(ff):
                await try_all(call, ff)

    asyncio.run(story())


def test_no_option_of_a_submit_is_an_accident() -> None:
    """Options that `submit` takes by name, and those of `task.options`."""

    async def story() -> None:
        async with fabric() as ff:
            work = ff.tasks["work"]
            for name in SubmitKeywords.__annotations__:
                for strange in STRANGE:

                    async def submit(**options: Any) -> Run[Any]:
                        return await ff.submit(work.options(**options), "solar")

                    await refused_or_done(submit, {name: strange}, name)

    asyncio.run(story())


def test_no_option_of_a_task_is_an_accident() -> None:
    async def story() -> None:
        for name in TaskKeywords.__annotations__:
            for strange in STRANGE:

                def declare(**options: Any) -> Any:
                    async def other(ctx: Context) -> None: ...

                    return Fabric("memory://").task(**options)(other)

                await refused_or_done(declare, {name: strange}, name)

    asyncio.run(story())


def test_no_argument_of_a_flow_or_its_nodes_is_an_accident() -> None:
    async def story() -> None:
        async with fabric() as ff:
            work = ff.tasks["work"]

            async def flow(**fields: Any) -> Any:
                graph = ff.flow(**{"kind": "f", **fields})
                graph.add(work, "solar")
                return await graph.submit()

            async def add(**fields: Any) -> Any:
                graph = ff.flow("f")
                graph.add(work, "solar", **fields)
                return await graph.submit()

            for call, made in ((ff.flow, flow), (ff.flow("f").add, add)):
                for each in parameters(call):
                    if each.name == "task":
                        continue
                    for strange in STRANGE:
                        await refused_or_done(made, {each.name: strange}, each.name)

    asyncio.run(story())


def test_no_setting_of_a_worker_is_an_accident() -> None:
    async def story() -> None:
        ff = fabric()
        for each in parameters(Worker):
            for strange in STRANGE:

                def worker(**settings: Any) -> Worker:
                    return Worker(ff, **settings)

                await refused_or_done(worker, {each.name: strange}, each.name)

    asyncio.run(story())


@pytest.mark.parametrize("name", EngineConfig.__struct_fields__)
def test_every_setting_of_an_engine_is_checked(name: str) -> None:
    kinds = (bool,) if name == "loops" else (str, type(None)) if name in TEXTS else (int,)
    for strange in (*STRANGE, "no"):
        try:
            made = EngineConfig(**{name: strange})
        except InvalidInput as error:
            named = error.detail.startswith(name)
        else:
            named = isinstance(getattr(made, name), kinds)
        assert named, shown(strange)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda ff: ff.flow("f", tags=5), "tags"),
        (lambda ff: Worker(ff, lanes=WRONG), "lanes"),
        (lambda ff: ff.waits(limit="x"), "limit"),
        (lambda ff: ff.submit(ff.tasks["work"], delay=10**5000), "delay"),
        (lambda ff: EngineConfig(loops=WRONG), "loops"),
    ],
)
def test_the_argument_that_is_wrong_is_named(call: Callable[[Fabric], Any], field: str) -> None:
    async def story() -> None:
        async with fabric() as ff:

            async def answer() -> None:
                found = call(ff)
                if inspect.isawaitable(found):
                    await found

            with pytest.raises(InvalidInput, match=field):
                await answer()

    asyncio.run(story())
