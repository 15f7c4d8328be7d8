"""Random handlers with steps, run by workers that die at chosen points, and what they should do."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any, NamedTuple

from hypothesis import strategies as st

from flowfabric import Context, Fabric, StepFailed, StepInterrupted, current_step
from flowfabric.api.operation import OPERATIONS
from flowfabric.ids import new_secret_id
from flowfabric.limits import PAYLOAD_BYTES_DEFAULT
from flowfabric.model.results import Claimed
from flowfabric.sdk.outage import Outage
from flowfabric.sdk.worker.handlers import run_async
from flowfabric.sdk.worker.held import Desk, Held
from flowfabric.sdk.worker.reports import Failed, Report, Succeeded
from tests.property import market
from tests.property.market import Market
from tests.support.effects import Effect
from tests.support.lab import TTL_MS, Lab

KIND = "tree"
POLICY = {
    "max_reclaim_count": 1_000,
    "retry_policy": {"max_retries": 100, "backoff": {"type": "fixed", "delay_ms": 1}},
}
FOR_EVER = 1 << 30


class Step(NamedTuple):
    """One step. `how`: it is `fine`, `moody` (two of its tries fail), `flaky` (fails once, which
    ends the attempt), `broken` (always fails), `once` (begins at most once), or a `sale` (in a
    transaction)."""

    name: str
    has_effects: bool
    how: str = "fine"


class Several(NamedTuple):
    """Things at once: by `gather`, by `map`, or in `tasks` of the handler's own."""

    way: str
    sides: tuple[Any, ...]


class Caught(NamedTuple):
    """What fails in it is caught."""

    items: tuple[Any, ...]


def steps(*ways: str) -> st.SearchStrategy[Any]:
    """Steps of these kinds."""
    return st.builds(Step, st.sampled_from("ab"), st.booleans(), st.sampled_from(ways))


def trees(*ways: str, tries: bool) -> st.SearchStrategy[tuple[Any, ...]]:
    """Handlers whose steps are of these kinds."""

    def wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        sides = st.lists(inner, min_size=1, max_size=3).map(tuple)
        several = st.builds(Several, st.sampled_from(("gather", "map")), sides)
        kinds = [steps(*ways), several]
        if tries:
            kinds.append(st.builds(Caught, trees("fine", "broken", "moody", tries=False)))
            kinds.append(
                st.builds(
                    Several,
                    st.just("tasks"),
                    st.lists(st.tuples(steps("fine", "moody")), min_size=1, max_size=2).map(tuple),
                )
            )
        return st.lists(st.one_of(kinds), max_size=4).map(tuple)

    return st.recursive(st.lists(steps(*ways), max_size=4).map(tuple), wider, max_leaves=6)


handlers = trees("fine", "fine", "flaky", "moody", "once", "sale", tries=True)


# --- what should come out of it ---------------------------------------------------------------


class Broken(Exception):
    """The key of the step that failed."""


def expected(items: tuple[Any, ...], path: str = "") -> list[Any]:
    """The keys of a result, each at its place, without any fault."""
    counts: Counter[str] = Counter()

    def key(name: str) -> str:
        counts[name] += 1
        return f"{path}/" * bool(path) + name + f"#{counts[name]}" * (counts[name] > 1)

    def one(item: Any) -> Any:
        if isinstance(item, Step):
            own = key(item.name)
            if item.how == "broken":
                raise Broken(own)
            return own
        if isinstance(item, Caught):
            try:
                return [one(each) for each in item.items]
            except Broken as error:
                return f"caught {error}"
        prefix = "" if item.way == "tasks" else f"{key(item.way)}/"
        found, failures = [], list[Broken]()
        for at, side in enumerate(item.sides):
            own = key(f"task{at}") if item.way == "tasks" else f"{prefix}{at}"
            try:
                found.append(expected(side, own))
            except Broken as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return found

    return [one(item) for item in items]


# --- running it -------------------------------------------------------------------------------


class Fate:
    """When a worker dies: at one of the points that it passes."""

    def __init__(self, points: int) -> None:
        self._left = points
        self.death, self.burial = asyncio.Event(), asyncio.Event()

    async def point(self) -> None:
        """Go on, or never again."""
        self._left -= 1
        if self._left < 0:
            self.death.set()
            await self.burial.wait()
            raise asyncio.CancelledError  # whatever waits for it goes, too


class Mortal:
    """An engine as a worker sees it that may die before and after each call."""

    def __init__(self, lab: Lab, fate: Fate) -> None:
        self._engine = lab.engine
        self._fate = fate
        self.under_way: set[asyncio.Future[Any]] = set()

    def __getattr__(self, name: str) -> Any:
        if name == "capabilities":
            return self._engine.capabilities

        async def called(*args: Any, **more: Any) -> Any:
            await self._fate.point()
            if OPERATIONS[name].is_local:  # its connection dies with the worker
                reply = await getattr(self._engine, name)(*args, **more)
                await self._fate.point()
                return reply
            asking = asyncio.ensure_future(getattr(self._engine, name)(*args, **more))
            self.under_way.add(asking)  # goes on when the worker is dead: it may have been sent
            asking.add_done_callback(self.under_way.discard)
            reply = await asyncio.shield(asking)
            await self._fate.point()
            return reply

        return called


class Play:
    """One execution of a handler, through any number of workers."""

    def __init__(self, lab: Lab, tree: tuple[Any, ...], own: Market) -> None:
        self._lab = lab
        self._market = own
        self._fate = Fate(FOR_EVER)
        self._failed: set[str] = set()
        self._known: list[str] = []
        self.notes: list[Effect] = []
        self.offered: set[str] = set()  # what steps in transactions returned
        self.begun: list[tuple[str, str]] = []  # steps that may begin once, each time they do
        fabric = Fabric("memory://")

        @fabric.task(name=KIND)
        async def handle(ctx: Context) -> list[Any]:
            return await self._all(ctx, tree)

        self._task = fabric.tasks[KIND]

    async def live(self, claimed: Claimed, points: int) -> None:
        """One worker, until it has reported or is dead."""
        fate, lab = Fate(points), self._lab
        self._fate, self._known = fate, []
        market.Mortal.fate = fate
        engine = Mortal(lab, fate)
        desk = Desk(
            engine,  # type: ignore[arg-type]
            lost=lambda held, why: held.stop(),
            let_go=lambda held, for_children: None,
            now_ms=lab.clock.now_ms,
            outage=Outage(),
            payload_bytes_max=PAYLOAD_BYTES_DEFAULT,
        )
        held = Held(claimed, self._task, desk, renew_at=float("inf"), lapse_at=float("inf"))
        held.handler = asyncio.create_task(self._run(held, engine))
        death = asyncio.create_task(fate.death.wait())
        await asyncio.wait([held.handler, death], return_when=asyncio.FIRST_COMPLETED)
        is_dead = fate.death.is_set()
        held.is_stopped = True
        for each in (held.handler, death):
            each.cancel() if is_dead or each is death else each.result()
        fate.burial.set()
        with suppress(asyncio.CancelledError):
            await held.handler
        if engine.under_way:
            await asyncio.wait(engine.under_way)
        desk.bodies.close()
        lab.clock.advance(TTL_MS + 1 if is_dead else 1_000)
        await lab.engine.tick()

    async def _run(self, held: Held, engine: Any) -> None:
        """As a worker does it."""
        report: Report | None = await run_async(held)
        if report is None:
            return
        held.close_journal(report.error if isinstance(report, Failed) else None)
        entries = () if held.entries is None else await held.entries.outbox.rest()
        handle = held.claimed.handle
        if isinstance(report, Succeeded):
            await engine.complete(
                handle, result=report.result, result_encoding="json", entries=entries
            )
        elif isinstance(report, Failed):
            await engine.fail(
                handle,
                reason=report.reason,
                failure_class=report.failure_class,
                category=report.category,
                entries=entries,
            )

    # --- the handler ---------------------------------------------------------------------------

    async def _all(self, ctx: Context, items: tuple[Any, ...]) -> list[Any]:
        found: list[Any] = []
        words: list[str] = []
        for item in items:
            found.append(await self._one(ctx, item, words))
            if isinstance(found[-1], str):
                words.append(found[-1])
        return found

    async def _one(self, ctx: Context, item: Any, words: list[str]) -> Any:
        if isinstance(item, Step):
            word: str = await self._step(ctx, item, list(words))
            self._known.append(word)
            return word
        if isinstance(item, Caught):
            try:
                return [await self._one(ctx, each, words) for each in item.items]
            except StepFailed as error:
                return f"caught {error.step}"
        if item.way == "gather":
            return await ctx.gather(*(self._all(ctx, side) for side in item.sides))
        if item.way == "map":
            return await ctx.map(lambda side: self._all(ctx, side), item.sides, limit=2)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._side(ctx, at, s)) for at, s in enumerate(item.sides)]
        return [task.result() for task in tasks]

    async def _step(self, ctx: Context, item: Step, words: list[str]) -> str:
        if item.how == "once":
            step = ctx.step.options(once=True)
            try:
                return await step(item.name, self._body, item.how, True, words)
            except StepInterrupted as error:
                return error.step
        if item.how == "sale":
            step = ctx.step.options(transaction=self._market.pool)
            sell: Any = self._sell if self._market.is_async else self._sell_blocking
            word: str = await step(item.name, sell, words)
            return word
        retries = 2 if item.how == "moody" else 0
        step = ctx.step.options(effects=item.has_effects, retries=retries, backoff="1ms")
        return await step(item.name, self._body, item.how, item.has_effects, words)

    async def _side(self, ctx: Context, at: int, items: tuple[Any, ...]) -> list[Any]:
        async with ctx.branch(f"task{at}"):
            return await self._all(ctx, items)

    def _note(self, inputs: list[str], *, has_effects: bool = True, fails: bool = False) -> Effect:
        step = current_step()
        claimed = step.journal.owner.claimed
        known = self._known if step.attempt == 1 else []
        return Effect(
            execution_id=claimed.execution_id,
            key=step.key,
            epoch=claimed.lease_epoch,
            attempt=step.attempt,
            has_effects=has_effects,
            inputs=inputs,
            known=list(known),
            result=None if fails else f"{step.key}={new_secret_id()}",
        )

    async def _sell(self, connection: Any, inputs: list[str]) -> str:
        note = self._note(inputs)
        await self._fate.point()
        self.notes.append(note)
        self.offered.add(str(note.result))
        await connection.execute("INSERT INTO sold VALUES ($1)", note.result)
        await self._fate.point()
        return str(note.result)

    def _sell_blocking(self, connection: Any, inputs: list[str]) -> str:
        note = self._note(inputs)
        self.notes.append(note)
        self.offered.add(str(note.result))
        connection.execute("INSERT INTO sold VALUES (?)", (note.result,))
        return str(note.result)

    async def _body(self, how: str, has_effects: bool, inputs: list[str]) -> str:
        step = current_step()
        fails = (
            how == "broken"
            or (how == "moody" and step.attempt < 3)
            or (how == "flaky" and step.key not in self._failed)
        )
        note = self._note(inputs, has_effects=has_effects, fails=fails)
        if how == "once":
            self.begun.append((note.execution_id, note.key))
        await self._fate.point()
        self.notes.append(note)
        await self._fate.point()
        if how == "flaky":
            self._failed.add(step.key)
        if fails:
            raise ConnectionError(how)
        return str(note.result)
