"""Operations that build, run and cancel flows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from flowfabric import ids, limits
from flowfabric.api.executions import NewExecution
from flowfabric.clock import monotonic
from flowfabric.engine.core import EngineCore
from flowfabric.engine.due_work import move_due
from flowfabric.engine.flow_building import CascadeFrom, ResolveEdge
from flowfabric.engine.flow_requests import FlowEdge, FlowNode, NewFlow, to_children, to_submit
from flowfabric.errors import FlowAlreadyTerminal, FlowFabricError, InvalidInput
from flowfabric.kernel.dependent import WaitChildren
from flowfabric.kernel.flow import AddMember, CreateFlow, SetFlowTag
from flowfabric.kernel.flow_cancel import FLOW_CANCELLED, AckCancelMember, CancelFlow
from flowfabric.kernel.graph import ApplyEdge, SetGroupPolicy, StageEdge, WithdrawEdge
from flowfabric.kernel.submit_flow import SpawnChildren
from flowfabric.model.checks import (
    check_flag,
    check_integer,
    check_name,
    check_tag_key,
    check_tag_value,
    check_tags,
    check_text,
    check_uuid,
    clip_text,
)
from flowfabric.model.flow import (
    SUCCESS_ONLY,
    CancellationPolicy,
    EdgePolicy,
    TaskKind,
    check_edge_policy,
)
from flowfabric.model.flow_results import (
    Added,
    AlreadyApplied,
    AlreadyMember,
    AlreadyTerminal,
    AlreadyWithdrawn,
    Applied,
    CancellationScheduled,
    CascadeOutcome,
    ChildrenAwaited,
    DependencyResolved,
    FlowAlreadySatisfied,
    FlowCancelled,
    FlowCreated,
    FlowDuplicate,
    FlowSubmitted,
    PartiallyCancelled,
    PolicyAlreadySet,
    PolicySet,
    Spawned,
    Staged,
    Withdrawn,
)
from flowfabric.model.handle import Handle
from flowfabric.model.limit_checks import check_word
from flowfabric.stores.tables import FLOW_TASKS

DRAIN_PAUSE_S = 0.02


class Flowing(EngineCore):
    """Executions that depend on each other; see docs/guides/flows.md."""

    # --- whole graphs --------------------------------------------------------------------------

    async def submit_flow(
        self,
        *,
        nodes: Sequence[FlowNode],
        edges: Sequence[FlowEdge] = (),
        flow_kind: str = "dag",
        namespace: str | None = None,
        tags: dict[str, str] | None = None,
        retention_ms: int | None = None,
        idempotency_key: str | None = None,
        dedup_window_ms: int = limits.DEDUP_WINDOW_MS_DEFAULT,
        flow_id: str | None = None,
        connection: Any = None,
    ) -> FlowSubmitted | FlowDuplicate:
        """Record a whole graph in one transaction: all of it, or nothing and the culprit is named.

        `connection`: in the caller's own open Postgres transaction, as `create_executions_in`.

        >>> await engine.submit_flow(  # doctest: +SKIP
        ...     nodes=[FlowNode(name="a", execution=NewExecution(execution_kind="a")), …],
        ...     edges=[FlowEdge(upstream="a", downstream="b", passes_result=True)],
        ... )
        """
        key = idempotency_key
        if key is not None:
            check_text(key, field="idempotency_key", max_bytes=limits.IDEMPOTENCY_KEY_BYTES)
        check_integer(
            dedup_window_ms, field="dedup_window_ms", least=1, most=limits.DURATION_MS_MAX
        )
        flow = NewFlow(
            flow_id=self._flow_id(flow_id),
            flow_kind=check_name(flow_kind, field="flow_kind"),
            namespace=self.namespace(namespace),
            tags=check_tags(tags or {}),
            retention_ms=_retention(retention_ms),
            idempotency_key=key,
            dedup_window_ms=dedup_window_ms,
            is_named=flow_id is not None,
        )
        command = to_submit(flow, nodes, edges, self.config, self.store.partitions)
        creates = [node.create for node in command.nodes]
        reply: FlowSubmitted | FlowDuplicate
        if connection is not None:
            (reply,) = await self.execute_in(connection, (command,), creates)
            return reply
        await self.ensure_known(creates)
        reply = await self.execute(command)
        return reply

    # --- one by one ----------------------------------------------------------------------------

    async def create_flow(
        self,
        *,
        flow_kind: str = "dag",
        namespace: str | None = None,
        flow_id: str | None = None,
        tags: dict[str, str] | None = None,
        retention_ms: int | None = None,
    ) -> FlowCreated | FlowAlreadySatisfied:
        """An empty flow to add executions to."""
        command = CreateFlow(
            self._flow_id(flow_id),
            check_name(flow_kind, field="flow_kind"),
            self.namespace(namespace),
            _retention(retention_ms),
            check_tags(tags or {}),
        )
        reply: FlowCreated | FlowAlreadySatisfied = await self.execute(command)
        return reply

    async def add_execution_to_flow(
        self, *, flow_id: str, execution_id: str, node_name: str = "", reopen: bool = False
    ) -> Added | AlreadyMember:
        """An execution joins a flow, for ever. `reopen`: also one that has finished."""
        flow, key = check_uuid(flow_id), self.check_id(execution_id)
        number = ids.partition_of(flow, self.store.partitions)
        if not key.startswith(f"{{fp:{number}}}:"):
            detail = (
                "execution_id: is on another partition than the flow; "
                "create it with colocate_with=flow_id"
            )
            raise InvalidInput(detail, field="execution_id")
        name = check_text(
            node_name, field="node_name", max_bytes=limits.NODE_NAME_BYTES, empty=True
        )
        reply: Added | AlreadyMember = await self.execute(
            AddMember(flow, key, name, check_flag(reopen, field="reopen"))
        )
        return reply

    async def stage_dependency_edge(
        self,
        *,
        flow_id: str,
        upstream_execution_id: str,
        downstream_execution_id: str,
        edge_id: str | None = None,
        dependency_kind: str = SUCCESS_ONLY,
        data_passing_ref: str | None = None,
        input_name: str | None = None,
        expected_graph_revision: int | None = None,
    ) -> Staged:
        """Announce an edge; it takes effect by `apply_dependency_to_child`.

        By itself it holds no child back. A child that waits for another edge waits for this one
        too, until it is applied and its upstream ends, or `withdraw_dependency_edge` takes it back.
        """
        if dependency_kind != SUCCESS_ONLY:
            detail = f"dependency_kind: only {SUCCESS_ONLY} is known"
            raise InvalidInput(detail, field="dependency_kind")
        if expected_graph_revision is not None:
            check_integer(
                expected_graph_revision, field="expected_graph_revision", least=0, most=1 << 62
            )
        command = StageEdge(
            check_uuid(flow_id),
            ids.new_uuid7s(1)[0] if edge_id is None else check_uuid(edge_id, field="edge_id"),
            self.check_end(upstream_execution_id, "upstream_execution_id"),
            self.check_end(downstream_execution_id, "downstream_execution_id"),
            dependency_kind,
            _optional(data_passing_ref, "data_passing_ref"),
            _optional(input_name, "input_name"),
            expected_graph_revision,
        )
        reply: Staged = await self.execute(command)
        return reply

    async def apply_dependency_to_child(
        self,
        *,
        flow_id: str,
        edge_id: str,
        upstream_execution_id: str,
        downstream_execution_id: str,
    ) -> Applied | AlreadyApplied:
        """The child waits from now on; an upstream that has ended counts at once."""
        command = ApplyEdge(
            check_uuid(flow_id),
            check_uuid(edge_id, field="edge_id"),
            self.check_end(upstream_execution_id, "upstream_execution_id"),
            self.check_end(downstream_execution_id, "downstream_execution_id"),
        )
        reply: Applied | AlreadyApplied = await self.execute(command)
        return reply

    async def withdraw_dependency_edge(
        self,
        *,
        flow_id: str,
        edge_id: str,
        upstream_execution_id: str,
        downstream_execution_id: str,
    ) -> Withdrawn | AlreadyWithdrawn:
        """Take a staged edge back: its group no longer waits for it, and may be met at once.

        An edge that was applied is refused.
        """
        command = WithdrawEdge(
            check_uuid(flow_id),
            check_uuid(edge_id, field="edge_id"),
            self.check_end(upstream_execution_id, "upstream_execution_id"),
            self.check_end(downstream_execution_id, "downstream_execution_id"),
        )
        reply: Withdrawn | AlreadyWithdrawn = await self.execute(command)
        return reply

    async def add_dependency(
        self,
        *,
        flow_id: str,
        upstream_execution_id: str,
        downstream_execution_id: str,
        data_passing_ref: str | None = None,
        input_name: str | None = None,
    ) -> Applied | AlreadyApplied:
        """Stage and apply an edge in one transaction."""
        edge_id = ids.new_uuid7s(1)[0]
        ends = (
            self.check_end(upstream_execution_id, "upstream_execution_id"),
            self.check_end(downstream_execution_id, "downstream_execution_id"),
        )
        stage = StageEdge(
            check_uuid(flow_id),
            edge_id,
            *ends,
            SUCCESS_ONLY,
            _optional(data_passing_ref, "data_passing_ref"),
            _optional(input_name, "input_name"),
        )
        replies = await self.execute_together([stage, ApplyEdge(stage.flow_id, edge_id, *ends)])
        reply: Applied | AlreadyApplied = replies[1]
        return reply

    async def set_edge_group_policy(
        self, *, flow_id: str, downstream_execution_id: str, policy: EdgePolicy
    ) -> PolicySet | PolicyAlreadySet:
        """How the inbound edges of a member join; to be said before the first of them."""
        child = self.check_end(downstream_execution_id, "downstream_execution_id")
        command = SetGroupPolicy(check_uuid(flow_id), child, check_edge_policy(policy))
        reply: PolicySet | PolicyAlreadySet = await self.execute(command)
        return reply

    async def set_flow_tag(self, *, flow_id: str, key: str, value: str) -> None:
        """Set or overwrite one tag."""
        tag = {check_tag_key(key): check_tag_value(value)}
        await self.execute(SetFlowTag(check_uuid(flow_id), tag))

    async def set_flow_tags(self, *, flow_id: str, tags: dict[str, str]) -> None:
        """Set or overwrite several tags, or none if one is malformed."""
        await self.execute(SetFlowTag(check_uuid(flow_id), check_tags(tags)))

    # --- what the cascade does by itself -------------------------------------------------------

    async def resolve_dependency(
        self,
        *,
        flow_id: str,
        edge_id: str,
        upstream_execution_id: str,
        downstream_execution_id: str,
    ) -> DependencyResolved:
        """Count an upstream's end for one edge; its outcome is read from its record."""
        command = ResolveEdge(
            check_uuid(flow_id),
            check_uuid(edge_id, field="edge_id"),
            self.check_end(upstream_execution_id, "upstream_execution_id"),
            self.check_end(downstream_execution_id, "downstream_execution_id"),
        )
        reply: DependencyResolved = await self.execute(command)
        return reply

    async def cascade_completion(self, *, execution_id: str) -> CascadeOutcome:
        """Resolve what follows from an execution's end, as far as it has not been."""
        reply: CascadeOutcome = await self.execute(CascadeFrom(self.check_id(execution_id)))
        return reply

    # --- cancelling ----------------------------------------------------------------------------

    async def cancel_flow(
        self,
        *,
        flow_id: str,
        policy: CancellationPolicy | str = CancellationPolicy.CANCEL_ALL,
        reason: str = FLOW_CANCELLED,
        wait_ms: int | None = None,
    ) -> FlowCancelled | CancellationScheduled | PartiallyCancelled:
        """Cancel a flow and the members its policy names; none of them starts after this returns.

        Members of a large flow are cancelled shortly afterwards; `wait_ms` waits for that.
        """
        if wait_ms is not None:
            check_integer(wait_ms, field="wait_ms", least=0, most=limits.CANCEL_WAIT_MS_MAX)
        flow = check_uuid(flow_id)
        reply = await self.execute(_cancel(flow, policy, reason, None))
        if isinstance(reply, AlreadyTerminal):
            stored = reply.stored_cancellation_policy
            if stored is None:
                raise FlowAlreadyTerminal(f"flow {flow} has finished")
            reply = FlowCancelled(stored, reply.member_execution_ids)
        assert isinstance(reply, FlowCancelled | CancellationScheduled)  # noqa: S101 - narrows
        if wait_ms is None:
            return reply
        left = await self._drain(flow, wait_ms)
        answer = (reply.cancellation_policy, reply.member_execution_ids)
        return PartiallyCancelled(*answer, left) if left else FlowCancelled(*answer)

    async def _drain(self, flow_id: str, wait_ms: int) -> tuple[str, ...]:
        """Do what is owed to a cancelled flow; the members that are still left in the end."""
        until = monotonic() + wait_ms / 1000
        while True:
            owed = await self.read(lambda reader: reader.peek_rows(FLOW_TASKS, [(flow_id,)]))
            left = tuple(key[2] for key in sorted(owed) if key[1] is TaskKind.CANCEL_MEMBER)
            if not left or monotonic() >= until:
                return left
            if not await move_due(self):
                await asyncio.sleep(DRAIN_PAUSE_S)

    async def cancel_flow_header(
        self,
        *,
        flow_id: str,
        policy: CancellationPolicy | str = CancellationPolicy.CANCEL_ALL,
        reason: str = FLOW_CANCELLED,
        grace_ms: int = limits.CANCEL_GRACE_MS_DEFAULT,
    ) -> FlowCancelled | AlreadyTerminal:
        """Cancel the flow alone, for a caller who cancels its members and acknowledges each.

        None of them starts any more; whoever is left after the grace is cancelled by itself.
        """
        check_integer(grace_ms, field="grace_ms", least=0, most=limits.DURATION_MS_MAX)
        command = _cancel(check_uuid(flow_id), policy, reason, grace_ms)
        reply: FlowCancelled | AlreadyTerminal = await self.execute(command)
        return reply

    async def ack_cancel_member(self, *, flow_id: str, execution_id: str) -> None:
        """A member of a cancelled flow was cancelled by its caller; nothing more is owed.

        One that has not ended stays owed, and is cancelled when the grace is over.
        """
        await self.execute(AckCancelMember(check_uuid(flow_id), self.check_id(execution_id)))

    # --- children ------------------------------------------------------------------------------

    async def spawn_children(self, handle: Handle, children: Sequence[NewExecution]) -> Spawned:
        """Record executions as children of the one the handle owns, in its flow.

        A child with an idempotency key that the parent used before is the one it spawned then.
        """
        checked = self.check_handle(handle)
        commands = to_children(checked.execution_id, children, self.config)
        await self.ensure_known(commands, knows_flow=False)
        command = SpawnChildren(
            checked.execution_id, checked.fence, tuple(commands), self.flow_budgets(commands)
        )
        reply: Spawned = await self.execute(command)
        return reply

    async def wait_children(self, handle: Handle) -> ChildrenAwaited:
        """Let go of the lease until every child has ended; without any it goes on at once."""
        checked = self.check_handle(handle)
        command = WaitChildren(checked.execution_id, checked.fence)
        reply: ChildrenAwaited = await self.execute(command)
        return reply

    # --- checks --------------------------------------------------------------------------------

    def check_end(self, execution_id: object, field: str) -> str:
        """A well-formed id at one end of an edge."""
        try:
            return self.check_id(execution_id)
        except FlowFabricError as error:
            error.detail = error.detail.replace("execution_id", field, 1)
            error.fields["field"] = field
            raise

    def _flow_id(self, flow_id: str | None) -> str:
        return ids.new_uuid7s(1)[0] if flow_id is None else check_uuid(flow_id)


def _cancel(
    flow_id: str, policy: CancellationPolicy | str, reason: str, grace_ms: int | None
) -> CancelFlow:
    word = check_word(policy, CancellationPolicy, field="policy")
    text = clip_text(reason, limits.REASON_BYTES, field="reason") or FLOW_CANCELLED
    return CancelFlow(flow_id, word, text, grace_ms)


def _retention(value: int | None) -> int | None:
    if value is None:
        return None
    return check_integer(value, field="retention_ms", least=0, most=limits.DURATION_MS_MAX)


def _optional(value: str | None, field: str) -> str | None:
    if value is None or value == "":
        return None
    return check_text(value, field=field, max_bytes=limits.NAME_BYTES)
