"""TestFabric: the tasks of a program on a fresh store, with time that a test moves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Literal, Self

from flowfabric.errors import InvalidInput
from flowfabric.ids import new_name
from flowfabric.model.journal import EntryKind
from flowfabric.model.mailbox import mailbox_at
from flowfabric.model.shown import shown
from flowfabric.sdk.decorator import TaskDecorator
from flowfabric.sdk.durations import Duration, instant_ms, to_datetime, to_ms
from flowfabric.sdk.errors import Parked
from flowfabric.sdk.fabric import Fabric, answered_by
from flowfabric.sdk.flow.flow import Flow
from flowfabric.sdk.journal.journal import Around
from flowfabric.sdk.journal.scopes import StepInfo
from flowfabric.sdk.journal.steps import StepDecorator
from flowfabric.sdk.run import Run
from flowfabric.sdk.task import Task
from flowfabric.sdk.waits import NO_PAYLOAD, HasId, execution_of
from flowfabric.testing import replay as replaying
from flowfabric.testing.doubles import (
    NOTHING,
    Double,
    Spy,
    StepRun,
    Target,
    double_of,
    doubled,
    name_of_target,
    observed,
)
from flowfabric.testing.errors import Stuck
from flowfabric.testing.faults import Faults, name_of
from flowfabric.testing.hands import Hand
from flowfabric.testing.histories import Recorded, check_folder
from flowfabric.testing.history import History, history_of
from flowfabric.testing.loop import GUARD_S, VirtualLoop, virtual_loop
from flowfabric.testing.planting import FaultMethods
from flowfabric.testing.schedules import ScheduleTests
from flowfabric.testing.stage import Stage, Store

START: Final = datetime(2030, 1, 1, tzinfo=UTC)
Replay = Literal["strict", "always", "off"]
_REPLAYS: Final = ("strict", "always", "off")


class BoundFabric(Fabric):
    """A fabric that has the tasks of another one, and doubles."""

    def adopt(self, app: Fabric) -> None:
        """Take over what the other one has, except where a double stands."""
        self._tasks = {**app.tasks, **self._tasks}
        self._listeners = {**app.listeners, **self._listeners}
        self._declarations = {**app._declarations, **self._declarations}

    def exchange(self, task: Task[..., Any]) -> None:
        """Put a task in the place of the one with its name."""
        self._tasks[task.name] = task


class TestFabric(FaultMethods, ScheduleTests):
    """The tasks of a fabric on a store of its own, with a clock that a test moves.

    `app`: the fabric of the program; its tasks are run here, and its calls go to this store as long
    as this one is open. None: a fabric for tasks of the test, `@fabric.task`. `store`: `memory`,
    `sqlite`, `postgresql` (a database made on the server of FLOWFABRIC_TEST_URL) or a URL.
    `start`: the first instant. `replay`: `strict` replays every run that recorded something from
    every prefix of its journal; `always` also gives each handler back after each step; `off` does
    neither.

    ```
    async def test_publish(fabric: TestFabric) -> None:
        run = await fabric.submit(publish, "solar")
        await fabric.settle()
        assert fabric.waits(run) == ["publish"]
        await fabric.approve(run, "publish", by="ada")
        await fabric.advance("30d")
        assert await run.result() == "solar"
    ```
    """

    __test__: ClassVar = False  # for pytest, which takes names that begin so for tests

    def __init__(
        self,
        app: Fabric | None = None,
        *,
        store: str = "memory",
        start: datetime = START,
        replay: Replay = "strict",
        lease_ttl: str = "30s",
        guard: float = GUARD_S,
    ) -> None:
        if app is not None and not isinstance(app, Fabric):
            raise InvalidInput(f"app: {shown(app, 80)} is no Fabric", field="app")
        if replay not in _REPLAYS:
            words = ", ".join(_REPLAYS)
            raise InvalidInput(f"replay: {shown(replay)} is not one of {words}", field="replay")
        self.replay: Replay = replay
        self._app = app
        self._start_ms = instant_ms(start, field="start")
        self._lease_ttl = lease_ttl
        self.guard = guard
        self._store = Store(store, Fabric("memory://").config if app is None else app.config)
        self.ff: BoundFabric = BoundFabric(self._store.url, config=self._store.config)
        self._stage: Stage | None = None
        self._open = ExitStack()
        self._waits: dict[str, list[str]] = {}
        self._spies: dict[str, Spy] = {}
        self._doubles: dict[str, Double] = {}
        self.runs_of_steps: list[StepRun] = []
        self.recorded = Recorded()
        self._parked: set[int] = set()

    # --- opening and closing ---------------------------------------------------------------------

    async def open(self) -> Self:
        """Open the store. It must be done in the loop of the test."""
        loop = virtual_loop()
        self._adopt()
        with loop.in_store():
            self.ff.url = await self._store.prepare()
        stage = Stage(
            self.ff,
            loop,
            url=self.ff.url,
            config=self._store.config,
            start_ms=self._start_ms,
            faults=self._faults,
            around=self._around,
            lease_ttl=self._lease_ttl,
        )
        stage.front.settle = self.settle
        await stage.open()
        self._stage = stage
        for fabric in (self.ff, *([] if self._app is None else [self._app])):
            self._open.enter_context(answered_by(fabric, stage.front))
        return self

    async def close(self, *, checks: bool = True) -> None:
        """Check what was not checked yet, and leave nothing running."""
        if self._stage is None:
            return
        try:
            if checks and self.replay != "off":
                await self._check_replays()
        finally:
            stage, self._stage = self._stage, None
            await stage.close()
            self._open.close()
            self._store.remove()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close(checks=error is None)

    def _stage_here(self) -> Stage:
        if self._stage is None:
            raise InvalidInput("fabric: open it first: async with TestFabric(ff)", field="fabric")
        return self._stage

    def _adopt(self) -> None:
        """Take over the tasks of the program, with their doubles."""
        if self._app is not None:
            self.ff.adopt(self._app)

    # --- tasks and runs --------------------------------------------------------------------------

    @property
    def task(self) -> TaskDecorator:
        """Decorates functions of the test itself: see `Fabric.task`."""
        self._new_tasks()
        return self.ff.task

    @property
    def step(self) -> StepDecorator:
        """Decorates functions of the test itself: see `Fabric.step`."""
        return self.ff.step

    def _new_tasks(self) -> None:
        if self._stage is not None:
            self._stage.dismiss()

    async def submit(self, task: Any, /, *args: Any, **kwargs: Any) -> Run[Any]:
        """Submit a task: see `Fabric.submit`."""
        return await self.ff.submit(task, *args, **kwargs)

    def flow(self, kind: str, **options: Any) -> Flow:
        """A flow to write: see `Fabric.flow`."""
        return self.ff.flow(kind, **options)

    def run(self, execution_id: str) -> Run[Any]:
        """The handle of an execution."""
        return self.ff.run(execution_id)

    # --- time ------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The store's clock."""
        return to_datetime(self._stage_here().clock.now_ms())

    async def settle(self, *, skip: bool = False) -> None:
        """Claim, run and move what is due until nothing can move. Time stands still, unless `skip`
        goes from due time to due time until all runs have ended."""
        await self._moved(self._stage_here().skip if skip else self._stage_here().settle)

    async def advance(self, by: Duration) -> None:
        """Let time pass. What becomes due happens at its time, in order."""
        stage = self._stage_here()
        until = stage.loop.time() + to_ms(by, field="by") / 1000
        await self._moved(lambda: stage.advance_to(until))

    async def _moved(self, move: Callable[[], Awaitable[None]]) -> None:
        self._adopt()
        stage = self._stage_here()
        await self._declare()
        stage.loop.guard_s = self.guard
        stage.faults.has_news = True
        try:
            await move()
        except Stuck as error:
            if error.is_explained:
                raise
            unended = await stage.unended()
            why = await stage.why(unended)
            raise Stuck(f"{error}. {why}", is_explained=True) from None
        await self._look_at_waits()
        if self.replay != "off":
            await self._check_replays()
        # A hint of a database that came late may have set the worker going meanwhile.
        await stage.loop.idle()

    # --- waits -----------------------------------------------------------------------------------

    def waits(self, run: HasId | str) -> list[str]:
        """The keys of its open waitpoints, and the mailboxes where it waits for a message, as they
        were when all last came to rest."""
        return list(self._waits.get(execution_of(run), ()))

    async def _look_at_waits(self) -> None:
        engine = self._stage_here().front
        self._waits.clear()
        for execution_id in await self._stage_here().unended():
            page = await engine.list_pending_waitpoints(execution_id=execution_id)
            self._waits[execution_id] = sorted(
                mailbox_at(each.waitpoint_key) or each.waitpoint_key for each in page.items
            )

    async def signal(
        self,
        target: Any,
        word: str | None = None,
        payload: Any = NO_PAYLOAD,
        *,
        by: str | None = None,
        name: str | None = None,
    ) -> None:
        """Deliver a signal: see `Fabric.signal`."""
        key = new_name("signal")
        for _ in range(self._take_copies()):
            await self.ff.signal(target, word, payload, name=name, source=by, idempotency_key=key)
        await self._look_at_waits()

    async def approve(
        self, run: HasId | str, key: str, *, by: str, comment: str | None = None, **more: Any
    ) -> None:
        """Approve in a person's name: see `Fabric.approve`."""
        for _ in range(self._take_copies()):
            await self.ff.approve(run, key, by=by, comment=comment, **more)
        await self._look_at_waits()

    async def reject(
        self, run: HasId | str, key: str, *, by: str, comment: str | None = None, **more: Any
    ) -> None:
        """Reject in a person's name: see `Fabric.reject`."""
        for _ in range(self._take_copies()):
            await self.ff.reject(run, key, by=by, comment=comment, **more)
        await self._look_at_waits()

    async def approve_ask(self, budget: str, dimension: str, *, by: str, **options: Any) -> None:
        """Say yes to a budget's question, and tell its spenders: see `Fabric.approve_ask`."""
        for _ in range(self._take_copies()):
            await self.ff.approve_ask(budget, dimension, by=by, **options)
        await self._look_at_waits()

    async def reject_ask(self, budget: str, dimension: str, *, by: str, **options: Any) -> None:
        """Say no to a budget's question, and tell its spenders: see `Fabric.reject_ask`."""
        for _ in range(self._take_copies()):
            await self.ff.reject_ask(budget, dimension, by=by, **options)
        await self._look_at_waits()

    async def send(
        self, run: HasId | str, mailbox: str, value: Any, *, key: str | None = None, by: str = ""
    ) -> None:
        """Put a message into a mailbox of a run: see `Run.send`. For an answer, `run.ask`."""
        given = new_name("message") if key is None else key
        to = self.ff.run(execution_of(run))
        for _ in range(self._take_copies()):
            await to.send(mailbox, value, key=given, by=by)
        await self._look_at_waits()

    # --- doubles ---------------------------------------------------------------------------------

    def stub(
        self,
        target: Target,
        *,
        returns: Any = NOTHING,
        raises: Any = NOTHING,
        side_effect: Any = NOTHING,
    ) -> Spy:
        """Put something in the place of a step's or a task's function: a value, an exception, or
        another function. Values go through JSON as the function's would. The answer is its spy."""
        name = name_of_target(target)
        double = double_of(returns, raises, side_effect)
        self._doubles[name] = double
        self._adopt()
        spy = self._spy(name)
        if isinstance(target, Task) or (isinstance(target, str) and target in self.ff.tasks):
            self._exchange(doubled(self.ff.tasks[name], double, spy.note))
        return spy

    def spy(self, target: Target) -> Spy:
        """The calls of a step or a task from now on: `fabric.spy(charge).calls`."""
        name = name_of_target(target)
        self._adopt()
        spy = self._spy(name)
        if name in self.ff.tasks and name not in self._doubles and isinstance(target, Task | str):
            self._exchange(observed(self.ff.tasks[name], spy.note))
        return spy

    def _spy(self, name: str) -> Spy:
        return self._spies.setdefault(name, Spy(name))

    def _exchange(self, task: Task[..., Any]) -> None:
        self.ff.exchange(task)

    def _around(self, hand: Hand) -> Around:
        async def around(call: Any, info: StepInfo, run: Callable[[], Awaitable[Any]]) -> Any:
            faults = self._stage_here().faults
            name, is_step = call.plan.name, call.plan.kind is EntryKind.STEP
            if is_step and self.replay == "always":
                self._give_back(call)
            await faults.at_body(hand, "before", call.key)
            if is_step:
                execution_id = call.journal.owner.claimed.execution_id
                self.runs_of_steps.append(StepRun(execution_id, call.key, call.args, call.kwargs))
                if (spy := self._spies.get(name)) is not None:
                    spy.note(call.args, call.kwargs)
            double = self._doubles.get(name) if is_step else None
            if double is None:
                answer = await run()
            else:
                answer = await double.call(call.args, call.kwargs)
            await faults.at_body(hand, "body", call.key)
            return answer

        return around

    def _give_back(self, call: Any) -> None:
        """One function for each run of a handler: all before it are answered from the journal."""
        held, journal = call.journal.owner, call.journal
        if id(journal) in self._parked and journal.performing == 1 and not journal.branches:
            self._parked.discard(id(journal))
            held.is_drained = True
            raise Parked(to_datetime(self._stage_here().clock.now_ms()))
        self._parked.add(id(journal))

    def _faults(self, loop: VirtualLoop) -> Faults:
        return Faults(loop.time, self.recorded.note)

    # --- histories and replays -------------------------------------------------------------------

    async def history(self, run: HasId | str) -> History:
        """What it was given, what it recorded and how it ended; `write_history` writes it."""
        return await history_of(self._stage_here().front, execution_of(run))

    async def check_histories(self, folder: str | Path) -> int:
        """Replay the histories in a folder by the present tasks; how many there were."""
        self._adopt()
        return await check_folder(Path(folder), self.ff.tasks)

    async def _check_replays(self) -> None:
        engine = self._stage_here().front
        for execution_id in self.recorded.changed():
            last = await history_of(engine, execution_id)
            if last.chapter:  # of the chapters that have ended, one is kept
                before = last.chapter - 1
                await self._check(await history_of(engine, execution_id, chapter_index=before))
            await self._check(last)

    async def _check(self, history: History) -> None:
        task = self.ff.tasks.get(history.kind)
        if task is None or not history.entries:
            return
        whole = self.recorded.completed(history)
        begin = self.recorded.begin(whole)
        await replaying.check(task, whole, begin=begin)
        self.recorded.checked(whole, task)

    # --- assertions ------------------------------------------------------------------------------

    async def assert_steps(self, run: HasId | str, steps: Sequence[str]) -> None:
        """The keys of its recorded steps, in the order in which they ended."""
        entries = (await self.history(run)).entries
        found = list(dict.fromkeys(each.key for each in entries if each.kind is EntryKind.STEP))
        assert found == list(steps), f"recorded are {found}, expected {list(steps)}"  # noqa: S101

    def assert_ran_once(self, step: Target, run: HasId | str | None = None) -> None:
        """The function of the step ran once, in one run or in all."""
        wanted = name_of_target(step)
        found = [each for each in self._ran(run) if wanted in (each.key, name_of(each.key))]
        keys = [each.key for each in found]
        assert len(found) == 1, f"{wanted} ran {len(found)} times: {keys}"  # noqa: S101

    def _ran(self, run: HasId | str | None) -> Iterable[StepRun]:
        if run is None:
            return self.runs_of_steps
        wanted = execution_of(run)
        return [each for each in self.runs_of_steps if each.execution_id == wanted]
