"""Flows in the middle of their cascades: joins of every sort, deferred work, parents that wait."""

from __future__ import annotations

from typing import Any, Final
from unittest.mock import patch

from flowfabric.api.executions import NewExecution, NewHook
from flowfabric.api.flows import FlowEdge, FlowNode
from flowfabric.model.attempt import FailureClass
from flowfabric.model.flow import (
    AllDone,
    AnySucceeded,
    CancellationPolicy,
    EdgePolicy,
    FlowState,
    OnSatisfied,
    Quorum,
    TaskKind,
)
from flowfabric.model.flow_results import FlowDuplicate, FlowSubmitted
from flowfabric.model.handle import HandleKind
from flowfabric.model.results import Claimed
from flowfabric.model.state import PublicState
from flowfabric.model.successor import Origin, Role
from flowfabric.stores.tables import FLOW_TASKS
from tests.support.flows import pump
from tests.support.lab import Lab
from tests.support.living.kind import BYTES, HOUR_MS, Living, Notes, ended, handle, noted


class Flow(Living):
    """The base of kinds of flows: a graph by names, and members that end by name."""

    def node(self, name: str, join: EdgePolicy | None = None, **fields: Any) -> FlowNode:
        """A member with its name as its kind, on the lane."""
        execution = NewExecution(execution_kind=name, lane_id=self.lane, **fields)
        return FlowNode(name=name, execution=execution, join=join)

    async def submit(
        self, lab: Lab, nodes: list[FlowNode], edges: dict[str, Any], **fields: Any
    ) -> Notes:
        """A graph; edges are `{"a>b": {}}`, with the fields of each."""
        made = await lab.engine.submit_flow(nodes=nodes, edges=self.edges(edges), **fields)
        assert isinstance(made, FlowSubmitted)
        return {"flow": made.flow_id, "ids": dict(made.execution_ids)}

    @staticmethod
    def edges(edges: dict[str, Any]) -> list[FlowEdge]:
        """The edges of `{"a>b": {}}`."""
        ends = {path: path.split(">") for path in edges}
        return [
            FlowEdge(upstream=ends[path][0], downstream=ends[path][1], **fields)
            for path, fields in edges.items()
        ]

    async def run(self, lab: Lab, name: str, **fields: Any) -> Claimed:
        """Claim the one member of this name."""
        return await self.claim(lab, kinds=(name,), **fields)

    async def succeed(self, lab: Lab, *names: str, result: bytes | None = None) -> None:
        """These are claimed and succeed."""
        for name in names:
            await lab.engine.complete((await self.run(lab, name)).handle, result=result)

    async def fail(self, lab: Lab, name: str) -> None:
        """This one is claimed and fails for good."""
        await lab.engine.fail(
            (await self.run(lab, name)).handle,
            reason="broken",
            failure_class=FailureClass.PERMANENT,
        )

    async def states(self, lab: Lab, notes: Notes) -> dict[str, str]:
        """Every member's state."""
        members = await lab.engine.list_flow_members(flow_id=notes["flow"])
        return {each.node_name: each.public_state.value for each in members}

    async def flow_state(self, lab: Lab, notes: Notes) -> FlowState:
        """The state of the flow."""
        flow = await lab.engine.describe_flow(flow_id=notes["flow"])
        assert flow is not None
        return flow.public_flow_state

    async def over(self, lab: Lab, notes: Notes, state: FlowState, **ends: str) -> None:
        """The flow has ended, with exactly these ends, and said so once."""
        assert await self.states(lab, notes) == ends
        assert await self.flow_state(lab, notes) is state
        events = [
            each for each in (await lab.dump())["flow_events"] if each.flow_id == notes["flow"]
        ]
        assert [each.event_type.value for each in events] == [state.value]
        for key in notes["ids"].values():
            assert len(await lab.completions(key)) == 1


class Diamond(Flow):
    """One branch is done, the other one runs: results are handed on by name, and a tag stays."""

    EDGES: Final[dict[str, Any]] = {
        "a>b": {"passes_result": True},
        "a>c": {},
        "b>d": {"passes_result": True, "input_name": "left"},
        "c>d": {"passes_result": True},
    }

    async def begin(self, lab: Lab) -> Notes:
        nodes = [self.node(name, input_payload=b'"own"') for name in "abcd"]
        notes = await self.submit(lab, nodes, self.EDGES, tags={"fl.ow": "Ü"}, namespace="acme")
        tenant = {"namespace": "acme"}
        await lab.engine.complete((await self.run(lab, "a", **tenant)).handle, result=BYTES)
        await lab.engine.complete((await self.run(lab, "c", **tenant)).handle, result=b'{"c": 3}')
        running = await self.run(lab, "b", **tenant)
        assert running.payload == BYTES
        return {**notes, "b": noted(running)}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        listed = (await lab.engine.list_flows(namespace="acme")).items
        assert notes["flow"] in [each.flow_id for each in listed]
        assert await lab.engine.get_flow_tag(flow_id=notes["flow"], key="fl.ow") == "Ü"
        assert await self.flow_state(lab, notes) is FlowState.RUNNING
        await lab.engine.complete(handle(lab, notes["b"]), result=b"[1]")
        last = await self.run(lab, "d", namespace="acme")
        assert last.payload == b'{"c":{"c": 3},"left":[1]}'
        await lab.engine.complete(last.handle)
        ends = dict.fromkeys("abcd", "completed")
        await self.over(lab, notes, FlowState.COMPLETED, **ends)


class Joins(Flow):
    """Groups of every policy with half of their edges resolved; a staged edge among them."""

    async def begin(self, lab: Lab) -> Notes:
        cancel = OnSatisfied.CANCEL_REMAINING
        nodes = [
            *map(self.node, ("a", "b", "c", "x", "y")),
            self.node("all"),
            self.node("done", AllDone()),
            self.node("any", AnySucceeded(cancel)),
            self.node("quorum", Quorum(2, OnSatisfied.LET_RUN)),
            self.node("never"),
        ]
        ends = [(up, down) for down in ("all", "done", "quorum") for up in "abc"]
        ends += [("x", "any"), ("y", "any"), ("x", "never"), ("never", "any")]
        notes = await self.submit(lab, nodes, {f"{up}>{down}": {} for up, down in ends})
        await self.succeed(lab, "a")
        await self.fail(lab, "x")
        staged = await lab.engine.stage_dependency_edge(
            flow_id=notes["flow"],
            upstream_execution_id=notes["ids"]["b"],
            downstream_execution_id=notes["ids"]["any"],
            edge_id="11111111-1111-4111-8111-111111111111",
        )
        return {**notes, "staged": staged.edge_id}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        names = ("all", "done", "any", "quorum")
        assert {name: (await self.states(lab, notes))[name] for name in names} == dict.fromkeys(
            names, "waiting_children"
        )
        assert (await self.states(lab, notes))["never"] == "skipped"
        ids = notes["ids"]
        await lab.engine.apply_dependency_to_child(
            flow_id=notes["flow"],
            edge_id=notes["staged"],
            upstream_execution_id=ids["b"],
            downstream_execution_id=ids["any"],
        )
        await self.succeed(lab, "b")  # two of three for the quorum, and the one for any
        await pump(lab)
        states = await self.states(lab, notes)
        assert (states["quorum"], states["any"], states["y"]) == ("waiting", "waiting", "cancelled")
        await self.fail(lab, "c")
        await self.succeed(lab, "done", "any", "quorum")
        done = dict.fromkeys(("a", "b", "done", "any", "quorum"), "completed")
        others = {"c": "failed", "x": "failed", "y": "cancelled", "all": "skipped"}
        await self.over(lab, notes, FlowState.FAILED, **done, **others, never="skipped")


class Deferred(Flow):
    """A cascade too wide for one transaction: the rest of it is a row that is due."""

    SIZE: Final = 6

    async def begin(self, lab: Lab) -> Notes:
        leaves = [f"leaf{number}" for number in range(self.SIZE)]
        nodes = [self.node("root"), *map(self.node, leaves), self.node("end")]
        paths = [f"root>{leaf}" for leaf in leaves] + [f"{leaf}>end" for leaf in leaves]
        notes = await self.submit(lab, nodes, {path: {} for path in paths})
        with narrow_cascades():
            await self.succeed(lab, "root")
        states = list((await self.states(lab, notes)).values())
        assert states.count("waiting_children") > 1, "nothing was left for later"
        return notes

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        assert TaskKind.CASCADE in await tasks(lab, notes)
        await pump(lab)
        assert await tasks(lab, notes) == []
        leaves = [f"leaf{number}" for number in range(self.SIZE)]
        await self.succeed(lab, *leaves, "end")
        ends = dict.fromkeys(("root", *leaves, "end"), "completed")
        await self.over(lab, notes, FlowState.COMPLETED, **ends)


class Aftermath(Flow):
    """Cancels that follow from an end and are deferred: of siblings, and of a parent's child."""

    async def begin(self, lab: Lab) -> Notes:
        join = AnySucceeded(OnSatisfied.CANCEL_REMAINING)
        nodes = [*map(self.node, "ab"), self.node("any", join)]
        siblings = await self.submit(lab, nodes, {"a>any": {}, "b>any": {}})
        await self.succeed(lab, "a")
        assert await tasks(lab, siblings) == [TaskKind.CANCEL_SIBLINGS]
        parent = await self.start(lab, kind="parent")
        child = NewExecution(execution_kind="child", lane_id=self.lane)
        spawned = await lab.engine.spawn_children(parent.handle, [child])
        await lab.engine.cancel(parent.handle, reason="enough")
        ids = {"parent": parent.execution_id, "child": spawned.execution_ids[0]}
        family = {"flow": spawned.flow_id, "ids": ids}
        assert await tasks(lab, family) == [TaskKind.CANCEL_CHILDREN]
        return {"siblings": siblings, "family": family}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        siblings, family = notes["siblings"], notes["family"]
        assert (await self.states(lab, siblings))["b"] == "waiting"
        await pump(lab)
        await self.succeed(lab, "any")
        ends = {"a": "completed", "b": "cancelled", "any": "completed"}
        await self.over(lab, siblings, FlowState.COMPLETED, **ends)
        for execution_id in family["ids"].values():
            await ended(lab, execution_id, PublicState.CANCELLED)
        assert await tasks(lab, siblings) == await tasks(lab, family) == []


class CancelledFlow(Flow):
    """A cancelled header: its caller cancels one member, the end of the grace the others."""

    async def begin(self, lab: Lab) -> Notes:
        notes = await self.submit(lab, [*map(self.node, "abc")], {"a>b": {}})
        running = await self.run(lab, "a")
        await lab.engine.cancel_flow_header(
            flow_id=notes["flow"], reason="not wanted", grace_ms=HOUR_MS, actor="olga"
        )
        return {**notes, "a": noted(running), "until": lab.now + HOUR_MS}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        flow = await lab.engine.describe_flow(flow_id=notes["flow"])
        assert flow is not None
        assert flow.cancel_reason == "not wanted"
        assert flow.cancellation_policy is CancellationPolicy.CANCEL_ALL
        await lab.engine.tick()
        assert await self.claims(lab) == []
        await lab.engine.cancel(handle(lab, notes["a"]), reason="told to")
        await lab.engine.ack_cancel_member(flow_id=notes["flow"], execution_id=notes["ids"]["a"])
        lab.clock.set(notes["until"])
        await pump(lab)
        assert await tasks(lab, notes) == []
        await self.over(lab, notes, FlowState.CANCELLED, **dict.fromkeys("abc", "cancelled"))


class Family(Flow):
    """A parent waits for two children, of which one has ended; one spawned before is known."""

    def child(self, name: str) -> NewExecution:
        """A child with a key of its own."""
        return NewExecution(execution_kind=name, lane_id=self.lane, idempotency_key=f"key-{name}")

    async def begin(self, lab: Lab) -> Notes:
        parent = await self.start(lab, kind="parent")
        spawned = await lab.engine.spawn_children(parent.handle, [*map(self.child, ("c1", "c2"))])
        await lab.engine.wait_children(parent.handle)
        await self.succeed(lab, "c1")
        ids = dict(zip(("c1", "c2"), spawned.execution_ids, strict=True))
        return {
            "flow": spawned.flow_id,
            "ids": {"parent": parent.execution_id, **ids},
            "parent": noted(parent),
        }

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        ids = notes["ids"]
        assert await lab.state(ids["parent"]) is PublicState.WAITING_CHILDREN
        repeated = await lab.engine.wait_children(handle(lab, notes["parent"]))
        assert repeated.public_state is PublicState.WAITING_CHILDREN
        await self.succeed(lab, "c2")
        parent = await self.run(lab, "parent")
        assert parent.handle.kind is HandleKind.RESUMED
        again = await lab.engine.spawn_children(parent.handle, [self.child("c1")])
        assert again.execution_ids == (ids["c1"],)
        await lab.engine.complete(parent.handle)
        members = await lab.engine.list_flow_members(flow_id=notes["flow"])
        assert {each.execution_id: each.public_state for each in members} == dict.fromkeys(
            ids.values(), PublicState.COMPLETED
        )
        assert await self.flow_state(lab, notes) is FlowState.COMPLETED


class EndedFlow(Flow):
    """Flows that are over: the key of one is known, and the other lives again by a replay."""

    EDGES: Final[dict[str, Any]] = {"a>b": {}}

    async def begin(self, lab: Lab) -> Notes:
        keyed = await self.submit(
            lab, [*map(self.node, "ab")], self.EDGES, idempotency_key="graph-1"
        )
        await self.succeed(lab, "a", "b")
        failed = await self.submit(lab, [*map(self.node, "ab")], self.EDGES)
        await self.fail(lab, "a")
        return {"keyed": keyed, "failed": failed}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        keyed, failed = notes["keyed"], notes["failed"]
        await self.over(lab, keyed, FlowState.COMPLETED, a="completed", b="completed")
        await self.over(lab, failed, FlowState.FAILED, a="failed", b="skipped")
        again = await lab.engine.submit_flow(
            nodes=[*map(self.node, "ab")], edges=self.edges(self.EDGES), idempotency_key="graph-1"
        )
        assert again == FlowDuplicate(keyed["flow"])
        await lab.engine.replay_execution(execution_id=failed["ids"]["a"], cascade=True)
        assert await self.flow_state(lab, failed) is FlowState.BLOCKED
        await self.succeed(lab, "a", "b")
        assert await self.states(lab, failed) == {"a": "completed", "b": "completed"}
        assert await self.flow_state(lab, failed) is FlowState.COMPLETED


class HookedFlow(Flow):
    """A flow with hooks in its second life: both ends create what follows them, and it runs."""

    async def begin(self, lab: Lab) -> Notes:
        hook = NewHook(execution_kind="told", lane_id=self.lane)
        notes = await self.submit(lab, [self.node("a")], {}, on_failure=hook, on_success=hook)
        await self.fail(lab, "a")
        await lab.engine.replay_execution(execution_id=notes["ids"]["a"])
        return notes

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        await self.succeed(lab, "a")
        assert await self.flow_state(lab, notes) is FlowState.COMPLETED
        origins = set()
        for _ in range(2):
            claimed = await self.run(lab, "told")
            origins.add((await lab.describe(claimed.execution_id)).origin)
            await lab.engine.complete(claimed.handle)
        lives = [(Role.ON_FAILURE, 0), (Role.ON_SUCCESS, 1)]
        assert origins == {Origin(role, life, flow_id=notes["flow"]) for role, life in lives}


def narrow_cascades() -> Any:
    """A patch by which a transaction resolves two edges: the real limit needs a large fixture."""
    return patch("flowfabric.engine.unit.flows.joins.Joins.remaining", 2)


async def tasks(lab: Lab, notes: Notes) -> list[TaskKind]:
    """The kinds of work that is deferred for a flow."""
    rows = (await lab.dump())[FLOW_TASKS.name]
    return [each.kind for each in rows if each.flow_id == notes["flow"]]
