"""Whole graphs at once: everything is recorded, or nothing is and the culprit is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from flowfabric.errors import BudgetScopeMismatch, InvalidInput, SelfReferencingEdge
from flowfabric.kernel.command import Command, ExecutionCommand, Needs
from flowfabric.kernel.decision import Moment, Refused
from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.kernel.flow.flow import CreateFlow
from flowfabric.kernel.flow.graph import StageEdge, new_edge, ranks_of, refuse_quorum
from flowfabric.model.execution import Fence
from flowfabric.model.flow import EdgePolicy, EdgeRow, EdgeState, MemberRow
from flowfabric.model.flow_results import FlowDuplicate, FlowSubmitted, Spawned
from flowfabric.model.record import Record


class Node(Record, frozen=True):
    """One execution of a graph, under the name by which edges refer to it."""

    name: str
    create: CreateExecution
    policy: EdgePolicy | None = None


class SubmitFlow(Command[FlowSubmitted | FlowDuplicate], frozen=True, kw_only=True):
    """A graph whose edges have been checked: every node it names is there."""

    flow: CreateFlow
    nodes: tuple[Node, ...]
    edges: tuple[StageEdge, ...]
    ranks: dict[str, int]
    idempotency_key: str | None = None
    fingerprint: bytes = b""
    dedup_window_ms: int = 0
    is_named: bool = False  # the caller chose the flow's id, so it may be taken

    @property
    def flow_id(self) -> str:
        """The flow's id."""
        return self.flow.flow_id

    def needs(self, need: Needs) -> None:
        """The lanes; a flow whose id was given; what was submitted under the key."""
        need.catalog = True
        if self.is_named:
            need.flows.add(self.flow_id)
        if self.idempotency_key is not None:
            need.keys.add((self.flow.namespace, self.idempotency_key))


class SpawnChildren(ExecutionCommand[Spawned], frozen=True, kw_only=True):
    """The owner of an execution wants others done, as its children."""

    fence: Fence
    children: tuple[CreateExecution, ...]
    flow_budgets: dict[str, str] = {}  # which flow each budget is for that children name

    def needs(self, need: Needs) -> None:
        """The parent, its flow, and the children it spawned under these keys before."""
        need.executions.add(self.execution_id)
        need.catalog = True
        need.flows_of.add(self.execution_id)
        need.families.add(self.execution_id)
        for child in self.children:
            if child.idempotency_key is not None:
                need.keys.add((child.route.namespace, child.idempotency_key))


def check_graph(
    names: Sequence[str], edges: Sequence[tuple[str, str]], policies: dict[str, EdgePolicy]
) -> dict[str, int] | Refused:
    """The rank of each node, or what is wrong with the graph."""
    if refusal := _wrong_edge(set(names), edges):
        return refusal
    inbound = Counter(downstream for _, downstream in edges)
    for name, policy in policies.items():
        if refusal := refuse_quorum(policy, inbound[name], name):
            return refusal
    return ranks_of(names, edges)


def refuse_budgets(command: SpawnChildren, flow_id: str) -> Refused | None:
    """Children may name budgets of the flow they are born into, and of no other."""
    for name, scope_id in sorted(command.flow_budgets.items()):
        if scope_id != flow_id:
            detail = f"budget_ids: {name} is for flow {scope_id}"
            return Refused(BudgetScopeMismatch, detail, {"field": "budget_ids"})
    return None


def _wrong_edge(known: set[str], edges: Sequence[tuple[str, str]]) -> Refused | None:
    """The first edge that cannot be one; a look at all of them is fast."""
    is_known = known.issuperset(chain.from_iterable(edges))
    if is_known and not any(upstream == downstream for upstream, downstream in edges):
        return None
    for at, (upstream, downstream) in enumerate(edges):
        for name, word in ((upstream, "upstream"), (downstream, "downstream")):
            if name not in known:
                field = f"edges[{at}].{word}"
                return Refused(InvalidInput, f"{field}: no node {name!r}", {"field": field})
        if upstream == downstream:
            field = f"edges[{at}]"
            detail = f"{field}: {upstream!r} would wait for itself"
            return Refused(SelfReferencingEdge, detail, {"field": field})
    return None


def rows_of(command: SubmitFlow, at: Moment) -> tuple[list[MemberRow], list[EdgeRow]]:
    """The rows of the members, each with its group, and of the edges, in force from the start."""
    inbound = Counter([edge.downstream_execution_id for edge in command.edges])
    passing = Counter(
        [edge.downstream_execution_id for edge in command.edges if edge.data_passing_ref]
    )
    members = [
        MemberRow(
            command.flow_id,
            key,
            node.name,
            command.ranks[node.name],
            policy=node.policy,
            total=inbound[key],
            passing=passing[key],
        )
        for node in command.nodes
        if (key := node.create.execution_id)
    ]
    alone = {
        each.execution_id
        for each in members
        if each.total == 1 and each.policy is None and not each.passing
    }
    edges = [
        new_edge(edge, EdgeState.APPLIED, at, is_sole=edge.downstream_execution_id in alone)
        for edge in command.edges
    ]
    return members, edges
