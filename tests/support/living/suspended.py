"""Work that waits for signals: open episodes, waitpoints in every state, keys that sign tokens."""

from __future__ import annotations

from typing import Any, Final

import pytest

from flowfabric.api.waits import Fresh, Signal, StayPending, SuspendRequest, UsePending
from flowfabric.errors import InvalidPayload, InvalidToken, WaitpointClosed
from flowfabric.model.event import OperatorEventType
from flowfabric.model.handle import HandleKind
from flowfabric.model.journal import EntryKind
from flowfabric.model.results import Claimed
from flowfabric.model.state import BlockingReason, PublicState
from flowfabric.model.suspension import (
    AllOf,
    AlreadyMet,
    AnyOf,
    Count,
    CountKind,
    OperatorOnly,
    ReasonCode,
    ResumeCause,
    SignalAccepted,
    SignalDuplicate,
    SignalEffect,
    Single,
    Suspended,
    TimeoutOnly,
    Token,
    WaitpointDetails,
    WaitpointState,
)
from flowfabric.model.words import TimeoutBehavior
from tests.support.journal import entry
from tests.support.lab import Lab
from tests.support.living.kind import BYTES, HOUR_MS, SHORT_MS, Living, Notes, handle, noted

FORM: Final = '{"type":"object","required":["ok"],"properties":{"ok":{"type":"boolean"}}}'
GRACE_MS: Final = 2 * HOUR_MS  # other waits were signed with the retired key, too


class Wait(Living):
    """The base of kinds of waits: an execution that suspends, and signals by noted tokens."""

    async def suspend(self, lab: Lab, request: SuspendRequest, **fields: Any) -> Notes:
        """A new execution that waits; its id, the handle it had, and its waitpoints by key."""
        claimed = await self.start(lab, **fields)
        outcome = await lab.engine.suspend(claimed.handle, request)
        assert isinstance(outcome, Suspended)
        return {**self.addresses(claimed, outcome.waitpoints), "episode": outcome.suspension_id}

    @staticmethod
    def addresses(claimed: Claimed, waitpoints: tuple[WaitpointDetails, ...]) -> Notes:
        """The notes by which an execution is signalled, and its owner acts."""
        at = {each.waitpoint_key: [each.waitpoint_id, each.token.reveal()] for each in waitpoints}
        return {"id": claimed.execution_id, "handle": noted(claimed), "at": at}

    @staticmethod
    def signal(notes: Notes, key: str, name: str = "go", by: str = "alice", **rest: Any) -> Signal:
        """A signal with the token that was handed out."""
        waitpoint_id, token = notes["at"][key]
        return Signal(
            execution_id=notes["id"],
            waitpoint_id=waitpoint_id,
            token=Token(token),
            signal_name=name,
            source_type="user",
            source_identity=by,
            **rest,
        )

    async def send(self, lab: Lab, notes: Notes, *args: Any, **rest: Any) -> SignalEffect:
        """Deliver one that must be new; its effect."""
        answer = await lab.engine.deliver_signal(self.signal(notes, *args, **rest))
        assert isinstance(answer, SignalAccepted)
        return answer.effect

    async def resume(self, lab: Lab, notes: Notes) -> Claimed:
        """Go on with the attempt that was suspended, to its end."""
        assert await lab.state(notes["id"]) is PublicState.WAITING
        claimed = await self.claim(lab, "w2")
        assert claimed.execution_id == notes["id"]
        assert claimed.handle.kind is HandleKind.RESUMED
        assert claimed.attempt_id == handle(lab, notes["handle"]).attempt_id
        return claimed

    async def complete(self, lab: Lab, claimed: Claimed) -> None:
        """The end."""
        await lab.engine.complete(claimed.handle)
        assert await lab.state(claimed.execution_id) is PublicState.COMPLETED


class Suspension(Wait):
    """One open waitpoint: the token that was handed out resumes the work."""

    async def begin(self, lab: Lab) -> Notes:
        request = SuspendRequest(
            resume_condition=Single("a", "go"),
            waitpoints=(Fresh("a", FORM),),
            reason_code=ReasonCode.WAITING_FOR_APPROVAL,
            timeout_at=lab.now + HOUR_MS,
            timeout_behavior=TimeoutBehavior.ESCALATE,
            continuation_metadata_pointer="step-3",
        )
        return await self.suspend(lab, request, tags={"wa.it": "1"})

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        snapshot = await lab.describe(notes["id"])
        assert snapshot.blocking_reason is BlockingReason.WAITING_FOR_APPROVAL
        (wait,) = (await lab.engine.list_waits(lane_id=self.lane)).items
        assert (wait.at_timeout, wait.have, wait.need) == (TimeoutBehavior.ESCALATE, 0, 1)
        forged = Token(notes["at"]["a"][1][:-1] + "x")
        with pytest.raises(InvalidToken):
            await lab.engine.deliver_signal(
                Signal(
                    execution_id=notes["id"],
                    waitpoint_id=notes["at"]["a"][0],
                    token=forged,
                    signal_name="go",
                )
            )
        with pytest.raises(InvalidPayload, match="ok"):  # its payload does not fit the form
            await self.send(lab, notes, "a", payload=b"{}")
        effect = await self.send(lab, notes, "a", payload=b'{"ok": true}')
        assert effect is SignalEffect.RESUMED
        claimed = await self.resume(lab, notes)
        info = await lab.engine.resume_info(claimed.handle)
        assert info is not None
        assert (info.cause, info.continuation_metadata_pointer) == (ResumeCause.SIGNAL, "step-3")
        assert [each.payload for each in info.signals] == [b'{"ok": true}']
        await self.complete(lab, claimed)


class HalfMet(Wait):
    """One of two signals has come, and is known by its key; the other one meets the condition."""

    KEY: Final = "answer-1"

    async def begin(self, lab: Lab) -> Notes:
        condition = AllOf((Single("a", "go"), Single("b")))
        notes = await self.suspend(
            lab, SuspendRequest(resume_condition=condition, idempotency_key="s1")
        )
        first = self.signal(
            notes, "a", idempotency_key=self.KEY, payload=BYTES, payload_encoding="octets"
        )
        answer = await lab.engine.deliver_signal(first)
        assert isinstance(answer, SignalAccepted)
        return {**notes, "signal": answer.signal_id}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        again = self.signal(
            notes, "a", idempotency_key=self.KEY, payload=BYTES, payload_encoding="octets"
        )
        answer = await lab.engine.deliver_signal(again)
        assert answer == SignalDuplicate(notes["signal"], SignalEffect.APPENDED)
        condition = AllOf((Single("a", "go"), Single("b")))
        request = SuspendRequest(resume_condition=condition, idempotency_key="s1")
        repeated = await lab.engine.suspend(handle(lab, notes["handle"]), request)
        assert isinstance(repeated, Suspended)
        assert repeated.suspension_id == notes["episode"]
        assert {each.waitpoint_key: each.waitpoint_id for each in repeated.waitpoints} == {
            key: waitpoint_id for key, (waitpoint_id, _) in notes["at"].items()
        }
        assert await self.send(lab, notes, "b", "whatever") is SignalEffect.RESUMED
        claimed = await self.resume(lab, notes)
        heard = await lab.engine.observe_signals(claimed.handle)
        assert [(each.waitpoint_key, each.payload) for each in heard] == [("a", BYTES), ("b", None)]
        await self.complete(lab, claimed)


class Counted(Wait):
    """One of two different sources has signalled; the same one again does not count."""

    async def begin(self, lab: Lab) -> Notes:
        condition = Count(2, CountKind.DISTINCT_SOURCES, ("a",), "go")
        notes = await self.suspend(lab, SuspendRequest(resume_condition=condition))
        assert await self.send(lab, notes, "a", by="alice") is SignalEffect.APPENDED
        return notes

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        await self.send(lab, notes, "a", by="alice")
        assert await lab.state(notes["id"]) is PublicState.SUSPENDED
        assert await self.send(lab, notes, "a", by="bob") is SignalEffect.RESUMED
        await self.complete(lab, await self.resume(lab, notes))


class Early(Wait):
    """Waitpoints handed out before the suspension: one was met at once, one has a signal that no
    suspension has weighed yet, one has none."""

    async def begin(self, lab: Lab) -> Notes:
        claimed = await self.start(lab)
        details = [
            await lab.engine.create_waitpoint(
                claimed.handle, waitpoint_key=key, expires_in_ms=HOUR_MS
            )
            for key in ("met", "signalled", "silent")
        ]
        notes = self.addresses(claimed, tuple(details))
        for key in ("met", "signalled"):
            effect = await self.send(lab, notes, key, payload=b"1", payload_encoding="json")
            assert effect is SignalEffect.BUFFERED
        assert isinstance(await self.wait_for(lab, notes, "met"), AlreadyMet)
        return notes

    async def wait_for(self, lab: Lab, notes: Notes, key: str) -> Suspended | AlreadyMet:
        """Suspend on a waitpoint that exists, under a key of its own."""
        request = SuspendRequest(
            resume_condition=Single(key, "go"),
            waitpoints=(UsePending(notes["at"][key][0], key),),
            idempotency_key=f"wait-{key}",
        )
        return await lab.engine.suspend(handle(lab, notes["handle"]), request)

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        pending = (await lab.engine.list_pending_waitpoints(execution_id=notes["id"])).items
        assert {each.waitpoint_key for each in pending} == {"signalled", "silent"}
        for key in ("met", "signalled"):
            met = await self.wait_for(lab, notes, key)
            assert isinstance(met, AlreadyMet)
            assert [each.payload for each in met.signals] == [b"1"]
        assert isinstance(await self.wait_for(lab, notes, "silent"), Suspended)
        assert await self.send(lab, notes, "silent") is SignalEffect.RESUMED
        await self.complete(lab, await self.resume(lab, notes))


class Pending(Wait):
    """A waitpoint that nothing waits on has lapsed unnoticed: its signal comes too late."""

    async def begin(self, lab: Lab) -> Notes:
        claimed = await self.start(lab)
        details = await lab.engine.create_waitpoint(
            claimed.handle, waitpoint_key="a", expires_in_ms=SHORT_MS
        )
        return self.addresses(claimed, (details,))

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        await lab.engine.tick()
        row = await lab.engine.find_waitpoint(execution_id=notes["id"], waitpoint_key="a")
        assert row is not None
        assert row.state is WaitpointState.CLOSED
        with pytest.raises(WaitpointClosed):
            await self.send(lab, notes, "a")
        await lab.engine.complete(handle(lab, notes["handle"]))
        assert await lab.state(notes["id"]) is PublicState.COMPLETED


class TimedWait(Wait):
    """A wait that its timeout ends, and one that only an operator does."""

    async def begin(self, lab: Lab) -> Notes:
        timeout_at = lab.now + HOUR_MS
        timed = await self.suspend(
            lab,
            SuspendRequest(
                resume_condition=TimeoutOnly(),
                waitpoints=(Fresh("a"),),
                timeout_at=timeout_at,
                timeout_behavior=TimeoutBehavior.AUTO_RESUME,
            ),
        )
        stays = await self.suspend(
            lab,
            SuspendRequest(
                resume_condition=OperatorOnly(),
                waitpoints=(Fresh("a"),),
                reason_code=ReasonCode.MANUAL_PAUSE,
            ),
        )
        return {"timed": timed, "stays": stays, "at": timeout_at}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        timed, stays = notes["timed"], notes["stays"]
        lab.clock.set(notes["at"] - 1)
        await lab.engine.tick()
        assert await lab.state(timed["id"]) is PublicState.SUSPENDED
        await lab.after(1)
        claimed = await self.resume(lab, timed)
        info = await lab.engine.resume_info(claimed.handle)
        assert info is not None
        assert info.cause is ResumeCause.TIMEOUT
        await self.complete(lab, claimed)
        await self.send(lab, stays, "a")
        assert await lab.state(stays["id"]) is PublicState.SUSPENDED
        await lab.engine.resume_execution(execution_id=stays["id"], actor="olga")
        (event,) = await lab.operator_events(stays["id"])
        assert (event.event_type, event.actor) == (OperatorEventType.RESUMED, "olga")
        await self.complete(lab, await self.resume(lab, stays))


class ResumedWait(Wait):
    """The signal has come and no worker has yet: the one that does hears it."""

    async def begin(self, lab: Lab) -> Notes:
        notes = await self.suspend(lab, SuspendRequest(resume_condition=Single("a")))
        effect = await self.send(lab, notes, "a", payload=BYTES, payload_encoding="octets")
        assert effect is SignalEffect.RESUMED
        return notes

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        claimed = await self.resume(lab, notes)
        (heard,) = await lab.engine.observe_signals(claimed.handle)
        assert (heard.payload, heard.payload_encoding) == (BYTES, "octets")
        await self.complete(lab, claimed)


class RotatedKey(Wait):
    """Two waits, signed with two keys: the retired one still verifies, until its grace is over."""

    async def begin(self, lab: Lab) -> Notes:
        request = SuspendRequest(resume_condition=Single("a"))
        old = await self.suspend(lab, request)
        late = await self.suspend(lab, request)
        await lab.engine.rotate_waitpoint_hmac_secret_all(
            new_kid="k2", new_secret_hex="5eed" * 16, grace_ms=GRACE_MS, actor="olga"
        )
        return {"old": old, "late": late, "new": await self.suspend(lab, request)}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        keys = await lab.engine.list_waitpoint_hmac_kids()
        assert {each.kid: each.is_current for each in keys} == {"k1": False, "k2": True}
        for name in ("old", "new"):
            assert await self.send(lab, notes[name], "a") is SignalEffect.RESUMED
            await self.complete(lab, await self.resume(lab, notes[name]))
        await lab.after(GRACE_MS)
        with pytest.raises(InvalidToken):
            await self.send(lab, notes["late"], "a")
        token = await lab.engine.read_waitpoint_token(
            execution_id=notes["late"]["id"], waitpoint_id=notes["late"]["at"]["a"][0]
        )
        assert token is not None
        notes["late"]["at"]["a"][1] = token.reveal()
        assert await self.send(lab, notes["late"], "a") is SignalEffect.RESUMED
        await self.complete(lab, await self.resume(lab, notes["late"]))


class Watching(Wait):
    """One waits for the end of another, at a waitpoint that stays pending."""

    async def begin(self, lab: Lab) -> Notes:
        other = await self.start(lab)
        claimed = await self.start(lab, kind="watcher")
        watch = await lab.engine.watch_executions(
            claimed.handle, execution_ids=[other.execution_id]
        )
        assert watch.waitpoint_id is not None
        place = await lab.engine.create_waitpoint(
            claimed.handle,
            waitpoint_key="reply",
            expires_in_ms=HOUR_MS,
            entries=(entry(0, "waitpoint:reply", None, kind=EntryKind.WAITPOINT),),
        )
        request = SuspendRequest(
            resume_condition=AnyOf((Single("__ended"), Single("reply"))),
            waitpoints=(
                UsePending(watch.waitpoint_id, "__ended"),
                StayPending(place.waitpoint_id, "reply"),
            ),
        )
        assert isinstance(await lab.engine.suspend(claimed.handle, request), Suspended)
        return {**self.addresses(claimed, (place,)), "other": noted(other)}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        await lab.engine.complete(handle(lab, notes["other"]))
        await lab.direct.move_due()
        claimed = await self.resume(lab, notes)
        await self.send(lab, notes, "reply")  # its own place is open as before
        place = notes["at"]["reply"][0]
        found = await lab.engine.read_signals(claimed.handle, waitpoint_ids=[place])
        assert [each.signal_name for each in found[place]] == ["go"]
        await self.complete(lab, claimed)
