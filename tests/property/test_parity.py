"""Every store is the memory store: same history, same answers, same records (I16, I8, I15).

Sequential by design; races are the business of `test_linearizability.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis.stateful import rule

from flowfabric.engine.unit import fold
from flowfabric.engine.unit.commands.due import WakeDue
from flowfabric.engine.unit.overlay import Overlay
from flowfabric.errors import FlowFabricError
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.kernel.flow.children import SpawnChildren
from flowfabric.kernel.flow.submit import SubmitFlow
from flowfabric.model.budget import HardAction
from flowfabric.model.flow import AllSucceeded, CancellationPolicy, EdgeState, TaskKind
from flowfabric.model.quota import AdmissionRow
from flowfabric.model.record import replace
from flowfabric.model.statistic import WorkCount
from flowfabric.stores import searches
from flowfabric.stores.base import Transaction
from flowfabric.stores.sqlite import small as sqlite_small
from flowfabric.stores.sqlite import view as sqlite_view
from flowfabric.stores.sqlite.small import SmallTables
from flowfabric.stores.sqlview import SqlView
from flowfabric.stores.tables import (
    ADMISSIONS,
    AUDIT,
    EDGES,
    FLOW_TASKS,
    GATES,
    LOG_MARKS,
    MEMBERS,
    QUOTAS,
)
from tests.property.budget import budget
from tests.property.flow_checks import check_flows
from tests.property.flowing import FlowHistories, WholeFlowHistories
from tests.property.ground import Ground, ground_for
from tests.property.limited import LimitedHistories, WholeLimitedHistories
from tests.property.machines import is_noticed, only, try_histories
from tests.property.mint import SWITCH, Playback, Tape
from tests.property.seat import Seat, comparable
from tests.property.waiting import WaitingHistories, WholeWaitingHistories, check_waits
from tests.support.groups import groups_as_they_stand
from tests.support.kept import dumped
from tests.support.mutants import Mutant, plant
from tests.support.runner import StepRunner

HISTORIES = {"memory": 20, "sqlite": 25, "postgres": 10}


@pytest.fixture(autouse=True)
def minted(monkeypatch: pytest.MonkeyPatch) -> None:
    SWITCH.install(monkeypatch)


# --- I16: store A ≡ store B --------------------------------------------------------------------


class Parity(WholeLimitedHistories, WholeWaitingHistories, WholeFlowHistories):
    """The memory store beside a real one; everything stored is compared after every step."""

    def __init__(self, runner: StepRunner, ground: Ground) -> None:
        ground.clear()
        super().__init__(runner, (Seat("memory://"), Seat(ground.url)))

    def after_step(self) -> None:
        expected, actual = (self.runner.run(dumped(seat.engine.store)) for seat in self.seats)
        for table, rows in expected.items():
            if table != LOG_MARKS.name:  # positions are the store's own
                assert actual[table] == rows, f"{table}: {difference(rows, actual[table])}"
        check_waits(expected)
        check_flows(expected, self.now)

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
    store: str, tmp_path: Path, request: pytest.FixtureRequest, runner: StepRunner
) -> None:
    with ground_for(store, tmp_path, request, runner) as ground:
        histories = budget("FF_PARITY_HISTORIES", HISTORIES[store])
        try_histories(lambda: Parity(runner, ground), histories)


FOCUS = {
    "lapsing workers": "register heartbeat pass_time tick tick_at_deadline",
    "dead workers": "register mark_dead claim",
    "grants": "grant redeem claim jump_beside_deadline tick_at_deadline",
    "replays": "create replay cancel complete claim fail tick_at_deadline",
    "listings": "create_many create pass_time tick_at_deadline look claim complete",
    "budgets": "furnish create_bounded create_budget update_budget reset_budget report spend "
    "report_from_outside give_back claim complete tick_at_deadline look_at_limits",
    "reservations": "furnish create_bounded update_budget reserve settle release_hold report "
    "claim complete fail revoke tick_at_deadline look_at_limits",
    "quotas": "furnish create_bounded create_quota update_quota claim complete fail cancel "
    "grant redeem replay tick_at_deadline look_at_limits",
    "external schedulers": "furnish create_bounded check_admission release_admission claim "
    "complete take_by_name update_quota tick_at_deadline look_at_limits",
    "lanes": "furnish create_bounded create create_budget create_quota configure_lane claim "
    "complete change_priority tick_at_deadline",
    "waits": "wait_anew suspend deliver approve resume claim complete expire_suspension "
    "tick_at_deadline jump_beside_deadline look_at_waits",
    "early signals": "create wait_anew create_waitpoint suspend_on_pending deliver close_waitpoint "
    "claim fail complete revoke tick_at_deadline look_at_waits",
    "ends of waits": "wait_anew suspend suspend_until create_waitpoint deliver deliver_many cancel "
    "replay hold_or_release claim fail tick tick_at_deadline hook_of_a_loop look_at_waits",
    "rotated keys": "wait_anew suspend create_waitpoint deliver approve rotate_key pass_time tick "
    "tick_at_deadline claim look_at_waits",
    "bounded waits": "furnish create_bounded wait_anew suspend suspend_until create_waitpoint "
    "suspend_on_pending reserve report check_admission release_admission deliver resume claim "
    "complete cancel tick_at_deadline look_at_limits look_at_waits",
    "graphs": "submit_flow work_off claim complete fail cancel cascade resolve_edge tag_flow "
    "small_tick tick_at_deadline look_at_flows",
    "graphs in steps": "create_flow add_new add_again stage apply_edge add_dependency set_policy "
    "work_off claim cancel tick_at_deadline look_at_flows",
    "replayed graphs": "submit_flow work_off cancel replay replay_all small_tick tick_at_deadline "
    "stage apply_edge look_at_flows",
    "cancelled flows": "submit_flow create_flow add_new work_off claim cancel_flow cancel_header "
    "cancel_member replay tick tick_at_deadline look_at_flows",
    "second thoughts": "submit_flow create_flow add_new stage apply_edge withdraw_edge work_off "
    "change_mind cancel_header replay replay_all spawn wait_children small_tick tick_at_deadline "
    "look_at_flows",
    "children": "create submit_flow claim work_off spawn wait_children complete fail cancel replay "
    "replay_all add_dependency add_new tick tick_at_deadline look_at_flows",
    "bounded graphs": "furnish create_bounded submit_flow create_flow add_new configure_lane "
    "work_off claim complete block unblock hold_or_release grant redeem cancel_flow "
    "tick_at_deadline look_at_flows",
}


DENSE = [("sqlite", name) for name in FOCUS]
ON_POSTGRES = (
    "budgets",
    "reservations",
    "quotas",
    "graphs",
    "graphs in steps",
    "second thoughts",
    "children",
)
DENSE += [("postgres", name) for name in ON_POSTGRES]


@pytest.mark.parametrize(("store", "name"), DENSE)
def test_a_store_is_the_memory_store_where_it_is_dense(
    store: str, name: str, tmp_path: Path, request: pytest.FixtureRequest, runner: StepRunner
) -> None:
    """Among forty rules a corner is seldom visited: some histories stay in it."""
    machine: Any = only(Parity, FOCUS[name])
    with ground_for(store, tmp_path, request, runner) as ground:
        histories = budget("FF_PARITY_HISTORIES", 10 if store == "sqlite" else 5)
        try_histories(lambda: machine(runner, ground), histories)


class Sabotage(NamedTuple):
    """A statement of the SQLite store, what it says, what instead, and what brings it to light."""

    statement: str
    says: str
    instead: str
    rules: str


SABOTAGE = {
    "a grant ends one instant late": Sabotage(
        "ready", "expires_at < ?", "expires_at + 1 < ?", "grant jump_beside_deadline"
    ),
    "younger work goes first": Sabotage(
        "ready", "c.ready_rank,", "c.ready_rank DESC,", "create claim pass_time"
    ),
    "a changed tag is not written": Sabotage(
        "update_tags", "tags = ?2", "tags = coalesce(tags, ?2)", "create set_tag"
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
    runner: StepRunner,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The comparison is only worth what it notices."""
    fault = SABOTAGE[name]
    sql = sqlite_view.SQL[fault.statement]
    assert fault.says in sql
    monkeypatch.setitem(sqlite_view.SQL, fault.statement, sql.replace(fault.says, fault.instead))
    machine: Any = only(Parity, fault.rules)
    with ground_for("sqlite", tmp_path, request, runner) as ground:
        assert is_noticed(lambda: machine(runner, ground))


SMALL_SABOTAGE = {
    "what is due is moved one instant late": (
        Mutant(searches._conditions, "} <= {", "} < {"),
        "create claim tick_at_deadline",
    ),
    "what is over is kept one instant too long": (
        Mutant(searches._conditions, "} <= {", "} < {"),
        "cancel tick_at_deadline",
    ),
    "limits are looked at one instant late": (
        Mutant(searches._conditions, "} <= {", "} < {"),
        "furnish create_bounded claim reserve tick_at_deadline",
    ),
    "a key of a report lives one instant too long": (
        Mutant(SqlView._sweep, "{due} <= {", "{due} < {"),
        "furnish report_from_outside create_bounded tick_at_deadline",
    ),
    "a key lives one instant too long": (
        Mutant(SqlView._sweep, "{due} <= {", "{due} < {"),
        "create tick_at_deadline",
    ),
    "an expired key is not renewed": (
        Mutant(SmallTables.write_rows, "if written.updated:", "if False:"),
        "create pass_time",
    ),
}


@pytest.mark.parametrize("name", SMALL_SABOTAGE)
def test_a_sabotaged_small_table_is_told_apart(
    name: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    runner: StepRunner,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutant, rules = SMALL_SABOTAGE[name]
    plant([mutant], monkeypatch)
    # Statements are built once for each form of a search.
    unkept = staticmethod(sqlite_small.search_sql.__wrapped__)
    monkeypatch.setattr(SmallTables, "search_sql", unkept)
    machine: Any = only(Parity, rules)
    with ground_for("sqlite", tmp_path, request, runner) as ground:
        assert is_noticed(lambda: machine(runner, ground))


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
        self.tape = Tape()

    async def run(self, commands: Sequence[Any], acts: Sequence[Any] = ()) -> list[Any]:
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


class Batching(LimitedHistories, WaitingHistories, FlowHistories):
    """Commands go one by one to the memory store, then in batches to another."""

    def __init__(self, runner: StepRunner, ground: Ground) -> None:
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
        SWITCH.current = self.playback = Playback(self.recorder.tape)
        for batch in self.recorder.batches():
            self.other.clock.set(batch[0].now)
            answers = await self._fold([step.command for step in batch])
            for step, answer in zip(batch, answers, strict=True):
                if self.flows and isinstance(step.command, WakeDue):
                    continue  # it counts tasks, and a batch may owe fewer
                assert answer == step.answer, f"{step.command}: {answer} is not {step.answer}"
        now = self.seats[0].clock.now_ms()
        expected = compared(await self.seats[0].engine.store.dump(), now)
        actual = compared(await dumped(self.other.engine.store), now)
        for table, rows in expected.items():
            assert actual[table] == rows, f"{table}: {difference(rows, actual[table])}"

    async def _fold(self, commands: list[Any]) -> list[Any]:
        engine = self.other.engine
        # A budget may be created and named in one batch: only its route must be there before it.
        await engine.known.ensure_routes(create.route for c in commands for create in creates_in(c))
        place = self.playback.place

        async def work(tx: Transaction) -> Any:
            self.playback.place = place
            return await engine.fold(tx, commands)

        answers, _ = await engine.transact(work)
        return [
            comparable(answer.to_error() if isinstance(answer, Refused) else answer)
            for answer in answers
        ]


def creates_in(command: Any) -> Sequence[CreateExecution]:
    """The executions a command would create."""
    match command:
        case CreateExecution():
            return (command,)
        case SubmitFlow():
            return [node.create for node in command.nodes]
        case SpawnChildren():
            return command.children
        case _:
            return ()


def compared(dump: dict[str, list[Any]], now: int) -> dict[str, list[Any]]:
    """What a batch must leave as single commands do. What follows from several ends of a flow's
    members is published after them all, in order for each execution and each flow; and siblings
    that ended in the same batch need not be cancelled."""
    ends = sorted(dump["completion_events"], key=lambda event: event.execution_id)
    flows = sorted(dump["flow_events"], key=lambda event: event.flow_id)
    at_work = {
        edge.downstream_execution_id
        for edge in dump[EDGES.name]
        if edge.edge_state is EdgeState.APPLIED
    }
    tasks = [
        task
        for task in dump[FLOW_TASKS.name]
        if task.kind is not TaskKind.CANCEL_SIBLINGS or task.execution_id in at_work
    ]
    told: dict[str, list[Any]] = {
        "completion_events": ends,
        "flow_events": flows,
        FLOW_TASKS.name: tasks,
    }
    # One entry tells of all that a commit creates.
    told["work_counts"] = sorted(_each_by_itself(dump["work_counts"]))
    told[MEMBERS.name] = groups_as_they_stand(dump)  # a batch may write what only an edge says
    told[AUDIT.name] = []  # it tells of calls, and these are their commands
    return {**with_windows_trimmed(dump, now), **told}


def _each_by_itself(counts: list[WorkCount]) -> list[tuple[Any, ...]]:
    return [
        (each.namespace, each.lane_id, each.execution_kind, each.counted, each.occurred_at)
        for each in counts
        for _ in range(each.count)
    ]


def with_windows_trimmed(dump: dict[str, list[Any]], now: int) -> dict[str, list[Any]]:
    """As if every gate were looked at now: a batch may look at one that single commands leave."""
    windows = {each.quota_policy_id: each.window_ms for each in dump[QUOTAS.name]}
    left: Counter[tuple[str, str]] = Counter()
    rows: list[AdmissionRow] = []
    for row in dump[ADMISSIONS.name]:
        if row.counted_at is None or row.counted_at > now - windows[row.quota_policy_id]:
            rows.append(row)
            continue
        left[row.quota_policy_id, row.dimension] += 1
        if row.is_active:
            rows.append(replace(row, counted_at=None))
    gates = [
        replace(
            gate,
            in_window=gate.in_window - left[gate.quota_policy_id, gate.dimension],
            seen_at=0,
        )
        for gate in dump[GATES.name]
    ]
    return {**dump, ADMISSIONS.name: rows, GATES.name: gates}


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
def test_a_batch_is_its_commands_one_by_one(
    store: str, tmp_path: Path, request: pytest.FixtureRequest, runner: StepRunner
) -> None:
    with ground_for(store, tmp_path, request, runner) as ground:
        histories = budget("FF_PARITY_HISTORIES", HISTORIES[store])
        try_histories(lambda: Batching(runner, ground), histories)


BATCHED = {
    "waits": "wait_anew suspend deliver approve resume expire_suspension claim complete fail "
    "move_due pass_time jump_beside_deadline commit",
    "early signals": "create wait_anew create_waitpoint suspend suspend_on_pending deliver "
    "close_waitpoint claim fail complete revoke move_due jump_beside_deadline commit",
    "ends of waits": "wait_anew suspend suspend_until create_waitpoint deliver approve cancel "
    "replay hold_or_release claim fail hook_of_a_loop move_due jump_beside_deadline commit",
    "graphs": "submit_flow work_off claim complete fail cancel cascade resolve_edge replay "
    "replay_all cancel_flow cancel_header cancel_member move_due jump_beside_deadline commit",
    "graphs in steps": "create_flow add_new add_again stage apply_edge set_policy tag_flow "
    "work_off claim complete fail cancel replay spawn wait_children cancel_flow move_due "
    "jump_beside_deadline commit",
    "second thoughts": "submit_flow create_flow add_new stage apply_edge withdraw_edge work_off "
    "change_mind cancel_header cancel_member replay replay_all spawn move_due "
    "jump_beside_deadline commit",
    "graphs that grow": "submit_flow stage apply_edge set_policy work_off claim complete fail "
    "replay replay_all move_due jump_beside_deadline commit",
}


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
@pytest.mark.parametrize("name", BATCHED)
def test_a_batch_is_its_commands_one_by_one_where_it_is_dense(
    name: str, store: str, tmp_path: Path, request: pytest.FixtureRequest, runner: StepRunner
) -> None:
    machine: Any = only(Batching, BATCHED[name])
    with ground_for(store, tmp_path, request, runner) as ground:
        histories = budget("FF_PARITY_HISTORIES", {"memory": 15, "sqlite": 8, "postgres": 4}[store])
        try_histories(lambda: machine(runner, ground), histories)


FOLLOW_UP_FIRST = """\
            if owes and not _is_first(view, command):
                await _follow_up(unit, turn)
            reply = await handler(unit, command)"""
BATCH_SABOTAGE = {
    "a claim does not see what its own batch decided before it": (
        Mutant(Overlay.candidates, "if not view.has_unwritten:", "if view.at:"),
        "create claim complete commit",
    ),
    "a cascade does not see the edges its own batch has added or resolved": (
        Mutant(Overlay.search, "if pending is None:", "if True:"),
        BATCHED["graphs that grow"],
    ),
    "room is used only after the whole batch": (
        Mutant(fold.fold, FOLLOW_UP_FIRST, FOLLOW_UP_FIRST.splitlines()[-1]),
        "furnish create_bounded claim complete commit",
    ),
}


@pytest.mark.parametrize("name", BATCH_SABOTAGE)
def test_a_sabotaged_batch_is_told_apart(
    name: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    runner: StepRunner,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutant, rules = BATCH_SABOTAGE[name]
    machine: Any = only(Batching, rules)
    with ground_for("memory", tmp_path, request, runner) as ground:
        plant([mutant], monkeypatch)
        assert is_noticed(lambda: machine(runner, ground))


@pytest.mark.parametrize(
    "name", ["honest", *(each for each in BATCH_SABOTAGE if "cascade" not in each)]
)
def test_room_made_in_a_batch_is_used_in_it(
    name: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    runner: StepRunner,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The corner that random histories seldom visit, written down."""
    with ground_for("memory", tmp_path, request, runner) as ground:
        history = Batching(runner, ground)
        claim: dict[str, Any] = {
            "worker": 1,
            "lanes": ("blue",),
            "ttl": 3_000,
            "capabilities": (),
            "kinds": None,
        }
        history.furnish((0, 0), HardAction.DENY, 1, 0, ["", ""])
        history.claim(limit=2, **claim)
        history.commit()
        history.complete(0, None)
        history.claim(limit=1, **claim)
        assert len(history.held) == 2  # the place of the first is the second's
        if name == "honest":
            history.teardown()
            return
        plant([BATCH_SABOTAGE[name][0]], monkeypatch)
        with pytest.raises(AssertionError):
            history.teardown()


def test_a_member_that_was_missed_earlier_in_its_batch_is_found_by_a_later_search(
    tmp_path: Path, request: pytest.FixtureRequest, runner: StepRunner
) -> None:
    """Its row is looked for before its flow is there; the cancel after it must see the row."""
    with ground_for("memory", tmp_path, request, runner) as ground:
        history = Batching(runner, ground)
        history.begin(0, 0)
        history.add_new(0, False, "")  # of a flow that never was
        history.set_policy(0, AllSucceeded())
        history.create_flow(0, False, True)
        history.add_again(0, False, "")
        history.cancel_flow(0, CancellationPolicy.CANCEL_ALL)
        cancelled = history.recorder.steps[-1]
        assert cancelled is not None
        assert cancelled.answer.member_execution_ids
        history.teardown()
