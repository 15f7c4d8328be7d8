"""What flows add to random histories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import FlowEdge, FlowNode
from flowfabric.model.attempt import FailureClass
from flowfabric.model.flow import (
    AllDone,
    AllSucceeded,
    AnySucceeded,
    CancellationPolicy,
    EdgePolicy,
    FlowStatus,
    OnSatisfied,
    Quorum,
)
from flowfabric.model.flow_results import FlowCreated, FlowSubmitted, Spawned, Staged
from flowfabric.model.handle import Handle
from flowfabric.model.results import Created
from tests.property.histories import Histories, WholeHistories, pick
from tests.property.seat import Seat
from tests.support.runner import StepRunner

NEVER_MADE = "01890000-0000-7000-8000-00000000000f"

# Small graphs in which everything happens; the joins belong to the last node.
SHAPES: dict[str, tuple[tuple[str, str], ...]] = {
    "chain": (("a", "b"), ("b", "z")),
    "join": (("a", "z"), ("b", "z"), ("c", "z")),
    "diamond": (("a", "b"), ("a", "c"), ("b", "z"), ("c", "z")),
    "shared": (("a", "y"), ("b", "y"), ("b", "z"), ("c", "z")),
}
on_satisfied = st.sampled_from(OnSatisfied)
join: st.SearchStrategy[EdgePolicy | None] = st.one_of(
    st.none(),
    st.just(AllSucceeded()),
    st.just(AllDone()),
    st.builds(AnySucceeded, on_satisfied, st.booleans()),
    st.builds(Quorum, st.integers(1, 2), on_satisfied, st.booleans()),
)
cancel_policy = st.sampled_from(CancellationPolicy)
perhaps_short = st.sampled_from((None, None, None, 700))


def request_of(deadline: int | None = None, retries: int | None = None, **rest: Any) -> Any:
    """Work of the kind that everybody claims."""
    policy: dict[str, Any] = {
        "max_replay_count": 2,
        "timeout_policy": {"execution_deadline_ms": deadline},
    }
    if retries is not None:
        pause = {"type": "fixed", "delay_ms": 300}
        policy["retry_policy"] = {"max_retries": retries, "backoff": pause}
    return NewExecution(execution_kind="brew", lane_id="blue", policy=policy, **rest)


def _of_some(name: str, delay: int | None) -> int | None:
    """Who begins a graph and who ends it are delayed; who is between them is not."""
    return delay if name in ("a", "z") else None


class FlowHistories(Histories):
    """Everything that builds graphs, and what happens in them."""

    def __init__(self, runner: StepRunner, seats: Sequence[Seat]) -> None:
        super().__init__(runner, seats)
        self.flows: list[str] = []
        self.members: list[tuple[str, str]] = []  # flow and execution
        self.edges: list[tuple[str, str, str, str]] = []  # flow, edge, upstream, downstream

    def flow(self, number: int) -> str:
        """Mostly a recent one; now and then one that never was."""
        return self.some(number, [NEVER_MADE, *self.flows]) or NEVER_MADE

    # --- whole graphs --------------------------------------------------------------------------

    @rule(
        shape=st.sampled_from(tuple(SHAPES)),
        policy=join,
        passes=st.booleans(),
        deadline=perhaps_short,
        retries=st.sampled_from((None, None, 1)),
        key=st.sampled_from((None, None, "g1", "g2")),
        delay=st.sampled_from((None, None, 0, 600)),
    )
    def submit_flow(
        self,
        shape: str,
        policy: EdgePolicy | None,
        passes: bool,
        deadline: int | None,
        retries: int | None,
        key: str | None,
        delay: int | None = None,
    ) -> None:
        pairs = SHAPES[shape]
        names = sorted({name for pair in pairs for name in pair})
        nodes = [
            FlowNode(
                name=name,
                execution=request_of(
                    deadline if name == "z" else None, retries, delay_ms=_of_some(name, delay)
                ),
                join=policy if name == "z" else None,
            )
            for name in names
        ]
        edges = [
            FlowEdge(upstream=low, downstream=high, passes_result=passes) for low, high in pairs
        ]
        self._take(
            self.do(
                lambda seat: seat.engine.submit_flow(
                    nodes=nodes, edges=edges, idempotency_key=key, dedup_window_ms=3_000
                )
            )
        )

    def _take(self, answer: Any) -> None:
        """Remember a graph, so that its members and edges can be chosen."""
        if not isinstance(answer, FlowSubmitted):
            return
        self.flows.append(answer.flow_id)
        self.executions += answer.execution_ids.values()
        self.members += ((answer.flow_id, key) for key in answer.execution_ids.values())
        found = self.runner.run(self.seats[0].engine.list_edges(flow_id=answer.flow_id))
        for each in found.items:
            ends = (each.upstream_execution_id, each.downstream_execution_id)
            self.edges.append((answer.flow_id, each.edge_id, *ends))

    @rule(number=pick, policy=cancel_policy)
    def cancel_flow(self, number: int, policy: CancellationPolicy) -> None:
        flow = self.flow(number)
        self.do(lambda seat: seat.engine.cancel_flow(flow_id=flow, policy=policy, reason="stop"))

    @rule(number=pick, policy=cancel_policy, lives=st.integers(1, 3), again=st.booleans())
    def change_mind(self, number: int, policy: CancellationPolicy, lives: int, again: bool) -> None:
        """A flow is cancelled, some of its members live again, and mostly it is cancelled again."""
        flow = self.flow(number)
        self.do(lambda seat: seat.engine.cancel_flow(flow_id=flow, policy=policy, reason="stop"))
        for key in [key for its, key in self.members if its == flow][-lives:]:
            self.replay_named(key)
        if again:
            self.do(lambda seat: seat.engine.cancel_flow(flow_id=flow, reason="for good"))

    def replay_named(self, key: str) -> None:
        self.do(lambda seat: seat.engine.replay_execution(execution_id=key))

    @rule(number=pick, policy=cancel_policy, grace=st.sampled_from((0, 800)))
    def cancel_header(self, number: int, policy: CancellationPolicy, grace: int) -> None:
        flow = self.flow(number)
        self.do(
            lambda seat: seat.engine.cancel_flow_header(flow_id=flow, policy=policy, grace_ms=grace)
        )

    @rule(number=pick)
    def cancel_member(self, number: int) -> None:
        """As whoever cancelled only the header does."""
        if found := self.some(number, self.members):
            flow, key = found
            self.cancel_named(key)
            self.do(lambda seat: seat.engine.ack_cancel_member(flow_id=flow, execution_id=key))

    def cancel_named(self, key: str) -> None:
        self.do(
            lambda seat: seat.engine.cancel_execution(
                execution_id=key, reason="not needed", source="operator_override"
            )
        )

    # --- one by one ----------------------------------------------------------------------------

    @rule(number=pick, tagged=st.booleans(), again=st.booleans())
    def create_flow(self, number: int, tagged: bool, again: bool) -> None:
        flow = self.flow(number) if again else None
        made = self.do(
            lambda seat: seat.engine.create_flow(
                flow_id=flow, tags={"team.name": "a"} if tagged else {}
            )
        )
        if isinstance(made, FlowCreated):
            self.flows.append(made.flow_id)

    @rule(number=pick, reopen=st.booleans(), name=st.sampled_from(("", "n")))
    def add_new(self, number: int, reopen: bool, name: str) -> None:
        """A new execution on the flow's partition joins it."""
        flow = self.flow(number)
        made = self.do(
            lambda seat: seat.engine.create_execution(
                execution_kind="brew",
                lane_id="blue",
                colocate_with=flow,
                policy={"max_replay_count": 2},
            )
        )
        if isinstance(made, Created):
            self.executions.append(made.execution_id)
            self.members.append((flow, made.execution_id))
            self._join(flow, made.execution_id, reopen, name)

    @rule(number=pick, reopen=st.booleans(), name=st.sampled_from(("", "n")))
    def add_again(self, number: int, reopen: bool, name: str) -> None:
        if found := self.some(number, self.members):
            self._join(*found, reopen, name)

    def _join(self, flow: str, key: str, reopen: bool, name: str) -> None:
        self.do(
            lambda seat: seat.engine.add_execution_to_flow(
                flow_id=flow, execution_id=key, node_name=name, reopen=reopen
            )
        )

    @rule(low=pick, high=pick, passes=st.booleans(), revision=st.sampled_from((None, None, 2)))
    def stage(self, low: int, high: int, passes: bool, revision: int | None) -> None:
        """Mostly between two of one flow."""
        if not self.members:
            return
        flow, upstream, downstream = self._ends(low, high)
        made = self.do(
            lambda seat: seat.engine.stage_dependency_edge(
                flow_id=flow,
                upstream_execution_id=upstream,
                downstream_execution_id=downstream,
                data_passing_ref="result" if passes else None,
                expected_graph_revision=revision,
            )
        )
        if isinstance(made, Staged):
            self.edges.append((flow, made.edge_id, upstream, downstream))

    def _ends(self, low: int, high: int) -> tuple[str, str, str]:
        """Two of one flow; alone, it may only wait for itself."""
        flow, downstream = self.some(high, self.members) or self.members[-1]
        near = [key for its, key in self.members if its == flow and key != downstream]
        return flow, self.some(low, near) or downstream, downstream

    def _edge(self, number: int) -> dict[str, str] | None:
        found = self.some(number, self.edges)
        names = ("flow_id", "edge_id", "upstream_execution_id", "downstream_execution_id")
        return None if found is None else dict(zip(names, found, strict=True))

    @rule(number=pick)
    def apply_edge(self, number: int) -> None:
        if edge := self._edge(number):
            self.do(lambda seat: seat.engine.apply_dependency_to_child(**edge))

    @rule(number=pick)
    def withdraw_edge(self, number: int) -> None:
        if edge := self._edge(number):
            self.do(lambda seat: seat.engine.withdraw_dependency_edge(**edge))

    @rule(number=pick)
    def resolve_edge(self, number: int) -> None:
        if edge := self._edge(number):
            self.do(lambda seat: seat.engine.resolve_dependency(**edge))

    @rule(number=pick)
    def cascade(self, number: int) -> None:
        key = self.execution(number)
        self.do(lambda seat: seat.engine.cascade_completion(execution_id=key))

    @rule(number=pick, policy=join.filter(lambda each: each is not None))
    def set_policy(self, number: int, policy: EdgePolicy) -> None:
        if found := self.some(number, self.members):
            flow, key = found
            self.do(
                lambda seat: seat.engine.set_edge_group_policy(
                    flow_id=flow, downstream_execution_id=key, policy=policy
                )
            )

    @rule(number=pick, value=st.integers(0, 1))
    def tag_flow(self, number: int, value: int) -> None:
        flow = self.flow(number)
        self.do(
            lambda seat: seat.engine.set_flow_tag(
                flow_id=flow, key="team.size", value=f"value {value}"
            )
        )

    # --- children and replays ------------------------------------------------------------------

    @rule(number=pick, children=st.integers(1, 2), key=st.sampled_from((None, "c1")))
    def spawn(self, number: int, children: int, key: str | None) -> None:
        if held := self.some(number, self.held):
            wanted = [
                request_of(idempotency_key=f"{key}-{held.execution_id}" if key else None)
                for _ in range(1 if key else children)
            ]
            made = self.do(lambda seat: seat.engine.spawn_children(seat.handle(held), wanted))
            if isinstance(made, Spawned):
                self.executions += made.execution_ids
                if made.flow_id not in self.flows:
                    self.flows.append(made.flow_id)
                    self.members.append((made.flow_id, held.execution_id))
                self.members += ((made.flow_id, each) for each in made.execution_ids)

    @rule(number=pick)
    def wait_children(self, number: int) -> None:
        if held := self.some(number, self.held):
            self.do(lambda seat: seat.engine.wait_children(seat.handle(held)))

    @rule(number=pick)
    def replay_all(self, number: int) -> None:
        if found := self.some(number, self.members):
            self.do(lambda seat: seat.engine.replay_execution(execution_id=found[1], cascade=True))

    @rule(number=pick, good=st.booleans())
    def work_off(self, number: int, good: bool) -> None:
        """Somebody claims and ends it at once: most histories are about what follows."""
        before = len(self.held)
        self.act_at_once(1)
        for held in self.held[before:][: 1 + number % 3]:
            self._end(held, good)

    def _end(self, held: Handle, good: bool) -> None:
        if good:
            self.do(lambda seat: seat.engine.complete(seat.handle(held), result=b"1"))
        else:
            self.do(
                lambda seat: seat.engine.fail(
                    seat.handle(held), reason="it broke", failure_class=FailureClass.PERMANENT
                )
            )


class WholeFlowHistories(FlowHistories, WholeHistories):
    """The same, and what runs in transactions of its own."""

    @rule(low=pick, high=pick)
    def add_dependency(self, low: int, high: int) -> None:
        if not self.members:
            return
        flow, upstream, downstream = self._ends(low, high)
        self.do(
            lambda seat: seat.engine.add_dependency(
                flow_id=flow,
                upstream_execution_id=upstream,
                downstream_execution_id=downstream,
            )
        )

    @rule(number=pick, member=pick, status=st.sampled_from((None, *FlowStatus)))
    def look_at_flows(self, number: int, member: int, status: FlowStatus | None) -> None:
        flow, key = self.flow(number), self.execution(member)
        self.do(lambda seat: seat.engine.describe_flow(flow_id=flow))
        self.do(lambda seat: seat.engine.list_flow_members(flow_id=flow))
        self.do(lambda seat: seat.engine.list_edges(flow_id=flow))
        self.do(lambda seat: seat.engine.list_edges(flow_id=flow, from_node=key))
        self.do(lambda seat: seat.engine.list_edges(flow_id=flow, to_node=key))
        self.do(lambda seat: seat.engine.list_flows(status=status, limit=2))
        self.do(lambda seat: seat.engine.list_flows(newest_first=True))
        self.do(lambda seat: seat.engine.project_flow_summary(flow_id=flow))
        self.do(lambda seat: seat.engine.get_flow_tag(flow_id=flow, key="team.name"))
        self.do(lambda seat: seat.engine.resolve_execution_flow_id(execution_id=key))
        self.do(lambda seat: seat.engine.evaluate_flow_eligibility(execution_id=key))
        self.do(lambda seat: seat.engine.explain(execution_id=key))
