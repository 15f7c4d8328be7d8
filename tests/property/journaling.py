"""Random handlers, run by workers that die at chosen points."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from flowfabric import (
    ChildFailed,
    Context,
    Fabric,
    Fatal,
    StepFailed,
    StepInterrupted,
    current_step,
)
from flowfabric.api.operation import OPERATIONS
from flowfabric.errors import NotFound, StateError
from flowfabric.ids import new_secret_id
from flowfabric.limits import PAYLOAD_BYTES_DEFAULT
from flowfabric.model.results import Claimed
from flowfabric.model.state import TERMINAL_STATES
from flowfabric.sdk.fabric import answered_by
from flowfabric.sdk.journal.scopes import RUNNING
from flowfabric.sdk.outage import Outage
from flowfabric.sdk.worker.handlers import run_async
from flowfabric.sdk.worker.held import Desk, Held
from flowfabric.sdk.worker.reports import Failed, Report, Succeeded
from flowfabric.sdk.worker.warm import Warm
from tests.property import market
from tests.property.handlers import (
    Caught,
    Child,
    Children,
    Items,
    Several,
    Step,
    Wait,
    part,
    parts,
    place_of,
)
from tests.property.market import Market
from tests.support.effects import Effect, digest_of, leaves
from tests.support.lab import TTL_MS, Lab

KIND = "tree"
POLICY = {
    "max_reclaim_count": 1_000,
    "retry_policy": {"max_retries": 100, "backoff": {"type": "fixed", "delay_ms": 1}},
}
FOR_EVER = 1 << 30
AT_ONCE = 3  # executions of a worker
FAR_MS = 86_400_000
ROUNDS_MAX = 2_000  # reached only by a defect


# --- a worker ---------------------------------------------------------------------------------


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


class Seat:
    """One worker: it runs what it claims, some executions at once, until it dies."""

    def __init__(self, lab: Lab, task: Any, points: int, *, warm: int) -> None:
        self.fate = Fate(points)
        self._task = task
        self._engine = Mortal(lab, self.fate)
        self._desk = Desk(
            self._engine,  # type: ignore[arg-type]
            lost=lambda held, why: held.stop(),
            let_go=lambda held, for_children: None,
            now_ms=lab.clock.now_ms,
            outage=Outage(),
            payload_bytes_max=PAYLOAD_BYTES_DEFAULT,
        )
        self._warm = self._desk.warm = Warm(warm, self._parked)
        self._active: set[Held] = set()
        self._handlers: dict[asyncio.Task[None], Held] = {}
        self._is_quiet = asyncio.Event()

    @property
    def is_dead(self) -> bool:
        """Whether it goes no further."""
        return self.fate.death.is_set()

    async def work(self, claims: Sequence[Claimed]) -> None:
        """Until each has reported, or waits, or the worker is dead."""
        self._is_quiet.clear()
        for claimed in claims:
            self._begin(claimed)
        waits = [asyncio.create_task(each.wait()) for each in (self.fate.death, self._is_quiet)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()
        for handler in [each for each in self._handlers if each.done()]:
            if not self.is_dead:
                handler.result()
            del self._handlers[handler]

    def _begin(self, claimed: Claimed) -> None:
        held = self._warm.take(claimed)
        if held is not None:
            held.go_on(claimed, float("inf"), float("inf"))
            self._active.add(held)
            self._warm.revive(held)
            return
        forever = float("inf")
        held = Held(claimed, self._task, self._desk, renew_at=forever, lapse_at=forever)
        self._active.add(held)
        held.handler = asyncio.create_task(self._run(held))
        self._handlers[held.handler] = held

    def _parked(self, held: Held) -> None:
        self._active.discard(held)
        if not self._active:
            self._is_quiet.set()

    async def _run(self, held: Held) -> None:
        """As a worker does it."""
        try:
            report: Report | None = await run_async(held)
            if held in self._active:
                held.is_finished = True
                held.close_journal(report.error if isinstance(report, Failed) else None)
                if report is not None:
                    await self._report(held, report)
            else:  # it waited and was dropped
                held.close_journal(None)
        finally:
            if self._active.intersection([held]):
                self._parked(held)

    async def _report(self, held: Held, report: Report) -> None:
        engine, handle = self._engine, held.claimed.handle
        entries = () if held.entries is None else await held.entries.outbox.rest()
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

    async def bury(self) -> None:
        """Nothing of it goes on, but what it had sent arrives."""
        for handler, held in self._handlers.items():
            held.is_stopped = True
            handler.cancel()
        self.fate.burial.set()
        for handler in self._handlers:
            with suppress(asyncio.CancelledError):
                await handler
        if self._engine.under_way:
            await asyncio.wait(self._engine.under_way)
        self._desk.bodies.close()


# --- a history --------------------------------------------------------------------------------


class Play:
    """One execution of a handler and its children, through any number of workers. `seed`: of what
    they are told, and when."""

    def __init__(self, lab: Lab, tree: Items, own: Market, *, seed: int = 0, warm: int = 0) -> None:
        self._lab = lab
        self._tree = tree
        self._market = own
        self._rng = random.Random(seed)
        self._warm = warm
        self._seat: Seat | None = None
        self._failed: set[tuple[str, str]] = set()
        self._known: dict[str, tuple[object, list[str]]] = {}  # by execution, with its handler
        self.notes: list[Effect] = []
        self.said: set[str] = set()  # in signals
        self.offered: set[str] = set()  # what steps in transactions returned
        self.begun: list[tuple[str, str]] = []  # steps that may begin once, each time they do
        self._fabric = Fabric("memory://")

        @self._fabric.task(name=KIND, recoveries=1_000, retries=100, backoff="1ms")
        async def handle(ctx: Context, path: list[int], fails: bool) -> list[Any]:
            found = await self._all(ctx, tuple(parts(part(tree, path))), path)
            if fails:
                raise Fatal("it is to fail")
            return found

        self._task = self._fabric.tasks[KIND]

    async def live(self, points: Sequence[int]) -> str:
        """Until the execution has ended; its id."""
        with answered_by(self._fabric, self._lab.engine):
            run = await self._task.submit([], False)
            deaths = iter(points)
            for _ in range(ROUNDS_MAX):
                await self._round(deaths)
                if await self._lab.state(run.id) in TERMINAL_STATES:
                    break
            if self._seat is not None:
                await self._seat.bury()
        return run.id

    async def _round(self, deaths: Any) -> None:
        lab = self._lab
        if claims := await lab.claims(limit=AT_ONCE):
            if self._seat is None:
                points = next(deaths, FOR_EVER)
                self._seat = Seat(lab, self._task, points, warm=self._warm)
                market.Mortal.fate = self._seat.fate
            seat = self._seat
            await seat.work(claims)
            if seat.is_dead:
                await seat.bury()
                self._seat = None
            lab.clock.advance(TTL_MS + 1 if seat.is_dead else 1_000)
        elif self._rng.random() < 0.2 or not await self._tell():
            look = await lab.direct.next_due()
            # Not so far that places are closed which outlive every test.
            if look.due_at is not None and look.due_at - look.now < FAR_MS:
                lab.clock.advance(max(0, look.due_at - look.now))
        await lab.engine.tick()

    async def _tell(self) -> bool:
        """One signal or approval, wherever one is waited for; whether there is such a place."""
        engine = self._lab.engine
        unended = await engine.list_executions(states=("suspended",), limit=100)
        pages = [
            await engine.list_pending_waitpoints(execution_id=each.execution_id)
            for each in unended.items
        ]
        places = [each for page in pages for each in page.items if each.waitpoint_key[0] == "p"]
        if not places:
            return False
        chosen = self._rng.choice(places)
        key = chosen.waitpoint_key
        wanted: Any = part(self._tree, [int(at) for at in key[1:].split(".")])
        with suppress(NotFound, StateError):
            if wanted.way == "approval":
                by = self._rng.choice(("ada", "bob"))
                await self._fabric.approve(chosen.execution_id, key, by=by)
            else:
                word = f"{key}={new_secret_id()}"
                self.said.add(word)
                await self._fabric.signal(chosen.execution_id, key, word)
        return True

    # --- the handler ---------------------------------------------------------------------------

    async def _all(self, ctx: Context, items: Items, path: Sequence[int]) -> list[Any]:
        found: list[Any] = []
        words: list[str] = []
        for at, item in enumerate(items):
            found.append(await self._one(ctx, item, [*path, at], words))
            words += [word for word in leaves(found[-1]) if "=" in word]
        return found

    async def _one(self, ctx: Context, item: Any, path: list[int], words: list[str]) -> Any:
        match item:
            case Step():
                return self._given(await self._step(ctx, item, list(words)))
            case Wait():
                return self._given(await self._wait(ctx, item.way, place_of(path)))
            case Child():
                return self._given(await ctx.call(self._task, path, item.fails))
            case Children():
                each = [([*path, at], False) for at in range(len(item.several))]
                children = await ctx.spawn_many(self._task, each)
                return self._given(list(await ctx.gather(*children)))
            case Caught():
                try:
                    several = enumerate(item.items)
                    return [await self._one(ctx, one, [*path, at], words) for at, one in several]
                except StepFailed as error:
                    return f"caught {error.step}"
                except ChildFailed:
                    return "caught child"
            case _:
                return await self._several(ctx, item, path)

    async def _several(self, ctx: Context, item: Several, path: list[int]) -> Any:
        sides = list(enumerate(item.sides))
        if item.way == "gather":
            return await ctx.gather(*(self._all(ctx, side, [*path, at]) for at, side in sides))
        if item.way == "map":
            each = [([*path, at], side) for at, side in sides]
            return await ctx.map(lambda one: self._all(ctx, one[1], one[0]), each, limit=2)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._side(ctx, at, s, path)) for at, s in sides]
        return [task.result() for task in tasks]

    async def _side(self, ctx: Context, at: int, items: Items, path: list[int]) -> list[Any]:
        async with ctx.branch(f"task{at}"):
            return await self._all(ctx, items, [*path, at])

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

    async def _wait(self, ctx: Context, way: str, place: str) -> str:
        if way == "sleep":
            await ctx.sleep("1m")
            return "slept"
        if way == "approval":
            decided = await ctx.approval(place, of=2)
            word = f"{place}=" + "+".join(decided.by)
        elif way == "first":
            index, _ = await ctx.first_of(ctx.wait_for(place, str), ctx.sleep("2m"))
            word = f"{place}={index}"
        else:
            late = f"{place}=late"
            timeout = "2m" if way == "timed" else None
            word = await ctx.wait_for(place, str, timeout=timeout, default=late)
        self.said.add(word)
        return word

    def _given(self, found: Any) -> Any:
        """The handler was given results: what begins later may depend on them."""
        self._known_here().extend(word for word in leaves(found) if "=" in word)
        return found

    def _known_here(self) -> list[str]:
        held = RUNNING.get()
        execution_id = held.claimed.execution_id
        handler, known = self._known.get(execution_id, (None, []))
        if handler is not held:
            handler, known = self._known[execution_id] = held, []
        return known

    # --- bodies --------------------------------------------------------------------------------

    def _note(self, *arguments: Any, has_effects: bool = True, fails: bool = False) -> Effect:
        step = current_step()
        claimed = step.journal.owner.claimed
        return Effect(
            execution_id=claimed.execution_id,
            key=step.key,
            epoch=claimed.lease_epoch,
            attempt=step.attempt,
            has_effects=has_effects,
            inputs=arguments[-1],
            known=list(self._known_here()) if step.attempt == 1 else [],
            result=None if fails else f"{step.key}={new_secret_id()}",
            digest=digest_of(*arguments),
        )

    async def _point(self) -> None:
        assert self._seat is not None
        await self._seat.fate.point()

    async def _sell(self, connection: Any, inputs: list[str]) -> str:
        note = self._note(inputs)
        await self._point()
        self.notes.append(note)
        self.offered.add(str(note.result))
        await connection.execute("INSERT INTO sold VALUES ($1)", note.result)
        await self._point()
        return str(note.result)

    def _sell_blocking(self, connection: Any, inputs: list[str]) -> str:
        note = self._note(inputs)
        self.notes.append(note)
        self.offered.add(str(note.result))
        connection.execute("INSERT INTO sold VALUES (?)", (note.result,))
        return str(note.result)

    async def _body(self, how: str, has_effects: bool, inputs: list[str]) -> str:
        step = current_step()
        own = RUNNING.get().claimed.execution_id, step.key
        fails = (
            how == "broken"
            or (how == "moody" and step.attempt < 3)
            or (how == "flaky" and own not in self._failed)
        )
        note = self._note(how, has_effects, inputs, has_effects=has_effects, fails=fails)
        if how == "once":
            self.begun.append((note.execution_id, note.key))
        await self._point()
        self.notes.append(note)
        await self._point()
        if how == "flaky":
            self._failed.add(own)
        if fails:
            raise ConnectionError(how)
        return str(note.result)
