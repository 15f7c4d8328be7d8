"""Operations of an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowfabric import limits
from flowfabric.engine.core import EngineCore
from flowfabric.engine.operations.leases import check_fence
from flowfabric.errors import Corruption, InvalidBlockingReason
from flowfabric.kernel.cancel import Cancel
from flowfabric.kernel.operate import Block, ChangePriority, Hold, Release, SetTag, Unblock
from flowfabric.kernel.replay import Replay
from flowfabric.kernel.revoke import RevokeLease
from flowfabric.model.budget import ScopeType
from flowfabric.model.checks import (
    check_flag,
    check_instant,
    check_integer,
    check_lane,
    check_name,
    check_tag_key,
    check_tag_value,
    check_text,
    clamp_priority,
    clip_text,
    word_of,
)
from flowfabric.model.event import OperatorEvent, OperatorEventType
from flowfabric.model.execution import Fence
from flowfabric.model.limit_checks import check_bounds, check_word
from flowfabric.model.record import replace
from flowfabric.model.results import (
    AlreadySatisfied,
    Blocked,
    Cancelled,
    LaneChanged,
    LaneConfigured,
    PriorityChanged,
    Rejected,
    Replayed,
    Revoked,
    Unblocked,
)
from flowfabric.model.route import Catalog, Lane, LaneState
from flowfabric.model.shown import shown
from flowfabric.model.state import BlockingReason
from flowfabric.stores.base import Changes, Transaction


class Operating(EngineCore):
    """Each of these is audited as an operator event in its own transaction."""

    async def cancel_execution(
        self, *, execution_id: str, reason: str, source: str, fence: Fence | None = None
    ) -> Cancelled:
        """Stop an execution in whatever phase; `source="operator_override"` needs no fence."""
        command = Cancel(
            self.check_id(execution_id),
            clip_text(reason, limits.REASON_BYTES, field="reason"),
            check_name(source, field="source"),
            check_fence(fence),
        )
        reply: Cancelled = await self.execute(command)
        return reply

    async def change_priority(self, *, execution_id: str, new_priority: int) -> PriorityChanged:
        """Move work that does not run up or down; clamped to 0..9000."""
        rank = clamp_priority(new_priority, field="new_priority")
        reply: PriorityChanged = await self.execute(
            ChangePriority(self.check_id(execution_id), rank)
        )
        return reply

    async def replay_execution(
        self,
        *,
        execution_id: str,
        requested_by: str = "",
        reason: str = "",
        deadline_at: int | None = None,
        cascade: bool = False,
    ) -> Replayed:
        """Run a finished execution again as a new attempt; its history stays.

        `cascade`: members of its flow that were skipped because of it live again too.
        """
        command = Replay(
            self.check_id(execution_id),
            check_text(requested_by, field="requested_by", max_bytes=limits.NAME_BYTES, empty=True),
            clip_text(reason, limits.REASON_BYTES, field="reason"),
            None if deadline_at is None else check_instant(deadline_at, field="deadline_at"),
            check_flag(cascade, field="cascade"),
        )
        reply: Replayed = await self.execute(command)
        return reply

    async def revoke_lease(
        self,
        *,
        execution_id: str,
        reason: str,
        expected_lease_id: str = "",
        worker_instance_id: str = "",
    ) -> Revoked | AlreadySatisfied:
        """Take a lease away from its worker; the work is run again."""
        command = RevokeLease(
            self.check_id(execution_id),
            clip_text(reason, limits.REASON_BYTES, field="reason"),
            _expectation(expected_lease_id, "expected_lease_id"),
            _expectation(worker_instance_id, "worker_instance_id"),
        )
        reply: Revoked | AlreadySatisfied = await self.execute(command)
        return reply

    async def hold_execution(self, *, execution_id: str, reason: str = "") -> Blocked:
        """Keep runnable work from being claimed until it is released."""
        text = clip_text(reason, limits.REASON_BYTES, field="reason")
        reply: Blocked = await self.execute(Hold(self.check_id(execution_id), text))
        return reply

    async def release_execution(self, *, execution_id: str) -> Unblocked:
        """End a hold."""
        reply: Unblocked = await self.execute(Release(self.check_id(execution_id)))
        return reply

    async def block_execution_for_admission(
        self, *, execution_id: str, reason: BlockingReason | str, reason_detail: str = ""
    ) -> Blocked | Rejected:
        """Keep waiting work from being claimed because admission said no."""
        command = Block(
            self.check_id(execution_id),
            _reason(reason),
            clip_text(reason_detail, limits.REASON_BYTES, field="reason_detail"),
        )
        reply: Blocked | Rejected = await self.execute(command)
        return reply

    async def unblock_execution(
        self, *, execution_id: str, expected_reason: BlockingReason | str | None = None
    ) -> Unblocked:
        """Lift a block; `expected_reason` guards against lifting another one."""
        expected = None if expected_reason is None else _reason(expected_reason, "expected_reason")
        command = Unblock(self.check_id(execution_id), expected, by_operator=True)
        reply: Unblocked = await self.execute(command)
        return reply

    async def set_execution_tag(self, *, execution_id: str, key: str, value: str) -> None:
        """Set or overwrite one tag."""
        command = SetTag(self.check_id(execution_id), check_tag_key(key), check_tag_value(value))
        await self.execute(command)

    # --- lanes ---------------------------------------------------------------------------------

    async def set_lane_state(
        self, *, lane_id: str, lane_state: LaneState | str, reason: str = ""
    ) -> LaneChanged:
        """Switch a lane: active, paused (no claims), draining (no creates), disabled (neither)."""
        lane, text = check_lane(lane_id), clip_text(reason, limits.REASON_BYTES, field="reason")
        wanted = check_word(lane_state, LaneState, field="lane_state")

        async def work(tx: Transaction) -> LaneChanged:
            return await _switch(tx, lane, wanted, text)

        reply = await self.transact(work)
        if wanted.hands_out:
            self.store.hints.publish({f"lane:{lane}": 1_000_000})
        return reply

    async def pause_lane(self, *, lane_id: str, reason: str = "") -> LaneChanged:
        """Hand no work out; work is still taken in."""
        return await self.set_lane_state(
            lane_id=lane_id, lane_state=LaneState.PAUSED, reason=reason
        )

    async def resume_lane(self, *, lane_id: str, reason: str = "") -> LaneChanged:
        """Open the lane again."""
        return await self.set_lane_state(
            lane_id=lane_id, lane_state=LaneState.ACTIVE, reason=reason
        )

    async def drain_lane(self, *, lane_id: str, reason: str = "") -> LaneChanged:
        """Take no work in; what is there is still handed out."""
        return await self.set_lane_state(
            lane_id=lane_id, lane_state=LaneState.DRAINING, reason=reason
        )

    async def configure_lane(
        self,
        *,
        lane_id: str,
        weight: int | None = None,
        aging_ms: int | None = None,
        budget_ids: Sequence[str] | None = None,
        quota_policy_id: str | None = None,
    ) -> LaneConfigured:
        """How a lane shares a worker with others, lets work age and bounds what is created on it.

        What is not named stays; an empty list and an empty text take defaults away. Executions
        that exist keep what they were created with.
        """
        lane = check_lane(lane_id)
        if weight is not None:
            weight = check_integer(weight, field="weight", least=1, most=limits.LANE_WEIGHT_MAX)
        if aging_ms is not None:
            aging_ms = check_integer(aging_ms, field="aging_ms", least=0, most=limits.AGING_MS_MAX)
        asked = check_bounds(
            () if budget_ids is None else budget_ids,
            None if quota_policy_id == "" else quota_policy_id,
            None,
        )
        await self.ensure_limits([asked])
        # A lane has many tenants and executions: budgets of one of those cannot be its default.
        places = {ScopeType.LANE: lane, ScopeType.NAMESPACE: "", ScopeType.EXECUTION: ""}
        self.check_scopes(asked.budget_ids, places)

        async def work(tx: Transaction) -> LaneConfigured:
            known = _readable_lane(await tx.catalog(), lane)
            old = known or Lane(lane, LaneState.ACTIVE, tx.now, tx.now)
            quota = old.bounds.quota_policy_id
            new = replace(
                old,
                changed_at=tx.now,
                weight=old.weight if weight is None else weight,
                aging_ms=old.aging_ms if aging_ms is None else aging_ms,
                bounds=check_bounds(
                    old.bounds.budget_ids if budget_ids is None else asked.budget_ids,
                    quota if quota_policy_id is None else asked.quota_policy_id,
                    None,
                ),
            )
            await tx.save_lane(new)
            details = {"weight": new.weight, "aging_ms": new.aging_ms}
            await _audit_lane(tx, lane, details)
            return LaneConfigured(lane, new.weight, new.aging_ms, new.bounds)

        return await self.transact(work)


def _readable_lane(catalog: Catalog, lane_id: str) -> Lane | None:
    """The lane as it is set up, if it is; one that cannot be read is not written over."""
    if (fault := catalog.lane_fault(lane_id)) is not None:
        raise Corruption(fault, field="lane_id")
    return catalog.lanes.get(lane_id)


async def _switch(tx: Transaction, lane_id: str, wanted: LaneState, reason: str) -> LaneChanged:
    catalog = await tx.catalog()
    previous = catalog.lane_state(lane_id)
    known = _readable_lane(catalog, lane_id)
    old = known or Lane(lane_id, wanted, tx.now, tx.now)
    await tx.save_lane(replace(old, lane_state=wanted, changed_at=tx.now, reason=reason))
    details = {"previous": previous.value, "lane_state": wanted.value, "reason": reason}
    await _audit_lane(tx, lane_id, details)
    return LaneChanged(lane_id, wanted, previous)


async def _audit_lane(tx: Transaction, lane_id: str, details: dict[str, Any]) -> None:
    changes = Changes()
    changes.operator_events.append(
        OperatorEvent(lane_id, OperatorEventType.LANE_CHANGED, details, "", {}, tx.now)
    )
    await tx.save(changes)


def _expectation(value: str, field: str) -> str:
    """Text to compare with; empty means that it is not checked."""
    return check_text(value, field=field, max_bytes=limits.NAME_BYTES, empty=True)


def _reason(reason: BlockingReason | str, field: str = "reason") -> BlockingReason:
    word = word_of(reason, BlockingReason)
    if word is None:
        raise InvalidBlockingReason(f"{field}: {shown(reason, 80)}", field=field)
    return word
