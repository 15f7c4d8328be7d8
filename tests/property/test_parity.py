"""Every store is the memory store: same history, same answers, same records (I16, I8, I15).

Sequential by design; races are the business of `test_linearizability.py`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RULE_MARKER, rule, run_state_machine_as_test

from flowfabric.engine.core import EngineCore
from flowfabric.errors import FlowFabricError
from flowfabric.kernel.create import CreateExecution
from flowfabric.kernel.decision import Refused
from flowfabric.stores.sqlite import view as sqlite_view
from tests.property.budget import budget
from tests.property.ground import Ground, ground_for
from tests.property.histories import Histories, WholeHistories
from tests.property.mint import SWITCH, Playback
from tests.property.seat import Seat, comparable
from tests.support.mutants import Mutant, plant

HISTORIES = {"memory": 40, "sqlite": 60, "postgres": 25}
STEPS = budget("FF_PARITY_STEPS", 30)


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as each:
        yield each


@pytest.fixture(autouse=True)
def minted(monkeypatch: pytest.MonkeyPatch) -> None:
    SWITCH.install(monkeypatch)


def try_histories(machine: Any, histories: int, *, shrink: bool = True) -> None:
    """Run a state machine so many times; a failure is shrunk and printed as a program."""
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=histories,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            phases=phases,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


# --- I16: store A ≡ store B --------------------------------------------------------------------


class Parity(WholeHistories):
    """The memory store beside a real one; everything stored is compared after every step."""

    def __init__(self, runner: asyncio.Runner, ground: Ground) -> None:
        ground.clear()
        super().__init__(runner, (Seat("memory://"), Seat(ground.url)))

    def after_step(self) -> None:
        expected, actual = (self.runner.run(seat.engine.store.dump()) for seat in self.seats)
        for table, rows in expected.items():
            assert actual[table] == rows, f"{table}: {difference(rows, actual[table])}"

    def teardown(self) -> None:
        real = self.seats[1].engine
        try:
            audited = self.runner.run(real.reconcile_execution_index())
            assert audited.errors == 0, audited.problems  # I8
        finally:
            super().teardown()


def difference(expected: list[Any], actual: list[Any]) -> str:
    for left, right in zip(expected, actual, strict=False):
        if left != right:
            return f"memory has {left}, the store {right}"
    return f"memory has {len(expected)} rows, the store {len(actual)}"


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_store_is_the_memory_store(
    store: str, tmp_path: Path, request: pytest.FixtureRequest, runner: asyncio.Runner
) -> None:
    with ground_for(store, tmp_path, request, runner) as ground:
        histories = budget("FF_PARITY_HISTORIES", HISTORIES[store])
        try_histories(lambda: Parity(runner, ground), histories)


def only(machine: type[Histories], rules: str) -> type[Histories]:
    """The same machine with fewer rules: what they do to each other is found sooner."""
    members = inspect.getmembers(machine)
    unwanted = {name: None for name, value in members if hasattr(value, RULE_MARKER)}
    for name in rules.split():
        del unwanted[name]
    return type("Only", (machine,), unwanted)


FOCUS = {
    "lapsing workers": "register heartbeat pass_time tick tick_at_deadline",
    "dead workers": "register mark_dead claim",
    "grants": "grant redeem claim jump_beside_deadline tick_at_deadline",
    "replays": "create replay cancel complete claim fail tick_at_deadline",
    "listings": "create_many create pass_time tick_at_deadline look claim complete",
}


@pytest.mark.parametrize("name", FOCUS)
def test_a_store_is_the_memory_store_where_it_is_dense(
    name: str, tmp_path: Path, request: pytest.FixtureRequest, runner: asyncio.Runner
) -> None:
    """Among forty rules a corner is seldom visited: some histories stay in it."""
    machine: Any = only(Parity, FOCUS[name])
    with ground_for("sqlite", tmp_path, request, runner) as ground:
        try_histories(lambda: machine(runner, ground), budget("FF_PARITY_HISTORIES", 25))


class Sabotage(NamedTuple):
    """A statement of the SQLite store, what it says, what instead, and what brings it to light."""

    statement: str
    says: str
    instead: str
    rules: str


SABOTAGE = {
    "what is due is moved one instant late": Sabotage(
        "due", "due_at <= ?", "due_at < ?", "create claim tick_at_deadline"
    ),
    "what is over is kept one instant too long": Sabotage(
        "purgeable", "purge_at <= ?", "purge_at < ?", "cancel tick_at_deadline"
    ),
    "a key lives one instant too long": Sabotage(
        "sweep_keys", "expires_at <= ?", "expires_at < ?", "create tick_at_deadline"
    ),
    "a grant ends one instant late": Sabotage(
        "ready", "expires_at < ?", "expires_at + 1 < ?", "grant jump_beside_deadline"
    ),
    "younger work goes first": Sabotage(
        "ready", "c.created_at,", "c.created_at DESC,", "create claim pass_time"
    ),
    "a changed tag is not written": Sabotage(
        "update_tags", "tags = ?", "tags = coalesce(tags, ?)", "create set_tag"
    ),
    "an expired key is not renewed": Sabotage(
        "replace_key", "WHERE", "WHERE 1 = 0 AND", "create pass_time"
    ),
    "an upsert instead of an insert": Sabotage(
        "insert_lane",
        "DO NOTHING",
        "DO UPDATE SET lane_state = excluded.lane_state",
        "create switch_lane",
    ),
}


@pytest.mark.parametrize("name", SABOTAGE)
def test_a_sabotaged_store_is_told_apart(
    name: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    runner: asyncio.Runner,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The comparison is only worth what it notices."""
    fault = SABOTAGE[name]
    sql = sqlite_view.SQL[fault.statement]
    assert fault.says in sql
    monkeypatch.setitem(sqlite_view.SQL, fault.statement, sql.replace(fault.says, fault.instead))
    machine: Any = only(Parity, fault.rules)
    with ground_for("sqlite", tmp_path, request, runner) as ground, pytest.raises(AssertionError):
        try_histories(lambda: machine(runner, ground), 400, shrink=False)


# --- I15: batch(c₁…cₙ) ≡ c₁; …; cₙ -------------------------------------------------------------


class Step(NamedTuple):
    """One command as it was executed alone: when, what, and the answer."""

    now: int
    command: Any
    answer: Any


class Recorder:
    """Stands where an engine's batches stand; commits each command alone and notes it down."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._batches = seat.engine.batches
        self.steps: list[Step | None] = []  # none: cut the batch here
        self.tape: list[bytes] = []

    async def run(self, commands: Sequence[Any]) -> list[Any]:
        self._seat.mint.tape = self.tape
        answers = [(await self._batches.run((command,)))[0] for command in commands]
        self._seat.mint.tape = None
        now = self._seat.clock.now_ms()
        for command, answer in zip(commands, answers, strict=True):
            self.steps.append(Step(now, command, comparable(answer)))
        return answers

    async def run_one(self, command: Any) -> Any:
        answer = (await self.run((command,)))[0]
        if isinstance(answer, FlowFabricError):
            raise answer
        return answer

    async def idle(self) -> None:
        await self._batches.idle()

    def batches(self) -> Iterator[list[Step]]:
        """The same commands, in the same order, as many together as the history allows."""
        batch: list[Step] = []
        for step in self.steps:
            if batch and (step is None or step.now != batch[0].now):
                yield batch
                batch = []
            if step is not None:
                batch.append(step)
        if batch:
            yield batch


class Batching(Histories):
    """Commands go one by one to the memory store, then in batches to another."""

    def __init__(self, runner: asyncio.Runner, ground: Ground) -> None:
        ground.clear()
        super().__init__(runner, (Seat("memory://"),))
        self.other = Seat(ground.url)
        self.recorder = Recorder(self.seats[0])
        self.seats[0].engine.batches = self.recorder  # type: ignore[assignment]
        runner.run(self.other.open())

    @rule()
    def commit(self) -> None:
        self.recorder.steps.append(None)

    def teardown(self) -> None:
        try:
            self.runner.run(self._repeat())
        finally:
            self.runner.run(self.other.close())
            super().teardown()

    async def _repeat(self) -> None:
        SWITCH.current = Playback(self.recorder.tape)
        for batch in self.recorder.batches():
            self.other.clock.set(batch[0].now)
            answers = await self._fold([step.command for step in batch])
            for step, answer in zip(batch, answers, strict=True):
                assert answer == step.answer, f"{step.command}: {answer} is not {step.answer}"
        expected = await self.seats[0].engine.store.dump()
        actual = await self.other.engine.store.dump()
        for table, rows in expected.items():
            assert actual[table] == rows, f"{table}: {difference(rows, actual[table])}"

    async def _fold(self, commands: list[Any]) -> list[Any]:
        engine = self.other.engine
        await engine.ensure_routes([c for c in commands if isinstance(c, CreateExecution)])
        answers, _ = await engine.transact(lambda tx: engine.fold(tx, commands))
        return [
            comparable(answer.to_error() if isinstance(answer, Refused) else answer)
            for answer in answers
        ]


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
def test_a_batch_is_its_commands_one_by_one(
    store: str, tmp_path: Path, request: pytest.FixtureRequest, runner: asyncio.Runner
) -> None:
    with ground_for(store, tmp_path, request, runner) as ground:
        histories = budget("FF_PARITY_HISTORIES", HISTORIES[store])
        try_histories(lambda: Batching(runner, ground), histories)


def test_a_batch_that_searches_before_it_saves_is_told_apart(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    runner: asyncio.Runner,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: a claim does not see what its own batch decided before it."""
    blind = Mutant(EngineCore._claim, "if changes := view.take_changes():", "if changes := None:")
    with ground_for("memory", tmp_path, request, runner) as ground:
        plant([blind], monkeypatch)
        with pytest.raises(AssertionError):
            try_histories(lambda: Batching(runner, ground), 400, shrink=False)
