"""A budget that asks, met by a handler: it waits without a worker until people have answered.

The questions of one spend stand in the journal under a path of their own, so that another run of
the handler meets the same ones again, and one that finds the spend settled asks nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec

from flowfabric.api.backend import EngineBackend
from flowfabric.errors import NothingToAsk
from flowfabric.model.ask import ASKED, Asked, AskState
from flowfabric.model.budget import AskFirst, HardBreach, Reserved
from flowfabric.model.handle import Handle
from flowfabric.model.journal import EntryError, EntryKind, EntryState, NewEntry
from flowfabric.model.record import to_json
from flowfabric.model.suspension import ReasonCode, ResumeCause, ResumeInfo
from flowfabric.sdk.context.conditions import signal as signal_at
from flowfabric.sdk.context.places import NO_TOKEN, OpenPlace, close_places
from flowfabric.sdk.context.received import Waitpoint, received
from flowfabric.sdk.context.waiting import WaitCall, wait_on
from flowfabric.sdk.durations import Duration
from flowfabric.sdk.errors import BudgetExceeded
from flowfabric.sdk.journal.failures import Failure, exceeded
from flowfabric.sdk.journal.interruption import interruptible, to_its_end
from flowfabric.sdk.journal.journal import Journal
from flowfabric.sdk.journal.paying import Amounts, Reserving
from flowfabric.sdk.journal.scopes import Scope

Room = Reserved | HardBreach
_ANSWER: Final = "answer"  # the name of the wait for one
_PLACE: Final = "place"  # the name of the place where it is told
_AGAIN_S: Final = 0.02  # between two tries while the last answer is being told
_LOOK_S: Final = 0.02  # between looks for other calls to end
_KEY_LENGTH: Final = 100  # characters of a spend's key that its questions repeat
_FIRST: Final[msgspec.json.Decoder[AskFirst]] = msgspec.json.Decoder(AskFirst)


class Questions:
    """What one spend asks, as it stands in the journal."""

    def __init__(self, owner: Any, scope: Scope, key: str, *, timeout: Duration | None = None):
        self._owner = owner
        self._journal: Journal = owner.journal
        self._scope = Scope(self._journal, _path(self._journal, key), scope.owner)
        self._timeout = timeout

    async def room(
        self,
        budget: str,
        amounts: Amounts,
        reserve: Reserving,
    ) -> Room:
        """Reserve, and ask as often as the budget wants. Raises `BudgetExceeded` where people say
        no, or nothing in time."""
        while True:
            name = self._scope.key(_PLACE).now
            asked = self._journal.ask(self._scope, name, kind=EntryKind.WAITPOINT, is_aside=True)
            entry = asked.entry
            if entry is not None and entry.refers_to is not None and entry.value:
                first, place = _FIRST.decode(entry.value), entry.refers_to
            else:
                found = await self._ask(budget, amounts, reserve, name, asked.number)
                if not isinstance(found, tuple):
                    return found
                first, place = found
            call, ended = await self._wait(place)
            if (said := _refusal(ended)) is not None:
                error = refused(budget, first, amounts, said)
                self._fail(error, EntryKind.WAITPOINT, name, asked.number)
                self._fail(error, EntryKind.WAIT, call.key, call.number)
                raise error

    async def _ask(
        self,
        budget: str,
        amounts: Amounts,
        reserve: Reserving,
        name: str,
        number: int,
    ) -> Room | tuple[AskFirst, str]:
        """What is reserved; or what was asked, and where the answer is told."""
        while isinstance(first := await reserve(), AskFirst):
            entry = NewEntry(
                position=0,
                key=name,
                kind=EntryKind.WAITPOINT,
                state=EntryState.OPEN,
                asked=number,
                value=to_json(first),
                began_at=max(0, self._owner.now_ms()),
            )
            send = partial(self._send, budget, amounts)
            carried = self._journal.outbox.carry([entry], send)
            try:
                asked = await interruptible(self._owner, to_its_end(carried))
            except NothingToAsk:
                await asyncio.sleep(_AGAIN_S)
                continue
            return first, asked.waitpoint_id
        return first

    async def _send(self, budget: str, amounts: Amounts, entries: tuple[NewEntry, ...]) -> Asked:
        make = partial(_call, self._owner.claimed.handle, budget, amounts, entries)
        asked: Asked = await self._owner.ask(make)
        return asked

    async def _wait(self, place: str) -> tuple[WaitCall, ResumeInfo]:
        """The wait for an answer, and how it ended."""
        key = f"{ASKED}:{place}"
        target = Waitpoint(place, key, NO_TOKEN, self._owner.claimed.execution_id)
        wait = replace(signal_at(target), reason=ReasonCode.PAUSED_BY_BUDGET)
        call, ended = await wait_on(self._owner, self._scope, _ANSWER, wait, self._timeout)
        if call.is_beside_others:  # it stays open there
            await close_places(self._owner, [OpenPlace(place, key)])
        return call, ended

    def _fail(self, error: BudgetExceeded, kind: EntryKind, key: str, number: int) -> None:
        """If this ends the attempt, the next one asks anew."""
        kept = EntryError(BudgetExceeded.__name__, error.detail)
        self._journal.failed(Failure(key, number, None, kept, 1, error, kind))


async def alone(journal: Journal) -> None:
    """Return when no other call of the handler is under way."""
    while journal.performing:  # noqa: ASYNC110 - their ends set no event
        await asyncio.sleep(_LOOK_S)


def pass_over(journal: Journal, key: str) -> None:
    """The questions of a spend that may be settled: nothing asks for their answers then."""
    path, count = _path(journal, key), 1
    while journal.pass_over(f"{path}/{_ANSWER}" + ("" if count == 1 else f"#{count}")):
        count += 1


def refused(budget: str, first: AskFirst, amounts: Amounts, said: Mapping[str, str]) -> Any:
    """The exception of a spend that people refused, or gave no answer."""
    breach = HardBreach(first.dimension, first.current_usage, first.limit)
    plain = exceeded(budget, breach, amounts)
    why = f"{said['answer']}" + (f" by {said['by']}" if said.get("by") else "")
    comment = f": {said['comment']}" if said.get("comment") else ""
    return BudgetExceeded(f"{plain.detail}; {why}{comment}", **plain.fields, **said)


def _refusal(ended: ResumeInfo) -> dict[str, str] | None:
    """Why there is to be no room, in the words of people; None: it is tried again."""
    if ended.cause is ResumeCause.TIMEOUT:
        return {"answer": "no answer in time"}
    if ended.cause is not ResumeCause.SIGNAL or not ended.signals:
        return None  # an operator ended the wait
    came = received(ended.signals)[-1]
    if came.name != AskState.REJECTED.value:
        return None
    payload = came.payload if isinstance(came.payload, Mapping) else {}
    told = {name: str(payload.get(name) or "") for name in ("by", "comment")}
    return {"answer": AskState.REJECTED.value, **told}


async def _call(
    handle: Handle,
    budget: str,
    amounts: Amounts,
    entries: tuple[NewEntry, ...],
    engine: EngineBackend,
) -> Asked:
    return await engine.ask_budget(handle, budget_id=budget, amounts=amounts, entries=entries)


def _path(journal: Journal, key: str) -> str:
    """A key with brackets cannot be a part of another one."""
    is_plain = "[" not in key and len(key) <= _KEY_LENGTH
    return f"ask:{key if is_plain else journal.idempotency_key(key)}"
