"""What is true of flows at every moment of a random history, replays and children included.

Judged from the records alone, with no rule of the kernel, so that a wrong rule is noticed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis.stateful import rule

from flowfabric.engine.unit.commands.flows import stage, withdraw
from flowfabric.engine.unit.flows.catch_up import CatchUp
from flowfabric.engine.unit.flows.children import Children
from flowfabric.engine.unit.flows.revival import Revival
from flowfabric.kernel.flow.children import count_child
from flowfabric.kernel.flow.dependent import hold_back
from flowfabric.kernel.flow.flow import settle, tally
from flowfabric.kernel.flow.graph import apply_edge, stage_edge
from flowfabric.kernel.flow.join import is_open, keeps_back, reopened
from flowfabric.model.flow import CancellationPolicy, OnSatisfied, Quorum
from flowfabric.model.record import replace
from flowfabric.model.results import Replayed
from flowfabric.model.state import PublicState
from flowfabric.stores.tables import EDGES, FLOW_TASKS
from tests.property.budget import budget
from tests.property.flow_checks import (
    check_ends,
    check_fired_once,
    check_flows,
    check_new_lives,
    check_sibling_cancels,
)
from tests.property.flowing import WholeFlowHistories
from tests.property.histories import pick
from tests.property.machines import only, try_histories
from tests.property.mint import SWITCH
from tests.property.seat import CONFIG, Seat
from tests.support.mutants import Mutant, plant
from tests.support.runner import StepRunner

Dump = dict[str, list[Any]]
HISTORIES = budget("FF_PARITY_HISTORIES", 40)
LONG_MS = 1_000_000_000


@pytest.fixture(autouse=True)
def minted(monkeypatch: pytest.MonkeyPatch) -> None:
    SWITCH.install(monkeypatch)


class Watched(WholeFlowHistories):
    """A history on the memory store, looked at after every step; nothing is swept or purged."""

    horizon_ms = 1_000_000

    def __init__(self, runner: StepRunner) -> None:
        self.before: Dump = {}
        config = replace(CONFIG, retention_ms=LONG_MS, event_retention_ms=LONG_MS)
        super().__init__(runner, (Seat("memory://", config),))

    def dump(self) -> Dump:
        return self.runner.run(self.seats[0].engine.store.dump())

    def after_step(self) -> None:
        dump = self.dump()
        check_flows(dump, self.now)
        check_fired_once(self.before, dump)
        check_sibling_cancels(self.before, dump)
        check_new_lives(self.before, dump)
        check_ends(dump)
        self.before = dump

    @rule(number=pick)
    def replay_skipped(self, number: int) -> None:
        """What was skipped waits for a next life of those who made it so: it is not skipped again
        by the life that has been counted."""
        ended = {e.execution_id: e for e in self.before.get("executions", ()) if e.is_terminal}
        skipped = [key for key, e in ended.items() if e.public_state is PublicState.SKIPPED]
        key = self.some(number, skipped)
        if key is None:
            return
        news = [
            edge
            for edge in self.before[EDGES.name]
            if edge.downstream_execution_id == key
            and edge.upstream_execution_id in ended
            and edge.resolved_generation != ended[edge.upstream_execution_id].replay_count
        ]
        answer = self.do(lambda seat: seat.engine.replay_execution(execution_id=key))
        if isinstance(answer, Replayed) and not news:
            (now,) = [e for e in self.before["executions"] if e.execution_id == key]
            assert now.public_state is PublicState.WAITING_CHILDREN, now

    def teardown(self) -> None:
        """Later everything owed is done."""
        try:
            for _ in range(20):
                self.move_clocks(self.now + 60_000)
                self.do(lambda seat: seat.engine.tick())
            assert not self.before[FLOW_TASKS.name]
            report = self.runner.run(self.seats[0].engine.doctor())
            said = [each for each in report.problems if each.code == "flows"]
            left = ("no task will cancel it", "apply or withdraw it")  # to whoever began that
            assert not [each for each in said if not each.detail.endswith(left)]
        finally:
            super().teardown()


CORNERS = {
    "ends": "submit_flow work_off claim complete fail cancel cascade resolve_edge small_tick tick "
    "tick_at_deadline",
    "built in steps": "create_flow add_new add_again stage apply_edge withdraw_edge "
    "add_dependency set_policy "
    "work_off claim complete fail cancel tick resolve_edge cascade cancel_flow",
    "replays": "submit_flow work_off cancel replay replay_all replay_skipped small_tick tick "
    "tick_at_deadline stage apply_edge withdraw_edge hold_or_release",
    "cancels": "submit_flow create_flow add_new work_off claim cancel_flow cancel_header "
    "cancel_member replay replay_all small_tick tick tick_at_deadline spawn wait_children",
    "second thoughts": "submit_flow create_flow add_new stage apply_edge withdraw_edge work_off "
    "change_mind cancel_header replay replay_all spawn wait_children small_tick tick "
    "tick_at_deadline",
    "children": "create submit_flow claim work_off spawn wait_children complete fail cancel replay "
    "replay_all revoke add_dependency add_new small_tick tick tick_at_deadline",
}


@pytest.mark.parametrize("corner", CORNERS)
def test_flows_at_every_step(corner: str, runner: StepRunner) -> None:
    machine: Any = only(Watched, CORNERS[corner])
    try_histories(lambda: machine(runner), HISTORIES)


def test_flows_at_every_step_of_anything(runner: StepRunner) -> None:
    try_histories(lambda: Watched(runner), HISTORIES)


# --- planted faults: histories that were thought of, so that a fault is noticed every time -------


def failed_chain(history: Watched) -> None:
    """The first of three fails, lives again with the others, and all succeed."""
    history.submit_flow("chain", None, False, None, None, None)
    history.work_off(0, False)
    history.replay_skipped(0)
    history.replay_all(2)
    for _ in range(3):
        history.work_off(0, True)


def change_of_mind(history: Watched) -> None:
    """A flow is cancelled, lives again, is cancelled again, and succeeds in a third life."""
    history.submit_flow("chain", None, False, None, None, None)
    for _ in range(2):
        history.cancel_flow(0, CancellationPolicy.CANCEL_ALL)
        for number in (2, 1, 0):  # from the first on
            history.replay(number, None)
    for _ in range(3):
        history.work_off(0, True)


def drained(history: Watched) -> None:
    """One of three has ended when the flow is cancelled around the others, and lives again before
    these are cancelled, as they are owed to be."""
    history.submit_flow("chain", None, False, None, None, None)
    history.cancel_header(0, CancellationPolicy.CANCEL_ALL, 800)
    first = history.members[0][1]
    history.cancel_named(first)
    history.replay(2, None)
    history.move_clocks(history.now + 1_000)
    history.tick()
    live = [e.execution_id for e in history.before["executions"] if not e.is_terminal]
    assert live == [first], "the others are cancelled, it is not"
    for number in (1, 0):
        history.replay(number, None)
    for _ in range(3):
        history.work_off(0, True)


def impatient(history: Watched) -> None:
    """The last of three is cancelled before its turn, and replayed before it too."""
    history.submit_flow("chain", None, False, None, None, None)
    history.cancel(0)
    history.replay(0, None)
    for _ in range(3):
        history.work_off(0, True)


def second_thoughts(history: Watched) -> None:
    """A quorum is lost and tried again before its last upstream was cancelled for it."""
    quorum = Quorum(2, OnSatisfied.CANCEL_REMAINING)
    history.submit_flow("join", quorum, False, None, None, None)
    history.work_off(1, False)
    history.replay_skipped(0)
    history.small_tick(1)


def family(history: Watched) -> None:
    """A parent waits for its child, and for another as well; the child lives again."""
    history.begin(1, 0)
    history.claim(1, ("blue",), 1, 3_000, (), None)
    history.spawn(0, 1, None)
    history.wait_children(0)
    history.add_new(0, False, "")
    history.add_dependency(0, 2)
    history.claim(1, ("blue",), 1, 3_000, (), None)
    history.complete(0, None)
    history.replay(1, None)
    for _ in range(2):
        history.work_off(2, True)


def small_family(history: Watched) -> None:
    """A parent waits for its child alone."""
    history.begin(1, 0)
    history.claim(1, ("blue",), 1, 3_000, (), None)
    history.spawn(0, 1, None)
    history.wait_children(0)
    for _ in range(2):
        history.work_off(0, True)


def announced(history: Watched) -> None:
    """Two edges are staged and one applied; their upstreams end before the other is. A third one is
    staged beside the only edge of another member, and taken back."""
    history.create_flow(0, False, False)
    for _ in range(3):
        history.add_new(0, False, "")
    history.stage(0, 0, False, None)
    history.stage(1, 0, False, None)
    history.apply_edge(1)
    history.work_off(1, True)
    history.apply_edge(0)
    history.work_off(0, True)
    history.submit_flow("chain", None, False, None, None, None)
    history.stage(1, 0, False, None)
    for _ in range(2):
        history.work_off(0, True)
    history.withdraw_edge(0)
    history.work_off(0, True)


def steps(history: Watched) -> None:
    """Two members and an edge, one call each."""
    history.create_flow(0, False, False)
    history.add_new(0, False, "")
    history.add_new(0, False, "")
    history.stage(0, 0, False, None)
    history.apply_edge(0)
    for _ in range(2):
        history.work_off(0, True)


FAULTS = {
    "a new life is not taken off the ended": (
        Mutant(tally, "(before, -1)", "(before, 0)"),
        failed_chain,
    ),
    "a life that was counted counts again": (
        Mutant(is_open, "seen < generation", "seen <= generation"),
        failed_chain,
    ),
    "an opened group keeps its losses": (Mutant(reopened, "    failed=0,", ""), failed_chain),
    "a group is opened, its edges are not": (
        Mutant(reopened, "edge_state=EdgeState.APPLIED", "edge_state=EdgeState.IMPOSSIBLE"),
        failed_chain,
    ),
    "an opened group is not pending": (
        Mutant(reopened, "group_state=GroupState.PENDING", "group_state=member.group_state"),
        failed_chain,
    ),
    "a finished flow is not opened again": (
        Mutant(settle, "_reopened(flow, at)", "Change(flow)"),
        failed_chain,
    ),
    "a cancelled flow is not opened again": (
        Mutant(settle, "and not lives_again", ""),
        drained,
    ),
    "a cancel that is owed outlives its member's life": (
        Mutant(Revival._end_former_lives, "await self._deferred.forget(keys)", "()"),
        drained,
    ),
    "siblings are cancelled for a group that is open again": (
        Mutant(CatchUp._cancel_siblings, " or member.group_state is GroupState.PENDING", ""),
        second_thoughts,
    ),
    "who had not waited to the end runs": (
        Mutant(Revival.revive, "await self._wait_again(after)", "pass"),
        impatient,
    ),
    "children that live again are counted off": (
        Mutant(count_child, "-1 if child.is_terminal else 1", "-1"),
        family,
    ),
    "nobody wakes a parent": (
        Mutant(Children.count, "if not parent.open_children:", "if False:"),
        small_family,
    ),
    "a parent goes on before its group": (
        Mutant(keeps_back, "return undecided or", "return"),
        family,
    ),
    "an edge that is applied stays staged": (
        Mutant(apply_edge, "staged=member.staged - 1", "staged=member.staged"),
        steps,
    ),
    "an edge that is staged is not counted": (
        Mutant(stage_edge, "staged=member.staged + 1", "staged=member.staged"),
        announced,
    ),
    "a sole edge speaks for one that is staged": (
        Mutant(stage, "if downstream.size == 1:", "if False:"),
        announced,
    ),
    "a withdrawal decides nothing": (
        Mutant(withdraw, "await flows.joins.decide_by_counters(after)", "after"),
        announced,
    ),
    "a late edge holds nobody back": (Mutant(hold_back, "open_group=1", "open_group=0"), steps),
}
STORIES = (
    failed_chain,
    change_of_mind,
    drained,
    impatient,
    second_thoughts,
    family,
    small_family,
    steps,
    announced,
)


def tell(story: Callable[[Watched], None], runner: StepRunner) -> Watched:
    history = Watched(runner)
    try:
        story(history)
    finally:
        history.teardown()
    return history


@pytest.mark.parametrize("story", STORIES)
def test_a_history_that_was_thought_of(
    story: Callable[[Watched], None], runner: StepRunner
) -> None:
    states = Counter(each.public_state.value for each in tell(story, runner).before["executions"])
    live = "waiting_children" if story is second_thoughts else "completed"
    assert states[live], states
    if story is not second_thoughts:
        assert set(states) == {"completed"}, states


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_noticed(
    name: str, runner: StepRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant, story = FAULTS[name]
    plant([mutant], monkeypatch)
    with pytest.raises(AssertionError):
        tell(story, runner)
