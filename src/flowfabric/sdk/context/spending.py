"""Spending from inside a handler: reserve before, settle after, give the unused part back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from flowfabric.api.budgets import Usage
from flowfabric.errors import FlowFabricError, InvalidInput, NotFound
from flowfabric.ids import new_secret_id
from flowfabric.kernel.journal.lookup import Asked
from flowfabric.model.budget import AskFirst, HardBreach, Reserved, UsageOutcome
from flowfabric.model.checks import check_name
from flowfabric.model.journal import Checkpointed, EntryKind, NewEntry, Settlement
from flowfabric.model.limit_checks import check_amounts
from flowfabric.sdk.context.asker import Asker
from flowfabric.sdk.durations import Duration, to_ms
from flowfabric.sdk.errors import JournaledCallError, Stopped
from flowfabric.sdk.journal.asking import Questions, pass_over
from flowfabric.sdk.journal.failures import exceeded
from flowfabric.sdk.journal.outbox import Outbox
from flowfabric.sdk.journal.scopes import Scope, name_with, own_scope
from flowfabric.tracing.spans import spans

_LOGGER = logging.getLogger("flowfabric.task")
_REPEAT_TTL_MS: Final = 600_000  # as long as a report may be repeated because its reply was lost
HOLD_FOR: Final = "1h"


async def report_usage(owner: Asker, budget: str, usage: Usage) -> UsageOutcome:
    """Report usage once: without a key of the caller's own it gets one for its repeats."""
    usage.amounts()  # refused here, where the traceback helps
    await owner.settle()
    claimed = owner.claimed
    if usage.dedup_key is not None:
        return await owner.ask(
            lambda engine: engine.report_usage(
                claimed.handle, budget_id=budget, usage=usage, must_exist=True
            )
        )
    key = f"{claimed.execution_id}/{claimed.attempt_index}/{new_secret_id()}"
    named = Usage(custom=usage.amounts(), dedup_key=key)
    return await owner.ask(
        lambda engine: engine.report_usage(
            claimed.handle,
            budget_id=budget,
            usage=named,
            dedup_ttl_ms=_REPEAT_TTL_MS,
            must_exist=True,
        )
    )


class Hold:
    """One reservation: its amounts, the actual usage, and how it was settled."""

    def __init__(
        self,
        owner: Asker,
        budget: str,
        amounts: Mapping[str, int],
        hold_for: Duration,
        answer_in: Duration | None = None,
    ) -> None:
        self._owner = owner
        if answer_in is not None:
            to_ms(answer_in, field="answer_in")  # refused here, where the traceback helps
        self._answer_in = answer_in
        self.budget = check_name(budget, field="budget")
        self.reserved = check_amounts(amounts, field="spend")
        if not self.reserved:
            raise InvalidInput("spend: name what to reserve, such as tokens=1000", field="spend")
        self._ttl_ms = to_ms(hold_for, field="hold_for")
        self._hold_id = new_secret_id()
        self._held: Reserved | None = None
        self._actual: dict[str, int] = {}
        self._is_known = False
        self._scope: Scope | None = None  # where the block stands, if its handler has steps
        self._key = ""
        self._asked: Asked | None = None
        self.outcome: UsageOutcome | None = None  # how it was settled, afterwards

    def actual(self, **amounts: int) -> None:
        """The actual usage. A dimension that is never named counts as it was reserved.

        It may be called again: the last number of a dimension counts.
        """
        self._actual |= check_amounts(amounts, field="actual")
        self._is_known = True

    def _stand_here(self) -> None:
        """Take a place among the calls of the handler: a block that an earlier run has settled
        spends nothing again. One in a task of the handler's own, or in a step, has none."""
        try:
            scope = own_scope("spend", self._owner.journal)
        except JournaledCallError:
            return
        self._scope = scope
        self._key = scope.key(name_with("spend", self.budget)).now
        pass_over(scope.journal, self._key)
        self._asked = scope.journal.ask(scope, self._key, kind=EntryKind.SPEND)

    @property
    def _was_settled(self) -> bool:
        return self._asked is not None and self._asked.answer is not None

    async def _settle_with_entry(self, asked: Asked, outbox: Outbox) -> None:
        """Charge it with the entry that says so: a crash cannot come between the two."""
        amounts = self.reserved | self._actual
        entry = NewEntry(
            position=0,
            key=self._key,
            kind=EntryKind.SPEND,
            asked=asked.number,
            began_at=max(0, self._owner.journal.owner.now_ms()),
            settles=(Settlement(self.budget, self._hold_id, amounts),),
        )
        reply = await outbox.carry([entry], self._checkpoint)
        self.outcome = reply.outcomes[-1] if reply.outcomes else None

    async def _checkpoint(self, entries: tuple[NewEntry, ...]) -> Checkpointed:
        handle = self._owner.claimed.handle
        return await self._owner.ask(lambda engine: engine.checkpoint(handle, entries=entries))

    async def _reserve(self) -> None:
        if self._held is not None:
            raise InvalidInput("spend: already used; make another one", field="spend")
        if self._was_settled:
            return
        await self._owner.settle()
        answer: Reserved | HardBreach | AskFirst
        if self._scope is None or self._asked is None:
            answer = await self._reserve_now()
        else:
            asked = Questions(self._owner, self._scope, self._key, timeout=self._answer_in)
            answer = await asked.room(self.budget, self.reserved, self._reserve_now)
        if isinstance(answer, AskFirst):  # there is no place to wait for people
            answer = HardBreach(answer.dimension, answer.current_usage, answer.limit)
        if isinstance(answer, HardBreach):
            raise exceeded(self.budget, answer, self.reserved)
        self._held = answer

    async def _reserve_now(self) -> Reserved | HardBreach | AskFirst:
        handle = self._owner.claimed.handle
        return await self._owner.ask(
            lambda engine: engine.reserve_budget(
                handle,
                budget_id=self.budget,
                amounts=self.reserved,
                hold_id=self._hold_id,
                ttl_ms=self._ttl_ms,
            )
        )

    async def _end(self, error: BaseException | None) -> None:
        """Settle or give back; while another exception propagates, nothing here may replace it."""
        if self._was_settled:
            return
        ending = self._release() if error is not None and not self._is_known else self._settle()
        if error is None:
            await ending
            return
        try:
            await ending
        except Stopped:
            return  # the lease is gone and the reservation with it
        except FlowFabricError as problem:
            _LOGGER.warning("budget %s: a hold was not settled, %s", self.budget, problem)

    def _tell(self, error: BaseException | None) -> None:
        """In the span of the handler, where there is one, as far as it was spent now."""
        is_spent = self._held is not None and (error is None or self._is_known)
        if is_spent and (found := spans()) is not None:
            found.spent(self.reserved | self._actual)

    async def _release(self) -> None:
        handle = self._owner.claimed.handle
        await self._owner.ask(
            lambda engine: engine.release_hold(handle, budget_id=self.budget, hold_id=self._hold_id)
        )

    async def _settle(self) -> None:
        scope, asked = self._scope, self._asked
        is_asking = self._held is not None and self._held.asks
        if scope is not None and asked is not None and (is_asking or scope.journal.outbox.count):
            await self._settle_with_entry(asked, scope.journal.outbox)
        else:  # a handler without steps has no journal
            await self._settle_alone()
        if isinstance(self.outcome, HardBreach):
            _LOGGER.warning(
                "budget %s: %s was used beyond what was reserved and allowed; the excess is not "
                "counted",
                self.budget,
                self.outcome.dimension,
            )

    async def _settle_alone(self) -> None:
        handle, amounts = self._owner.claimed.handle, self.reserved | self._actual
        try:
            self.outcome = await self._owner.ask(
                lambda engine: engine.settle_budget(
                    handle, budget_id=self.budget, hold_id=self._hold_id, amounts=amounts
                )
            )
        except NotFound as error:
            if error.fields.get("entity") != "hold":
                raise
            # It has expired: the usage is reported like any other.
            self.outcome = await self._settle_late(amounts)

    async def _settle_late(self, amounts: Mapping[str, int]) -> UsageOutcome:
        usage = Usage(custom=amounts, dedup_key=f"hold:{self._hold_id}")
        return await report_usage(self._owner, self.budget, usage)


class Spend(Hold):
    """`async with ctx.spend("gpt", tokens=1000) as spend:`."""

    async def __aenter__(self) -> Self:
        self._stand_here()
        try:
            await self._reserve()
        except asyncio.CancelledError as error:
            await self._end(error)  # it may have been reserved all the same
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._end(error)
        self._tell(error)


class SyncSpend(Hold):
    """`with ctx.spend("gpt", tokens=1000) as spend:`, in a sync task."""

    def __enter__(self) -> Self:
        self._stand_here()
        self._owner.wait_for(self._reserve())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._owner.wait_for(self._end(error))
        except Stopped:
            if error is None:
                raise
        self._tell(error)
