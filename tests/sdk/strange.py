"""Calls with strange values for their arguments, which they learn from the real signatures."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import wraps
from typing import Any

import pytest

from flowfabric import Context, Fabric, FlowFabricError, Run, SyncContext, count
from flowfabric.clock import monotonic
from flowfabric.engine.engine import Engine
from flowfabric.errors import StoreError, ValidationError
from flowfabric.model.shown import shown
from flowfabric.sdk.context.spending import Spend, SyncSpend
from flowfabric.sdk.errors import Parked, Suspension
from flowfabric.sdk.outage import Outage
from flowfabric.sdk.selecting import RunFilter
from flowfabric.sdk.worker.held import Held
from flowfabric.sdk.worker.leases import Leases
from tests.conformance.surface.test_strange_values import STRANGE as STRANGE_TO_ENGINES
from tests.conformance.surface.test_strange_values import UNKNOWN
from tests.support.fingerprints import Fingerprint


async def nothing_stored(*_: object) -> object:
    return None


FLOW = "01890000-0000-7000-8000-000000000003"


class Unsure(tzinfo):
    """A time zone that does not know its offset: a datetime with it is none with a time zone."""

    def utcoffset(self, _when: datetime | None) -> None:
        return None

    tzname = dst = utcoffset


STRANGE: tuple[Any, ...] = (
    *STRANGE_TO_ENGINES,
    *(datetime(2030, 1, 1), datetime(2030, 1, 1, tzinfo=Unsure())),  # noqa: DTZ001 - strange
    *(datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)),
    *(timedelta(days=-1), timedelta.max, int, [int]),
)
# What makes up a call that could succeed, by the name of the argument; of one with a star, one of
# the values behind it.
USUAL: dict[str, Any] = {
    "amounts": 1,
    "budget": "b",
    "by": "ada",
    "chosen": RunFilter(kind="nothing"),
    "before": "a",
    "execution_id": UNKNOWN,
    "flow_id": FLOW,
    "hard": {"tokens": 1},
    "items": ["solar"],
    "k": 1,
    "key": "k",
    "change": "fraud-check",
    "dimension": "tokens",
    "mailbox": "orders",
    "value": "x",
    "condition": "k",
    "duration": "2h",
    "function": nothing_stored,
    "instant": datetime(2100, 1, 1, tzinfo=UTC),
    "kind": "f",
    "lane": "default",
    "n": 1,
    "name": "b",
    "patch": {"a": 1},
    "payload": b"x",
    "per": "1m",
    "place": "k",
    "places": "k",
    "pool": dict,  # which is refused, as anything is that gives no connection
    "target": UNKNOWN,
    "until": "1s",
    "what": "completed",
    "word": "k",
}
# Without these a call is refused for their lack, whatever else is given.
ALWAYS_GIVEN = ("amounts", "items", "places", "word")
KEYWORDS = {"kwargs": "topic"}  # under which name one of `**kwargs` is given; else it is an amount


def usual_for(ff: Fabric) -> dict[str, Any]:
    return {**USUAL, "task": ff.tasks["work"], "run": ff.run(UNKNOWN)}


def parameters(call: Callable[..., Any]) -> list[inspect.Parameter]:
    found = inspect.signature(call).parameters.values()
    return [each for each in found if each.name != "fabric"]


def needed_by(call: Callable[..., Any], usual: dict[str, Any]) -> dict[str, Any]:
    """What a call needs; all others keep their defaults."""
    starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = [
        each.name
        for each in parameters(call)
        if each.name in ALWAYS_GIVEN or (each.default is each.empty and each.kind not in starred)
    ]
    missing = [name for name in names if name not in usual]
    assert not missing, f"{call.__qualname__}: give {missing} a usual value"
    return {name: usual[name] for name in names}


def written(
    call: Callable[..., Any], given: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments as a program would write them: by position or by name."""
    by_position, by_name = [], {}
    for each in parameters(call):
        if each.name not in given:
            continue
        value = given[each.name]
        is_first = each.kind is each.POSITIONAL_OR_KEYWORD and each.default is each.empty
        if is_first or each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL):
            by_position.append(value)
        elif each.kind is each.VAR_KEYWORD:
            by_name[KEYWORDS.get(each.name, "tokens")] = value
        else:
            by_name[each.name] = value
    return tuple(by_position), by_name


async def try_all(
    call: Callable[..., Any], usual: dict[str, Any], stored: Fingerprint = nothing_stored
) -> None:
    """Each strange value for each argument."""
    needed = needed_by(call, usual)
    for each, strange in itertools.product(parameters(call), STRANGE):
        if each.name == "function" and callable(strange):
            continue  # what a function raises is its caller's own
        await refused_or_done(call, {**needed, each.name: strange}, each.name, stored)


async def refused_or_done(
    call: Callable[..., Any],
    given: dict[str, Any],
    name: str,
    stored: Fingerprint = nothing_stored,
) -> None:
    """Nothing but a typed error, which names a field and has changed nothing."""
    said = f"{call.__qualname__}({name}={shown(given[name])})"
    before = await stored()
    by_position, by_name = written(call, given)
    try:
        await use(call(*by_position, **by_name))
    except StoreError as error:
        pytest.fail(f"{said}: {error!r}")
    except FlowFabricError as error:
        if isinstance(error, ValidationError) and not error.fields.get("field"):
            pytest.fail(f"{said}: {error!r} names no field")
        if before != await stored():
            pytest.fail(f"{said} was refused and changed: {error!r}")
    except Exception as error:
        raise AssertionError(f"{said}: {error!r}") from error


async def use(answer: Any) -> None:
    """Await an answer, read it to its end or enter it: some do nothing before."""
    if inspect.isawaitable(answer):
        answer = await answer
    if isinstance(answer, AsyncIterator):
        async for _ in answer:
            pass
    if isinstance(answer, Spend):
        async with answer:
            pass


def methods(thing: Any, *, but: tuple[str, ...] = ()) -> list[Callable[..., Any]]:
    names = [name for name in dir(type(thing)) if not name.startswith("_") and name not in but]
    plain = [name for name in names if inspect.isfunction(getattr(type(thing), name))]
    return [getattr(thing, name) for name in plain]


def in_a_thread(call: Callable[..., Any], form: Callable[..., Any]) -> Callable[..., Any]:
    """A blocking call, made where no event loop runs. It has the arguments of another one."""

    def finish(*args: Any, **kwargs: Any) -> None:
        answer = call(*args, **kwargs)
        if isinstance(answer, Iterator):
            for _ in answer:
                pass
        if isinstance(answer, SyncSpend):
            with answer:
                pass

    @wraps(form)
    async def called(*args: Any, **kwargs: Any) -> None:
        await asyncio.to_thread(finish, *args, **kwargs)

    called.__qualname__ = call.__qualname__
    return called


class Stage:
    """A handler's context, on an execution that is replaced when a call has ended it."""

    def __init__(self, ff: Fabric, engine: Engine, kind: type[Context] | type[SyncContext]) -> None:
        self._ff, self._engine, self._kind = ff, engine, kind
        self._leases = Leases(engine, 30_000, Outage())

    async def renew(self) -> None:
        """Begin an execution and be its handler."""
        task = self._ff.tasks["handled"]
        await self._ff.submit(task)
        (claimed,) = await self._engine.claim(
            lanes=(task.lane,), worker_id="w", worker_instance_id="w-1"
        )
        self._held = self._leases.take(claimed, task, monotonic())
        self.context = self._kind(self._held)
        Held.current.set(self._held)
        self._arrive()

    def _arrive(self) -> None:
        """The handler runs here."""
        self._held.begin()
        self._held.journal.root.owner = self._held.home

    def _from_here(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def called(*args: Any, **kwargs: Any) -> Any:
            self._arrive()
            return method(*args, **kwargs)

        return called

    async def waiting(self) -> Run[Any]:
        """A run that waits for more signals than it gets, on the key `k`."""
        await self.renew()
        run: Run[Any] = self._ff.run(self._held.claimed.execution_id)
        await self.calls("suspend")(count(1_000, "k", signals=True))
        return run

    def calls(self, name: str, form: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """A method of the context; or with the arguments of `form`, whose answer it is given."""
        model = getattr(self.context, name)

        @wraps(form or model)
        async def called(*args: Any, **kwargs: Any) -> None:
            method = getattr(self.context, name)
            if self._kind is SyncContext:
                method = in_a_thread(self._from_here(method), method)
            try:
                if form is not None:
                    args, kwargs = (form(*args, **kwargs),), {}
                await use(method(*args, **kwargs))
            except (Parked, Suspension):
                await self.renew()
            except FlowFabricError:
                assert not self._held.is_stopped  # a refusal leaves the handler its execution
                raise
            else:
                await asyncio.sleep(0)
                await self._held.settle()  # what it recorded must not change the next one's store

        called.__qualname__ = (form or model).__qualname__
        return called
