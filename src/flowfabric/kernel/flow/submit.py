"""Whole graphs at once: everything is recorded, or nothing is and the culprit is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from flowfabric.errors import FlowConflict, InvalidInput, SelfReferencingEdge
from flowfabric.kernel.command import Command, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.kernel.execution.keys import created_before
from flowfabric.kernel.flow.flow import CreateFlow, new_flow, with_members
from flowfabric.kernel.flow.graph import StageEdge, new_edge, refuse_quorum
from flowfabric.kernel.flow.rank import ranks_of
from flowfabric.model.execution import IdempotencyRecord
from flowfabric.model.flow import EdgePolicy, EdgeRow, EdgeState, FlowRow, MemberRow
from flowfabric.model.flow_results import FlowDuplicate, FlowSubmitted
from flowfabric.model.record import Record, replace
from flowfabric.model.results import CreateResult


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


def submitted_before(
    known: IdempotencyRecord | None, command: SubmitFlow, at: Moment
) -> FlowDuplicate | Refused | None:
    """The answer to a graph whose key was used before; None: it is a new one."""
    first = created_before(known, command.fingerprint, at)
    return FlowDuplicate(first) if isinstance(first, str) else first


def submit_flow(
    flow: FlowRow | None,
    created: Sequence[Decision[CreateResult]],
    command: SubmitFlow,
    at: Moment,
) -> Decision[FlowSubmitted]:
    """A graph is recorded whole, if its id is new and each of its nodes can be created.

    Its members and edges are `rows_of` the command: they may be tens of thousands.
    """
    for node, decision in zip(command.nodes, created, strict=True):
        if isinstance(decision.reply, Refused):
            detail = f"nodes[{node.name}]: {decision.reply.detail}"
            return Decision(replace(decision.reply, detail=detail))
    if flow is not None:
        detail = f"flow_id: there is a flow {command.flow_id} already"
        return Decision(Refused(FlowConflict, detail, {"field": "flow_id"}))
    executions = [each.execution for each in created if each.execution is not None]
    grown = with_members(new_flow(command.flow, at), executions, at)
    whole = replace(grown, flow=replace(grown.flow, edge_count=len(command.edges)))
    ids = {node.name: node.create.execution_id for node in command.nodes}
    return whole.told(FlowSubmitted(command.flow_id, ids))


def key_of(command: SubmitFlow, at: Moment) -> IdempotencyRecord | None:
    """What is remembered of the graph's key, if it has one."""
    key = command.idempotency_key
    if key is None:
        return None
    until = at.now + command.dedup_window_ms
    namespace = command.flow.namespace
    return IdempotencyRecord(namespace, key, command.flow_id, command.fingerprint, until)


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
