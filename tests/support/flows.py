"""Words for tests about flows, and the check that what is stored of a graph tells one story."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any, ParamSpec
from weakref import WeakKeyDictionary

from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import FlowEdge, FlowNode
from flowfabric.kernel.flow.join import judged
from flowfabric.model.attempt import FailureClass
from flowfabric.model.execution import Execution
from flowfabric.model.flow import (
    COUNTER_OF_OUTCOME,
    EdgePolicy,
    EdgeRow,
    EdgeState,
    FlowEvent,
    FlowRow,
    FlowState,
    GroupState,
    MemberRow,
    TaskRow,
)
from flowfabric.model.flow_results import (
    Applied,
    EdgeGroupSnapshot,
    FlowCreated,
    FlowSnapshot,
    FlowSubmitted,
)
from flowfabric.model.results import Claimed
from flowfabric.stores.tables import EDGES, FLOW_TASKS, FLOWS
from tests.support.groups import groups_as_they_stand
from tests.support.lab import Lab, scenario

P = ParamSpec("P")
_claimed: WeakKeyDictionary[Lab, dict[str, Claimed]] = WeakKeyDictionary()  # whoever asked


def node(name: str, join: EdgePolicy | None = None, kind: str = "work", **fields: Any) -> FlowNode:
    """One node of a graph."""
    return FlowNode(name=name, execution=NewExecution(execution_kind=kind, **fields), join=join)


def edge(upstream: str, downstream: str, **fields: Any) -> FlowEdge:
    """One edge of a graph."""
    return FlowEdge(upstream=upstream, downstream=downstream, **fields)


def arrows(*paths: str, **fields: Any) -> list[FlowEdge]:
    """The edges of paths such as `a>b>c`."""
    found = []
    for path in paths:
        names = path.split(">")
        found += [edge(*pair, **fields) for pair in pairwise(names)]
    return found


class Graph:
    """A flow under test: its members by name, and the means to let them end."""

    def __init__(self, lab: Lab, flow_id: str, ids: Mapping[str, str]) -> None:
        self.lab = lab
        self.flow_id = flow_id
        self.ids = dict(ids)
        self.claimed = _claimed.setdefault(lab, {})

    # --- letting members end -------------------------------------------------------------------

    async def start(self, *names: str) -> None:
        """Claim whatever waits; these must run afterwards."""
        for claimed in await self.lab.claims(limit=1000):
            self.claimed[claimed.execution_id] = claimed
        for name in names:
            assert await self.state(name) == "active", name

    async def handle(self, name: str) -> Any:
        """The handle of a member that runs, claimed now if need be."""
        key = self.ids[name]
        if key not in self.claimed:
            await self.start()
        return self.claimed.pop(key).handle

    async def complete(self, *names: str, result: bytes | None = None, **fields: Any) -> None:
        """These succeed, one after the other."""
        for name in names:
            await self.lab.engine.complete(await self.handle(name), result=result, **fields)

    async def fail(self, *names: str) -> None:
        """These fail for good."""
        for name in names:
            await self.lab.engine.fail(
                await self.handle(name), reason="it broke", failure_class=FailureClass.PERMANENT
            )

    async def cancel(self, *names: str) -> None:
        """An operator cancels these."""
        for name in names:
            await self.lab.cancel(self.ids[name])

    async def end(self, name: str, outcome: str) -> None:
        """End a member in one of the ways there are but skipping."""
        match outcome:
            case "success":
                await self.complete(name)
            case "failed":
                await self.fail(name)
            case "cancelled":
                await self.cancel(name)
            case _:
                raise AssertionError(outcome)

    async def run(self, *, fail: Iterable[str] = ()) -> int:
        """Run everything to its end, whoever is named fails; how many ran."""
        names = {key: name for name, key in self.ids.items()}
        broken, ran = set(fail), 0
        while True:
            await pump(self.lab)
            await self.start()
            if not self.claimed:
                return ran
            for key in list(self.claimed):
                ran += 1
                if names.get(key) in broken:
                    await self.fail(names[key])
                else:
                    await self.lab.engine.complete(self.claimed.pop(key).handle)

    # --- looking -------------------------------------------------------------------------------

    async def state(self, name: str) -> str:
        """The one word of a member."""
        return (await self.lab.state(self.ids[name])).value

    async def states(self) -> dict[str, str]:
        """The one word of every member."""
        members = await self.lab.engine.list_flow_members(flow_id=self.flow_id)
        names = {key: name for name, key in self.ids.items()}
        return {
            names.get(each.execution_id, each.execution_id): each.public_state.value
            for each in members
        }

    async def snapshot(self) -> FlowSnapshot:
        """The flow as it stands."""
        found = await self.lab.engine.describe_flow(flow_id=self.flow_id)
        assert found is not None
        return found

    async def flow_state(self) -> FlowState:
        """The flow's one word."""
        return (await self.snapshot()).public_flow_state

    async def group(self, name: str) -> EdgeGroupSnapshot:
        """How the inbound edges of a member stand."""
        for group in (await self.snapshot()).edge_groups:
            if group.downstream_execution_id == self.ids[name]:
                return group
        raise AssertionError(f"{name} has no inbound edge")

    async def counts(self, name: str) -> tuple[int, int, int, int]:
        """Of a member's inbound edges: all, succeeded, failed, skipped."""
        group = await self.group(name)
        return (group.total_deps, group.satisfied_count, group.failed_count, group.skipped_count)

    async def row(self) -> FlowRow:
        """The stored row of the flow."""
        rows: list[FlowRow] = (await self.lab.dump())[FLOWS.name]
        (found,) = [each for each in rows if each.flow_id == self.flow_id]
        return found

    async def member(self, name: str) -> MemberRow:
        """A member as the records tell."""
        rows = groups_as_they_stand(await self.lab.dump())
        (found,) = [each for each in rows if each.execution_id == self.ids[name]]
        return found

    async def edges(self) -> dict[str, EdgeRow]:
        """The stored edges by `upstream>downstream`."""
        names = {key: name for name, key in self.ids.items()}
        rows: list[EdgeRow] = (await self.lab.dump())[EDGES.name]
        return {
            f"{names[each.upstream_execution_id]}>{names[each.downstream_execution_id]}": each
            for each in rows
            if each.flow_id == self.flow_id
        }

    async def edge_states(self) -> dict[str, str]:
        """How each edge stands."""
        return {name: row.edge_state.value for name, row in (await self.edges()).items()}

    async def payload(self, name: str) -> bytes:
        """A member's input as it stands."""
        found = await self.lab.engine.read_execution_context(execution_id=self.ids[name])
        assert found is not None
        return found.input_payload

    async def tasks(self) -> list[TaskRow]:
        """What is owed to the flow."""
        rows: list[TaskRow] = (await self.lab.dump())[FLOW_TASKS.name]
        return [each for each in rows if each.flow_id == self.flow_id]

    async def events(self) -> list[str]:
        """What was published about the flow as a whole, in order."""
        rows: list[FlowEvent] = (await self.lab.dump())["flow_events"]
        return [each.event_type.value for each in rows if each.flow_id == self.flow_id]

    # --- building step by step -----------------------------------------------------------------

    async def add(self, *names: str, reopen: bool = False, **fields: Any) -> None:
        """New executions join under these names."""
        for name in names:
            key = await self.lab.create(colocate_with=self.flow_id, **fields)
            self.ids[name] = key
            await self.lab.engine.add_execution_to_flow(
                flow_id=self.flow_id, execution_id=key, node_name=name, reopen=reopen
            )

    def ends(self, path: str) -> dict[str, Any]:
        """The arguments that name the ends of `a>b`."""
        upstream, downstream = path.split(">")
        return {
            "flow_id": self.flow_id,
            "upstream_execution_id": self.ids[upstream],
            "downstream_execution_id": self.ids[downstream],
        }

    async def stage(self, path: str, **fields: Any) -> str:
        """Stage an edge; its id."""
        staged = await self.lab.engine.stage_dependency_edge(**self.ends(path), **fields)
        return staged.edge_id

    async def apply(self, path: str, edge_id: str) -> Any:
        """Apply a staged edge."""
        return await self.lab.engine.apply_dependency_to_child(edge_id=edge_id, **self.ends(path))

    async def withdraw(self, path: str, edge_id: str) -> Any:
        """Take a staged edge back."""
        return await self.lab.engine.withdraw_dependency_edge(edge_id=edge_id, **self.ends(path))

    async def link(self, *paths: str, **fields: Any) -> list[int]:
        """Add edges; how many each child then waits for."""
        counts = []
        for path in paths:
            reply = await self.lab.engine.add_dependency(**self.ends(path), **fields)
            assert isinstance(reply, Applied)
            counts.append(reply.unsatisfied_count)
        return counts

    async def join(self, name: str, policy: EdgePolicy) -> Any:
        """Set how a member's edges join."""
        return await self.lab.engine.set_edge_group_policy(
            flow_id=self.flow_id, downstream_execution_id=self.ids[name], policy=policy
        )


async def submit(
    lab: Lab, nodes: Sequence[FlowNode | str], edges: Sequence[FlowEdge] = (), **fields: Any
) -> Graph:
    """A whole graph at once; a name alone is a node of its own."""
    made = [node(each) if isinstance(each, str) else each for each in nodes]
    reply = await lab.engine.submit_flow(nodes=made, edges=list(edges), **fields)
    assert isinstance(reply, FlowSubmitted)
    return Graph(lab, reply.flow_id, reply.execution_ids)


async def fan_in(lab: Lab, size: int, join: EdgePolicy, **fields: Any) -> Graph:
    """`s0` … lead to `d`, which joins them."""
    names = [f"s{at}" for at in range(size)]
    return await submit(
        lab, [*names, node("d", join)], [edge(name, "d") for name in names], **fields
    )


async def empty(lab: Lab, *names: str, **fields: Any) -> Graph:
    """A flow to be built step by step, with these members and no edge."""
    made = await lab.engine.create_flow(**fields)
    assert isinstance(made, FlowCreated)
    graph = Graph(lab, made.flow_id, {})
    await graph.add(*names)
    return graph


async def pump(lab: Lab, most: int = 200) -> int:
    """Let everything happen that is due now; in how many transactions."""
    for times in range(most):
        if not await lab.engine.move_due():
            return times
    raise AssertionError("there is always something due")


# --- what is stored ----------------------------------------------------------------------------


def woven(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A scenario after which everything stored about flows must agree."""

    @wraps(test)
    async def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        await test(*args, **kwargs)
        lab = kwargs["lab"]
        assert isinstance(lab, Lab)
        await assert_woven(lab)

    return scenario(checked)


async def assert_woven(lab: Lab) -> None:
    """Groups, edges and exact counts, judged from everything that is stored."""
    dump = await lab.dump()
    executions = {e.execution_id: e for e in dump["executions"] if isinstance(e, Execution)}
    edges: list[EdgeRow] = dump[EDGES.name]
    members = groups_as_they_stand(dump)
    for flow in dump[FLOWS.name]:
        its = [each for each in members if each.flow_id == flow.flow_id]
        _check_flow(flow, [executions[each.execution_id] for each in its])
        assert flow.edge_count == sum(each.flow_id == flow.flow_id for each in edges)
    inbound: defaultdict[str, list[EdgeRow]] = defaultdict(list)
    for each in edges:
        inbound[each.downstream_execution_id].append(each)
    children = Counter(
        each.parent_id for each in members if not executions[each.execution_id].is_terminal
    )
    ended = Counter(event.execution_id for event in dump["completion_events"])
    for member in members:
        execution = executions[member.execution_id]
        assert execution.flow_id == member.flow_id
        _check_group(member, inbound[member.execution_id], execution)
        lives = execution.replay_count + execution.is_terminal
        assert ended[execution.execution_id] == lives, "one completion event for every end"
        assert member.open_children == children[member.execution_id]
    _check_ranks(members, edges)
    assert (await lab.engine.doctor()).problems == ()


def _check_flow(flow: FlowRow, executions: list[Execution]) -> None:
    assert flow.node_count == len(executions)
    outcomes = Counter(each.state.terminal_outcome for each in executions if each.is_terminal)
    for outcome, name in COUNTER_OF_OUTCOME.items():
        assert getattr(flow, name) == outcomes[outcome], name
    over = outcomes.total() == len(executions) and bool(executions)
    is_cancelled = flow.public_flow_state is FlowState.CANCELLED
    assert (flow.finished_at is not None) == (over or (is_cancelled and not executions))
    assert (flow.due_at is not None) == (flow.finished_at is not None)
    assert flow.public_flow_state.is_terminal == (over or is_cancelled)
    assert all(each.purge_at is None for each in executions), "members go with their flow"


def _check_group(member: MemberRow, inbound: list[EdgeRow], execution: Execution) -> None:
    states = Counter(each.edge_state for each in inbound)
    assert member.staged == states[EdgeState.PENDING]
    assert member.total == len(inbound) - member.staged
    assert member.passing == sum(each.data_passing_ref is not None for each in inbound)
    assert member.succeeded == states[EdgeState.SATISFIED]
    assert member.failed + member.skipped == states[EdgeState.IMPOSSIBLE]
    assert member.resolved <= member.total
    if member.resolved:
        assert member.group_state is judged(member)
    decided = member.group_state is not GroupState.PENDING
    assert decided == (member.satisfied_at is not None)
    if execution.is_terminal:
        assert not execution.open_group
        return
    assert member.group_state is not GroupState.IMPOSSIBLE or execution.replay_count
    waits = bool(member.total) and not decided
    if not execution.replay_count:
        assert bool(execution.open_group) == (waits or _waits_for_children(member, execution))


def _waits_for_children(member: MemberRow, execution: Execution) -> bool:
    return bool(member.open_children) and execution.is_runnable and execution.is_interrupted


def _check_ranks(members: list[MemberRow], edges: list[EdgeRow]) -> None:
    """Every edge leads upwards, so nobody waits for itself."""
    ranks = {each.execution_id: each.rank for each in members}
    for each in edges:
        assert ranks[each.upstream_execution_id] < ranks[each.downstream_execution_id]
