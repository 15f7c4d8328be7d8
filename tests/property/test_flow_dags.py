"""Random graphs with random joins and ends, in random order, agree with a brute-force judge.

The first test follows the engine step by step: after each the judge knows every node's state. In
the second a transaction may resolve only a few edges, so that cascades are cut anywhere, come late
and twice; there the final state of every node must follow from those of its upstreams.
FF_FLOW_DAGS=5000 at night.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, seed, settings

from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import FlowEdge, FlowNode
from flowfabric.assemble import open_engine
from flowfabric.clock import ManualClock
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.engine.unit.flows.cascade import Cascade
from flowfabric.engine.unit.flows.catch_up import CatchUp
from flowfabric.engine.unit.flows.joins import Joins
from flowfabric.engine.unit.view import InvariantViolated
from flowfabric.errors import EdgeNotInForce, ExecutionNotTerminal
from flowfabric.kernel.flow.dependent import release_member
from flowfabric.kernel.flow.flow import ended_state, settle, tally
from flowfabric.kernel.flow.join import (
    cancels_siblings,
    count_ends,
    is_open,
    judge,
    spares_shared,
)
from flowfabric.model.attempt import FailureClass
from flowfabric.model.flow import AnySucceeded, FlowState, Quorum, TaskKind
from flowfabric.model.flow_results import FlowSubmitted
from flowfabric.model.results import Claimed, Created
from flowfabric.stores.tables import FLOW_TASKS, FLOWS
from tests.property.budget import budget
from tests.property.dags import Judge, Plan, cancels, plans, verdict
from tests.property.flow_checks import check_ends, check_fired_once, check_flows
from tests.property.ground import Ground, MemoryGround, ground_for
from tests.support.groups import groups_as_they_stand
from tests.support.kept import dumped
from tests.support.mutants import Mutant, plant
from tests.support.runner import StepRunner

LONG_MS = 1_000_000_000
LEASE_MS = 3_600_000
STEP_MS = 1_000
FOLLOWED = {"memory": 150, "sqlite": 25, "postgres": 8}
CUT = {"memory": 100, "sqlite": 25, "postgres": 8}
FAULT_GRAPHS = 1_500  # the first that notices ends it
ENDS = {"completed", "failed", "cancelled", "expired", "skipped"}
CONFIG = EngineConfig(loops=False, retention_ms=LONG_MS, synchronous="normal")


class Trial:
    """One plan on one engine; after every call the records are checked."""

    def __init__(self, plan: Plan, engine: Engine, clock: ManualClock) -> None:
        self.plan = plan
        self.engine = engine
        self.clock = clock
        self.begun_at = clock.now_ms()
        self.flow_id = ""
        self.ids: dict[int, str] = {}
        self.running: dict[int, Claimed] = {}
        self.before: dict[str, list[Any]] = {}

    # --- building ------------------------------------------------------------------------------

    async def build(self) -> None:
        await (self._build_in_steps() if self.plan.in_steps else self._submit())
        await self.look()

    def _execution(self, node: int, **fields: Any) -> NewExecution:
        policy: dict[str, Any] = {}
        if node in self.plan.mortal:
            policy["timeout_policy"] = {"execution_deadline_ms": STEP_MS * (node + 1)}
        return NewExecution(execution_kind="node", policy=policy, **fields)

    async def _submit(self) -> None:
        nodes = [
            FlowNode(
                name=str(node), execution=self._execution(node), join=self.plan.joins.get(node)
            )
            for node in range(self.plan.size)
        ]
        edges = [
            FlowEdge(upstream=str(upstream), downstream=str(downstream))
            for upstream, downstream in self.plan.edges
        ]
        made = await self.engine.submit_flow(nodes=nodes, edges=edges)
        assert isinstance(made, FlowSubmitted)
        self.flow_id = made.flow_id
        self.ids = {int(name): key for name, key in made.execution_ids.items()}

    async def _build_in_steps(self) -> None:
        flow = self.flow_id = (await self.engine.create_flow()).flow_id
        for node in range(self.plan.size):
            request = self._execution(node, colocate_with=flow)
            (made,) = await self.engine.create_executions([request])
            assert isinstance(made, Created)
            self.ids[node] = made.execution_id
            await self.engine.add_execution_to_flow(flow_id=flow, execution_id=made.execution_id)
        for node, policy in self.plan.joins.items():
            if policy is not None:
                await self.engine.set_edge_group_policy(
                    flow_id=flow, downstream_execution_id=self.ids[node], policy=policy
                )
        for upstream, downstream in self.plan.edges:
            await self.engine.add_dependency(
                flow_id=flow,
                upstream_execution_id=self.ids[upstream],
                downstream_execution_id=self.ids[downstream],
            )

    # --- what can happen -----------------------------------------------------------------------

    async def start(self, node: int) -> None:
        claimed = await self.engine.issue_grant_and_claim(
            execution_id=self.ids[node], lane_id="default", lease_duration_ms=LEASE_MS
        )
        self.running[node] = claimed
        await self.look()

    async def finish(self, node: int, outcome: str) -> None:
        if node not in self.running:
            await self.start(node)
        handle = self.running[node].handle
        if outcome == "completed":
            await self.engine.complete(handle, result=b"1")
        else:
            await self.engine.fail(handle, reason="x", failure_class=FailureClass.PERMANENT)
        await self.look()

    async def cancel(self, node: int) -> None:
        await self.engine.cancel_execution(
            execution_id=self.ids[node], reason="test", source="operator_override"
        )
        await self.look()

    def expired_next(self, live: list[int]) -> int | None:
        mortal = [node for node in live if node in self.plan.mortal]
        return min(mortal, default=None)

    def pass_deadline(self, node: int) -> None:
        self.clock.set(max(self.clock.now_ms(), self.begun_at + STEP_MS * (node + 1)))

    async def expire(self, node: int) -> None:
        self.pass_deadline(node)
        await self.engine.expire_execution(execution_id=self.ids[node], phase="execution_deadline")
        await self.look()

    async def cascade_again(self, node: int) -> Any:
        outcome = await self.engine.cascade_completion(execution_id=self.ids[node])
        await self.look()
        return outcome

    async def resolve_again(self, number: int) -> str:
        """Resolve an edge by hand, whatever its state."""
        upstream, downstream = self.plan.edges[number % len(self.plan.edges)]
        (edge,) = [
            each
            for each in (await self.engine.list_edges(flow_id=self.flow_id)).items
            if each.upstream_execution_id == self.ids[upstream]
            and each.downstream_execution_id == self.ids[downstream]
        ]
        try:
            answer = await self.engine.resolve_dependency(
                flow_id=self.flow_id,
                edge_id=edge.edge_id,
                upstream_execution_id=self.ids[upstream],
                downstream_execution_id=self.ids[downstream],
            )
        except (EdgeNotInForce, ExecutionNotTerminal):
            return "refused"
        await self.look()
        return answer.outcome

    # --- what is stored ------------------------------------------------------------------------

    async def look(self) -> None:
        """Every invariant, after every step."""
        dump = await dumped(self.engine.store)
        check_flows(dump, self.clock.now_ms())
        check_ends(dump)
        check_fired_once(self.before, dump)
        self.before = dump

    def states(self) -> dict[int, str]:
        found = {each.execution_id: each for each in self.before["executions"]}
        return {node: found[key].public_state.value for node, key in self.ids.items()}

    def reasons(self) -> dict[int, str | None]:
        found = {each.execution_id: each for each in self.before["executions"]}
        return {node: found[key].cancelled_by for node, key in self.ids.items()}

    def owed(self) -> set[tuple[TaskKind, int]]:
        nodes = {key: node for node, key in self.ids.items()}
        return {(task.kind, nodes[task.execution_id]) for task in self.before[FLOW_TASKS.name]}

    def decided(self) -> set[int]:
        nodes = {key: node for node, key in self.ids.items()}
        return {
            nodes[member.execution_id]
            for member in groups_as_they_stand(self.before)
            if member.satisfied_at is not None
        }

    def cancelled_by_others(self) -> bool:
        """Whether anybody was cancelled whom a join that was met could not do without."""
        return any(
            each.public_state == "cancelled"
            and each.cancellation_reason != "sibling_quorum_satisfied"
            for each in self.before["executions"]
        )

    def flow_state(self) -> FlowState:
        (flow,) = self.before[FLOWS.name]
        state = flow.public_flow_state
        assert isinstance(state, FlowState)
        return state


def check_over(trial: Trial) -> None:
    """All have ended, nothing is owed, and the flow says so."""
    states = set(trial.states().values())
    lost = states & {"failed", "expired"} or trial.cancelled_by_others()
    assert states <= ENDS
    assert trial.flow_state() is (FlowState.FAILED if lost else FlowState.COMPLETED)
    assert not trial.owed()


# --- step by step ------------------------------------------------------------------------------


async def follow(plan: Plan, engine: Engine, clock: ManualClock) -> None:
    """The judge is told what happened and must know every state afterwards."""
    trial, referee = Trial(plan, engine, clock), Judge(plan)
    await trial.build()
    for move, number in plan.moves:
        await _one_move(trial, referee, move, number)
        _agree(trial, referee)
    while referee.live():
        while trial.owed():
            await _settle(trial, referee)
            _agree(trial, referee)
        if ready := referee.among("waiting", "active"):
            await trial.finish(ready[0], "completed")
            referee.end("completed", ready[0])
            _agree(trial, referee)
    while trial.owed():
        await _settle(trial, referee)
    check_over(trial)
    assert (await engine.doctor()).problems == ()


async def _one_move(trial: Trial, referee: Judge, move: str, number: int) -> None:
    ready, live = referee.among("waiting", "active"), referee.live()
    match move:
        case "start" if waiting := referee.among("waiting"):
            node = waiting[number % len(waiting)]
            await trial.start(node)
            referee.states[node] = "active"
        case "succeed" | "fail" if ready:
            node, outcome = ready[number % len(ready)], f"{move}ed".replace("succeed", "complet")
            await trial.finish(node, outcome)
            referee.end(outcome, node)
        case "cancel" if live:
            node = live[number % len(live)]
            await trial.cancel(node)
            referee.end("cancelled", node)
        case "expire" if (mortal := trial.expired_next(live)) is not None:
            await trial.expire(mortal)
            referee.end("expired", mortal)
        case "settle":
            await _settle(trial, referee)
        case "cascade":
            outcome = await trial.cascade_again(number % trial.plan.size)
            assert (outcome.resolved, outcome.cascaded_children) == (0, 0), "resolved twice"
        case "resolve":
            assert await trial.resolve_again(number) in ("refused", "already_resolved")
        case _:
            pass  # nobody to do it to


async def _settle(trial: Trial, referee: Judge) -> None:
    """One thing that was owed is done; which one is up to the engine."""
    owed = trial.owed()
    await trial.engine.move_due(limit=1)
    await trial.look()
    for kind, child in owed - trial.owed():
        assert kind is TaskKind.CANCEL_SIBLINGS
        referee.dispatched.add(child)
        referee.end("cancelled", *referee.losers(child))


def _agree(trial: Trial, referee: Judge) -> None:
    assert trial.states() == referee.states, trial.plan
    done = {child for _, child in trial.owed()} | referee.dispatched
    for child in referee.decided:  # who was spared once is spared for good
        assert not referee.losers(child) or child in done, f"nobody will cancel siblings of {child}"


# --- cut anywhere ------------------------------------------------------------------------------


async def cut(plan: Plan, engine: Engine, clock: ManualClock) -> None:
    """Cascades are cut into pieces that come late, twice, and between other things."""
    trial = Trial(plan, engine, clock)
    own: dict[int, str] = {}  # how nodes ended that were made to end
    await trial.build()
    for move, number in plan.moves:
        await _one_cut(trial, own, move, number)
    while True:
        while trial.owed():
            await _later(trial)
        _nobody_unneeded(trial)
        states = trial.states()
        ready = [node for node, state in states.items() if state in ("waiting", "active")]
        if not ready:
            break
        own[ready[0]] = "completed"
        await trial.finish(ready[0], "completed")
    check_over(trial)
    _follows(trial, own)
    assert (await engine.doctor()).problems == ()


def _nobody_unneeded(trial: Trial) -> None:
    """When nothing is owed, nobody works for a group that cancels whoever it does not need."""
    plan, states, decided = trial.plan, trial.states(), trial.decided()
    live = [node for node, state in states.items() if state not in ENDS]
    for child in decided:
        policy = plan.joins[child]
        if cancels(policy):
            left = {node for node in plan.upstreams(child) if node in live}
            spared = isinstance(policy, AnySucceeded | Quorum) and policy.only_if_unshared
            assert spared or not left, f"{left} work for {child}, which was decided: {plan}"


async def _later(trial: Trial) -> None:
    """What is owed may have been put off a little."""
    trial.clock.advance(1)
    await trial.engine.move_due(limit=2)
    await trial.look()


async def _one_cut(trial: Trial, own: dict[int, str], move: str, number: int) -> None:
    states = trial.states()
    ready = [node for node, state in states.items() if state in ("waiting", "active")]
    live = [*ready, *(node for node, state in states.items() if state == "waiting_children")]
    match move:
        case "start" if ready and states[ready[number % len(ready)]] == "waiting":
            await trial.start(ready[number % len(ready)])
        case "succeed" | "fail" if ready:
            node, outcome = ready[number % len(ready)], f"{move}ed".replace("succeed", "complet")
            own[node] = outcome
            await trial.finish(node, outcome)
        case "cancel" if live:
            node = live[number % len(live)]
            own[node] = "cancelled"
            await trial.cancel(node)
        case "expire" if (mortal := trial.expired_next(live)) is not None:
            trial.pass_deadline(mortal)
            await _later(trial)
            if trial.states()[mortal] == "expired":
                own[mortal] = "expired"
        case "settle":
            await _later(trial)
        case "cascade":
            await trial.cascade_again(number % trial.plan.size)
        case "resolve":
            await trial.resolve_again(number)
        case _:
            pass  # nobody to do it to


def _follows(trial: Trial, own: dict[int, str]) -> None:
    """Each node's end follows from its upstreams', from what was done to it, or from a group that
    no longer needed it."""
    states, plan, by = trial.states(), trial.plan, trial.reasons()
    decided = {}
    for child, policy in plan.joins.items():
        ends = [states[each] == "completed" for each in plan.upstreams(child)]
        decided[child] = verdict(policy, ends, 0)
    for node, state in states.items():
        if by[node] == "sibling_quorum":
            assert any(cancels(plan.joins[child]) for child in plan.downstreams(node)), node
            assert state == "cancelled"
        elif state == "expired":
            assert node in plan.mortal
        elif decided.get(node, True):
            assert state == own[node], f"{node} is {state}, was {own[node]}: {plan}"
        else:
            assert state == own.get(node, "skipped"), f"{node} is {state}: {plan}"
            assert state != "completed", f"{node} ran, though its group was impossible: {plan}"


# --- the tests ---------------------------------------------------------------------------------


@contextmanager
def opened(ground: Ground, runner: StepRunner) -> Iterator[tuple[Engine, ManualClock]]:
    clock = ManualClock(1_000_000)
    engine = open_engine(ground.url, config=CONFIG, clock=clock)
    runner.run(engine.start(migrate=True))
    try:
        yield engine, clock
    finally:
        runner.run(engine.close())


def try_plans(
    story: Any, ground: Ground, runner: StepRunner, examples: int, *, shrink: bool = True
) -> None:
    """So many plans, each on an empty store; always the same ones when nothing is shrunk."""

    def trial(plan: Plan) -> None:
        ground.clear()
        with opened(ground, runner) as (engine, clock):
            runner.run(story(plan, engine, clock))

    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    test = settings(max_examples=examples, phases=phases)(given(plans())(trial))
    (test if shrink else seed(1)(test))()


@pytest.mark.parametrize("store", FOLLOWED)
def test_every_state_is_the_judges(
    store: str, tmp_path: Path, request: pytest.FixtureRequest, runner: StepRunner
) -> None:
    with ground_for(store, tmp_path, request, runner) as ground:
        try_plans(follow, ground, runner, budget("FF_FLOW_DAGS", FOLLOWED[store]))


@pytest.mark.parametrize("room", [1, 3])
@pytest.mark.parametrize("store", CUT)
def test_cascades_cut_anywhere_end_alike(
    store: str,
    room: int,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    runner: StepRunner,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Joins, "remaining", room)
    monkeypatch.setattr(CatchUp, "cancels_remaining", room)
    with ground_for(store, tmp_path, request, runner) as ground:
        try_plans(cut, ground, runner, budget("FF_FLOW_DAGS", CUT[store]))


# --- planted faults ----------------------------------------------------------------------------

FAULTS = {
    "a quorum needs one more": (Mutant(judge, "succeeded >= k", "succeeded > k"), follow),
    "a quorum gives up too soon": (Mutant(judge, "lost > total - k", "lost >= total - k"), follow),
    "any-of never gives up": (Mutant(judge, "lost >= total", "lost > total"), follow),
    "all-of forgives one": (Mutant(judge, "lost > 0", "lost > 1"), follow),
    "all-done wants success": (
        Mutant(judge, "met = succeeded + lost == total", "met = succeeded == total"),
        follow,
    ),
    "skipped counts as success": (
        Mutant(
            count_ends,
            "outcomes.count(_SUCCESS), outcomes.count(TerminalOutcome.SKIPPED)",
            "outcomes.count(_SUCCESS) + outcomes.count(TerminalOutcome.SKIPPED), 0",
        ),
        follow,
    ),
    "a group fires twice": (
        Mutant(count_ends, "if member.group_state is not _PENDING or", "if"),
        follow,
    ),
    "an edge counts twice": (
        Mutant(is_open, "return edge.edge_state is EdgeState.APPLIED and", "return True or"),
        follow,
    ),
    "siblings of a quorum run on": (
        Mutant(
            cancels_siblings,
            "isinstance(policy, AnySucceeded | Quorum)",
            "isinstance(policy, AnySucceeded)",
        ),
        follow,
    ),
    "siblings are cancelled though they may run": (
        Mutant(cancels_siblings, "is OnSatisfied.CANCEL_REMAINING", "is not None"),
        follow,
    ),
    "nobody is spared": (Mutant(spares_shared, "policy.only_if_unshared", "False"), follow),
    "what expired is forgotten": (
        Mutant(ended_state, " or flow.expired_count", ""),
        follow,
    ),
    "an end is not counted": (
        Mutant(tally, "counts.get(name, 0) + step", "step"),
        follow,
    ),
    "a flow is over one early": (
        Mutant(settle, "flow.ended_count == flow.node_count", "flow.ended_count > 1"),
        follow,
    ),
    "a fired child is not set free": (
        Mutant(release_member, "        open_group=0,\n", ""),
        follow,
    ),
    "the rest of a cascade is forgotten": (
        Mutant(Cascade.resolve_from, "if not is_all:", "if False:"),
        cut,
    ),
    "the rest of a cancel is forgotten": (
        Mutant(CatchUp._cancel, "return False", "return True"),
        cut,
    ),
    "a task that is not done is dropped": (Mutant(CatchUp._do, "if ended:", "if True:"), cut),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_noticed(
    name: str, runner: StepRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant, story = FAULTS[name]
    if story is cut:
        monkeypatch.setattr(Joins, "remaining", 1)
        monkeypatch.setattr(CatchUp, "cancels_remaining", 1)
    plant([mutant], monkeypatch)
    with pytest.raises((AssertionError, InvariantViolated)):
        try_plans(story, MemoryGround(), runner, FAULT_GRAPHS, shrink=False)
