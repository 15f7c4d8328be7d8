"""Whatever is passed for whichever argument of the SDK: an outcome, or a typed refusal."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest

from flowfabric import (
    Context,
    EngineConfig,
    Fabric,
    Fatal,
    Retry,
    Run,
    SyncContext,
    Worker,
    all_done,
    all_of,
    any_of,
    approval,
    count,
    quorum,
    signal,
)
from flowfabric.errors import InvalidInput
from flowfabric.model.shown import shown
from flowfabric.sdk.options import SubmitKeywords, TaskKeywords
from flowfabric.sdk.worker.held import Held
from tests.conformance.surface.test_strange_values import UNKNOWN
from tests.sdk.strange import (
    FLOW,
    STRANGE,
    USUAL,
    Stage,
    in_a_thread,
    methods,
    needed_by,
    refused_or_done,
    try_all,
    usual_for,
)
from tests.support.inner import inner

WRONG: Any = 5  # where neither a list nor true or false is meant by it
TEXTS = ("namespace", "actor", "waitpoint_secret", "waitpoint_kid", "synchronous")
SETTINGS: dict[str, tuple[type, ...]] = {  # all others are integers
    **dict.fromkeys(TEXTS, (str, type(None))),
    "loops": (bool,),
    "loop_namespaces": (tuple, list),
    "loop_tag": (tuple, list, type(None)),
}
# Calls that wait, or are about the program itself.
NOT_CALLED = ("add_task", "call_of", "close", "events", "sibling", "start", "submit_call", "wait")


def fabric() -> Fabric:
    ff = Fabric("memory://", config=EngineConfig(loops=False))

    @ff.task
    async def work(ctx: Context, topic: str = "x") -> str:
        return topic

    @ff.task(lane="handled")
    async def handled(ctx: Context) -> None: ...

    return ff


def test_no_argument_of_a_fabric_is_an_accident() -> None:
    async def story() -> None:
        async with fabric() as ff:
            await ff.create_budget("b", hard={"tokens": 5})
            engine = inner(await ff.start())
            stage = Stage(ff, engine, Context)
            for thing in (ff, ff.run(UNKNOWN), ff.flow_run(FLOW)):
                for call in methods(thing, but=NOT_CALLED):
                    waiting = await stage.waiting()  # another one: a call may end its wait
                    usual = {**usual_for(ff), "run": waiting, "target": waiting.id}
                    await try_all(call, usual, engine.store.dump)

    asyncio.run(story())


def test_no_argument_of_a_feed_is_an_accident() -> None:
    async def story() -> None:
        async with fabric() as ff:

            @wraps(ff.events)
            def to_the_end(*kinds: Any, **given: Any) -> Any:
                follow = given.pop("follow", False)  # true: for ever
                return ff.events(*kinds, **given, follow=follow is not True and follow)

            await try_all(to_the_end, {})

    asyncio.run(story())


def test_no_id_of_a_run_is_an_accident() -> None:
    async def story() -> None:
        async with fabric() as ff:
            for handle in (ff.run, ff.flow_run):
                for call in methods(handle(UNKNOWN)):
                    await try_all(of_any(handle, call.__name__), {"execution": UNKNOWN})

    asyncio.run(story())


def of_any(handle: Callable[[Any], Any], method: str) -> Callable[..., Any]:
    """A method of the handle of whatever is given."""

    def called(execution: Any) -> Any:
        call = getattr(handle(execution), method)
        return call(**needed_by(call, USUAL))

    called.__qualname__ = f"{handle.__qualname__}().{method}"
    return called


def test_no_argument_of_a_blocking_fabric_is_an_accident() -> None:
    """`ff.sync` takes what the fabric takes: its calls are made with the fabric's signatures."""

    async def story() -> None:
        ff = fabric()
        sync = ff.sync
        await asyncio.to_thread(sync.create_budget, "b", hard={"tokens": 5})
        engine = inner(await asyncio.to_thread(lambda: sync.wait(sync._fabric.start())))

        async def stored() -> object:
            return await asyncio.to_thread(lambda: sync.wait(engine.store.dump()))

        for call in methods(sync, but=NOT_CALLED):
            form = getattr(ff, call.__name__, call)
            await try_all(in_a_thread(call, form), usual_for(ff), stored)
        for thing in (sync.run(UNKNOWN), sync.flow_run(FLOW)):
            for call in methods(thing):
                await try_all(in_a_thread(call, call), usual_for(ff), stored)
        await asyncio.to_thread(sync.close)

    asyncio.run(story())


@pytest.mark.parametrize("kind", [Context, SyncContext])
def test_no_argument_of_a_context_is_an_accident(
    kind: type[Context] | type[SyncContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside a handler, which has its execution still when a call of it was refused."""

    def wait_stopped(_held: Held, seconds: float | None) -> bool:
        assert seconds is None or 0 <= seconds <= threading.TIMEOUT_MAX
        return False

    monkeypatch.setattr(Held, "wait_stopped", wait_stopped)  # the real one waits as long as it says

    async def story() -> None:
        async with fabric() as ff:
            await ff.create_budget("b", hard={"tokens": 10**6})
            engine = inner(await ff.start())
            stage = Stage(ff, engine, kind)
            await stage.renew()
            calls = [stage.calls(each.__name__) for each in methods(stage.context)]
            waits = (signal, approval, count, all_of, any_of)
            for call in (*calls, *(stage.calls("suspend", each) for each in waits)):
                await try_all(call, usual_for(ff), engine.store.dump)

    asyncio.run(story())


def test_no_option_of_a_submit_is_an_accident() -> None:
    """Options that `submit` takes by name, and those of `task.options`."""

    async def story() -> None:
        async with fabric() as ff:
            work = ff.tasks["work"]
            stored = inner(await ff.start()).store.dump

            async def submit(**options: Any) -> Run[Any]:
                return await ff.submit(work.options(**options), "solar")

            for name in SubmitKeywords.__annotations__:
                for strange in STRANGE:
                    await refused_or_done(named(submit, name), {name: strange}, name, stored)

    asyncio.run(story())


def named(call: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """A call that says which of its keywords there are."""
    kind = inspect.Parameter.KEYWORD_ONLY
    form = inspect.Signature([inspect.Parameter(name, kind, default=None) for name in names])

    @wraps(call)
    def called(**given: Any) -> Any:
        return call(**given)

    called.__signature__ = form  # type: ignore[attr-defined]  # read by `inspect.signature`
    return called


def test_no_option_of_a_task_is_an_accident() -> None:
    def declare(**options: Any) -> Any:
        async def other(ctx: Context) -> None: ...

        return Fabric("memory://").task(**options)(other)

    asyncio.run(try_all(named(declare, *TaskKeywords.__annotations__), {}))


@pytest.mark.parametrize("task", ["work", "other"])
def test_no_argument_of_a_flow_or_its_nodes_is_an_accident(task: str) -> None:
    """Of a task that is known, and of one that is only named."""

    async def story() -> None:
        async with fabric() as ff:
            stored = inner(await ff.start()).store.dump
            usual = {**usual_for(ff), "task": task}
            work = ff.tasks["work"]

            def flow(method: str) -> Callable[..., Any]:
                @wraps(getattr(ff.flow("f"), method))
                async def made(*args: Any, **kwargs: Any) -> Any:
                    graph = ff.flow("f")
                    getattr(graph, method)(*args, **kwargs)
                    return await graph.submit()

                return made

            def joined(build: Callable[..., Any]) -> Callable[..., Any]:
                @wraps(build)
                async def made(*args: Any, **kwargs: Any) -> Any:
                    graph = ff.flow("f")
                    graph.add(work, after=build(*args, graph.add(work), **kwargs))
                    return await graph.submit()

                return made

            @wraps(ff.flow)
            async def whole(*args: Any, **kwargs: Any) -> Any:
                graph = ff.flow(*args, **kwargs)
                graph.add(work)
                return await graph.submit()

            for call in (whole, flow("add"), flow("map")):
                await try_all(call, usual, stored)
            for build in (all_of, any_of, all_done, quorum):
                await try_all(joined(build), usual, stored)

    asyncio.run(story())


def test_no_setting_of_a_worker_is_an_accident() -> None:
    ff = fabric()

    @wraps(Worker)
    def worker(**settings: Any) -> Worker:
        return Worker(ff, **settings)

    asyncio.run(try_all(worker, {}))


def test_no_setting_of_a_fabric_is_an_accident(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWFABRIC_URL", "memory://")  # which counts where none is given

    @wraps(Fabric)
    async def opened(**settings: Any) -> None:
        async with Fabric(**{"url": "memory://", **settings}):
            pass

    asyncio.run(try_all(opened, {}))


def test_no_url_is_an_accident() -> None:
    async def story() -> None:
        for url in (
            *("sqlite:///a\x00b.db", "sqlite:///%00", "sqlite:///\ud800", "sqlite://["),
            *(
                "postgresql://[",
                "postgresql://127.0.0.1:99999/x",
                "postgresql:///x?host=127.0.0.1&port=99999",
            ),
        ):
            with pytest.raises(InvalidInput, match="url: "):
                await Fabric(url).start()

    asyncio.run(story())


def test_no_reason_of_a_failure_is_an_accident() -> None:
    """Such a handler has failed, and its worker must be able to say so."""
    for strange in STRANGE:
        for failure in (Fatal(strange), Retry(reason=strange)):
            assert isinstance(failure.reason, str), shown(strange)


@pytest.mark.parametrize("name", EngineConfig.__struct_fields__)
def test_every_setting_of_an_engine_is_checked(name: str) -> None:
    kinds = SETTINGS.get(name, (int,))
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
        (lambda ff: ff.submit(ff.tasks["work"], lane=0), "lane"),
        (lambda ff: ff.submit(ff.tasks["work"], tags=0), "tags"),
        (lambda ff: ff.flow("f").map(ff.tasks["work"], "abc"), "items"),
        (lambda ff: ff.flow_run(FLOW).cancel(policy=[]), "policy"),
        (lambda ff: ff.flow_run(FLOW).cancel(0), "reason"),
        (lambda ff: ff.sync.result(WRONG), "run"),
        (lambda ff: Retry(after="8d"), "after"),
        (lambda ff: Fabric(config=WRONG), "config"),
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
