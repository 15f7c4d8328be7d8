"""A flow run: the handle of one submitted flow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from flowfabric.api.backend import EngineBackend
from flowfabric.api.hints import end_topic, flow_topic, wait_event
from flowfabric.api.page import every_item
from flowfabric.errors import (
    FlowFabricError,
    InvalidInput,
    NotFound,
    WaitTimeout,
)
from flowfabric.limits import PAGE_MAX
from flowfabric.model.checks import check_uuid
from flowfabric.model.flow import CancellationPolicy, FlowState
from flowfabric.model.flow_results import EdgeSnapshot, FlowSnapshot, MemberInfo
from flowfabric.model.shown import shown
from flowfabric.model.state import TERMINAL_STATES, PublicState
from flowfabric.model.telling import headline
from flowfabric.model.verdict import unexcused
from flowfabric.sdk.durations import Duration, to_ms
from flowfabric.sdk.errors import FlowFailed, ResultMismatch
from flowfabric.sdk.home import Home
from flowfabric.sdk.run import Run, explained, read_result
from flowfabric.sdk.spend import Spend, by_budget, spend_of_flow
from flowfabric.sdk.task import Task

POLICIES: Final = {
    "all": CancellationPolicy.CANCEL_ALL,
    "pending": CancellationPolicy.CANCEL_PENDING,
    "only": CancellationPolicy.FLOW_ONLY,
}
_LOOK_EVERY_S: Final = 0.5  # for changes without a hint, such as a start
_BURST_S: Final = 0.05  # hints that come together cause one read
_NO_CAUSE: Final = (*TERMINAL_STATES, PublicState.WAITING_CHILDREN)  # no others wait because of it


@dataclass(frozen=True, slots=True)
class NodeChange:
    """One node of a flow in its current state."""

    name: str
    execution_id: str
    kind: str
    state: PublicState
    attempts: int
    reason: str  # why it failed, was cancelled or waits
    parent_id: str | None = None  # of a child: the execution that spawned it


class FlowRun:
    """One submitted flow. It can be had again from its id with `ff.flow_run(id)`.

    ```
    run = await f.submit()
    async for node in run.watch():
        print(node.name, node.state)
    results = await run.result()     # by node name
    ```
    """

    __slots__ = ("_fabric", "_ids", "_tasks", "flow_id", "is_new")

    def __init__(
        self,
        fabric: Home,
        flow_id: str,
        *,
        ids: Mapping[str, str] | None = None,
        tasks: Mapping[str, Task[..., Any] | None] | None = None,
    ) -> None:
        self.flow_id = flow_id
        self.is_new = ids is not None  # false when the key found an earlier submission
        self._fabric = fabric
        self._ids = ids
        self._tasks = dict(tasks or {})

    def __repr__(self) -> str:
        return f"FlowRun({self.flow_id!r})"

    async def result(self, timeout: Duration | None = None) -> dict[str, Any]:
        """Wait until every node has ended and give the results by node name.

        Raises `FlowFailed` with the nodes that ended otherwise, unless an `any_of` or a `quorum`
        did without them, and `WaitTimeout` when the time is over first, with the first node that
        has not ended and why in its `explanation`; the work itself goes on.
        """
        engine = await self._fabric.start()
        wait_ms = None if timeout is None else to_ms(timeout, field="timeout")
        try:
            ended = await engine.wait_for_flow(flow_id=self.flow_id, wait_ms=wait_ms)
        except WaitTimeout as error:
            raise await self._explained(engine, error) from None
        members = await engine.list_flow_members(flow_id=self.flow_id)
        if ended.public_flow_state is not FlowState.COMPLETED:
            await self._judge(engine, ended, members)
        return await self._results(engine, members)

    async def _explained(self, engine: EngineBackend, error: WaitTimeout) -> WaitTimeout:
        """With the node that blocks the others: the first that waits for none of them."""
        try:
            members = await engine.list_flow_members(flow_id=self.flow_id)
        except FlowFabricError:
            return error  # the wait is over, whatever else is wrong
        live = [each for each in members if each.public_state not in _NO_CAUSE]
        if not live:
            return error
        first = min(live, key=lambda each: each.rank)
        about = f"{first.node_name or first.execution_id} is {first.public_state.value}, "
        return await explained(engine, first.execution_id, error, about)

    async def _judge(
        self, engine: EngineBackend, ended: FlowSnapshot, members: tuple[MemberInfo, ...]
    ) -> None:
        edges = await all_edges(engine, self.flow_id)
        described = await self.info()
        lost = unexcused(members, pairs_of(edges), described.edge_groups)
        is_cancelled = ended.public_flow_state is FlowState.CANCELLED
        if not lost and not is_cancelled:
            return
        failures = {each.node_name or each.execution_id: _why(each) for each in lost}
        how = "was cancelled" if is_cancelled else "failed"
        if is_cancelled and ended.cancel_reason:
            how += f" ({ended.cancel_reason})"
        told = "; ".join(f"{name} {why}" for name, why in list(failures.items())[:5])
        more = f"; and {len(failures) - 5} more" if len(failures) > 5 else ""
        raise FlowFailed(
            f"{ended.flow_kind} {how}{': ' if told else ''}{told}{more}",
            flow_id=self.flow_id,
            state=ended.public_flow_state.value,
            failures=failures,
        )

    async def _results(
        self, engine: EngineBackend, members: tuple[MemberInfo, ...]
    ) -> dict[str, Any]:
        done = [
            each
            for each in members
            if each.public_state is PublicState.COMPLETED and each.parent_id is None
        ]
        outcomes = await engine.read_outcomes(execution_ids=[each.execution_id for each in done])
        results = {}
        for each in done:
            name, found = each.node_name or each.execution_id, outcomes.get(each.execution_id)
            try:
                task = self._task(name, each.execution_kind)
                value = read_result(task, each.execution_id, found.result if found else None)
            except ResultMismatch as error:
                error.detail = f"{name}: {error.detail}"
                raise
            results[name] = value
        return results

    def _task(self, name: str, kind: str) -> Task[..., Any] | None:
        return self._tasks.get(name) or self._fabric.tasks.get(kind)

    async def nodes(self) -> dict[str, Run[Any]]:
        """The run of each node, by its name. Children that nodes spawned are not among them."""
        if self._ids is not None:
            found = self._ids
            return {name: Run(self._fabric, found[name], self._tasks.get(name)) for name in found}
        engine = await self._fabric.start()
        return {
            name: Run(self._fabric, each.execution_id, self._task(name, each.execution_kind))
            for each in await engine.list_flow_members(flow_id=self.flow_id)
            if each.parent_id is None and (name := each.node_name or each.execution_id)
        }

    async def state(self) -> FlowState:
        """Its state, in one word."""
        engine = await self._fabric.start()
        summary = await engine.project_flow_summary(flow_id=self.flow_id)
        return summary.public_flow_state

    async def info(self) -> FlowSnapshot:
        """Everything known about it: counts, joins, times, tags."""
        engine = await self._fabric.start()
        snapshot = await engine.describe_flow(flow_id=self.flow_id)
        if snapshot is None:
            raise NotFound(f"flow {self.flow_id}", entity="flow", flow_id=self.flow_id)
        return snapshot

    async def spend(self) -> Spend:
        """What its members have spent so far, by budget and dimension, children included.

        (await run.spend())["gpt"]["cost_micros"]
        """
        return by_budget(await spend_of_flow(await self._fabric.start(), self.flow_id))

    async def cancel(
        self,
        reason: str = "",
        *,
        policy: str | CancellationPolicy = "all",
        wait: Duration | None = None,
    ) -> None:
        """Cancel the flow. None of the nodes this names starts any more. A second cancel is no
        error; with a wider policy it also cancels nodes the first one left.

        `policy`: `all` of its nodes, those `pending`, which have not begun, or the flow `only`, so
        that nothing can be added to it. `wait`: so long for nodes of a large flow to be cancelled.
        """
        chosen = _policy(policy)
        engine = await self._fabric.start()
        wait_ms = 0 if wait is None else to_ms(wait, field="wait")
        because = {} if reason == "" else {"reason": reason}
        await engine.cancel_flow(flow_id=self.flow_id, policy=chosen, wait_ms=wait_ms, **because)

    async def retry(self, reason: str = "") -> list[str]:
        """Run failed, expired and cancelled nodes again, and nodes skipped because of them.

        Returns the names of these nodes. Nodes that succeeded are not run again.
        """
        engine = await self._fabric.start()
        return [each.node_name for each in await replay_lost(engine, self.flow_id, reason)]

    async def watch(self) -> AsyncIterator[NodeChange]:
        """Each node's state, then each change of state, until the flow has ended.

        Ends are seen at once, by hints; other changes within half a second. A state that passed
        between two reads is not shown.
        """
        engine = await self._fabric.start()
        seen: dict[str, PublicState] = {}
        topics = [flow_topic(check_uuid(self.flow_id))]
        while True:
            with engine.listen(topics) as woken:
                members = await engine.list_flow_members(flow_id=self.flow_id)
                for each in members:
                    if seen.get(each.execution_id) is not each.public_state:
                        seen[each.execution_id] = each.public_state
                        yield _change(each)
                live = [each for each in members if each.public_state not in TERMINAL_STATES]
                if not live:
                    return
                if len(topics) > 1:  # the first read only learns which executions to listen for
                    await wait_event(woken, _LOOK_EVERY_S)
                    await asyncio.sleep(_BURST_S)
            topics = [flow_topic(self.flow_id), *(end_topic(each.execution_id) for each in live)]


async def replay_lost(engine: EngineBackend, flow_id: str, reason: str = "") -> list[MemberInfo]:
    """Replay every lost member; members skipped because of them follow.

    A loser of a race was not lost: its join was satisfied without it.
    """
    replayed: list[MemberInfo] = []
    while True:
        some = await engine.retry_flow(flow_id=flow_id, reason=reason)
        replayed += some.replayed
        if not some.left:
            return replayed


def _policy(word: object) -> CancellationPolicy:
    if isinstance(word, CancellationPolicy):
        return word
    found = POLICIES.get(word) if isinstance(word, str) else None
    if found is None:
        detail = f"policy: {shown(word)} is not one of {', '.join(POLICIES)}"
        raise InvalidInput(detail, field="policy")
    return found


def _change(member: MemberInfo) -> NodeChange:
    return NodeChange(
        member.node_name or member.execution_id,
        member.execution_id,
        member.execution_kind,
        member.public_state,
        member.attempt_count,
        member.reason,
        member.parent_id,
    )


def _why(member: MemberInfo) -> str:
    reason = headline(member.reason)
    state = member.public_state.value
    return f"{state} ({reason})" if reason else state


async def all_edges(engine: EngineBackend, flow_id: str) -> list[EdgeSnapshot]:
    """Every edge of a flow."""
    return await every_item(
        lambda at: engine.list_edges(flow_id=flow_id, cursor=at, limit=PAGE_MAX)
    )


def pairs_of(edges: Iterable[EdgeSnapshot]) -> list[tuple[str, str]]:
    """The ids at both ends of edges."""
    return [(each.upstream_execution_id, each.downstream_execution_id) for each in edges]
