"""Deliver: what a signal does, once, whoever repeats it and whenever it comes."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric import limits
from flowfabric.api.waits import Fresh, UsePending
from flowfabric.errors import (
    InvalidInput,
    InvalidPayload,
    InvalidToken,
    NotFound,
    SignalLimitExceeded,
    TargetNotSignalable,
    WaitpointClosed,
)
from flowfabric.kernel.wait.condition import keys_of
from flowfabric.model.policy import ExecutionPolicy
from flowfabric.model.state import PublicState
from flowfabric.model.suspension import (
    AllOf,
    Count,
    CountKind,
    SignalAccepted,
    SignalDuplicate,
    SignalEffect,
    Single,
    WaitpointState,
)
from tests.support.lab import LANE, Lab
from tests.support.waits import (
    CONDITIONS,
    early,
    episode,
    met_early,
    pending,
    signal_to,
    signals,
    suspended,
    told,
    waitpoints,
)

TWO = Count(2, CountKind.DISTINCT_SIGNALS, ("a",), "go")
FORM = '{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}'


# --- conditions --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CONDITIONS)
@told
async def test_the_last_signal_a_condition_needs_resumes(lab: Lab, kind: str) -> None:
    """One transition, by the signal that completes it."""
    condition, sent = CONDITIONS[kind]
    waiting = await suspended(lab, condition)
    effects = [await waiting.effect(name, by, key) for key, name, by in sent]
    assert effects == [SignalEffect.APPENDED] * (len(sent) - 1) + [SignalEffect.RESUMED]
    assert await lab.state(waiting.execution_id) is PublicState.WAITING
    again = await lab.claim()
    seen = await lab.engine.observe_signals(again.handle)
    assert [(each.waitpoint_key, each.signal_name, each.source_identity) for each in seen] == sent


@pytest.mark.parametrize("kind", CONDITIONS)
@told
async def test_early_signals_count_like_late_ones(lab: Lab, kind: str) -> None:
    """Every kind of condition replays what was buffered."""
    condition, sent = CONDITIONS[kind]
    for number in range(len(sent) + 1):  # so many come early, the rest late
        claimed = await lab.started()
        keys = sorted({"a", *(key for key, _, _ in sent)} | {"b", "c"})
        made = {key: await pending(lab, claimed, key) for key in keys}
        for key, name, by in sent[:number]:
            await early(lab, claimed, made[key], name, by)
        used = tuple(UsePending(made[key].waitpoint_id, key) for key in keys_of(condition))
        if number == len(sent):
            met = await met_early(lab, claimed, resume_condition=condition, waitpoints=used)
            seen = [(each.waitpoint_key, each.signal_name) for each in met.signals]
            assert sorted(seen) == sorted((key, name) for key, name, _ in sent)
            continue
        waiting = await suspended(lab, condition, claimed, waitpoints=used)
        assert len((await episode(lab, claimed.execution_id)).progress) == number
        effects = [await waiting.effect(name, by, key) for key, name, by in sent[number:]]
        assert effects[-1] is SignalEffect.RESUMED
        assert set(effects[:-1]) <= {SignalEffect.APPENDED}
        await lab.engine.complete((await lab.claim()).handle)


@told
async def test_what_does_not_count_is_stored_and_said(lab: Lab) -> None:
    """Effects; ignored signals are stored, counted and published too."""
    condition = Count(2, CountKind.DISTINCT_SOURCES, ("a",), "go")
    waiting = await suspended(lab, condition)
    assert await waiting.effect("go", "alice") is SignalEffect.APPENDED
    assert await waiting.effect("go", "alice") is SignalEffect.DUPLICATE
    assert await waiting.effect("no", "bob") is SignalEffect.MATCHER_FAILED
    (row,) = await waitpoints(lab, waiting.execution_id)
    assert (row.signal_count, row.matched_signal_count) == (3, 2)
    assert row.last_signal_at == lab.now
    assert (await lab.record(waiting.execution_id)).signal_count == 3
    published = [event.effect for event in (await lab.dump())["signal_events"]]
    assert published == [each.effect for each in await signals(lab, waiting.execution_id)]
    assert await waiting.effect("go", "bob") is SignalEffect.RESUMED


@told
async def test_a_source_is_the_pair_of_its_type_and_its_name(lab: Lab) -> None:
    waiting = await suspended(lab, Count(3, CountKind.DISTINCT_SOURCES, ("a",)))
    assert await waiting.effect(by="x", source_type="user") is SignalEffect.APPENDED
    assert await waiting.effect(by="x", source_type="robot") is SignalEffect.APPENDED
    assert await waiting.effect(by="x", source_type="user") is SignalEffect.DUPLICATE
    assert await waiting.effect(by="", source_type="userx") is SignalEffect.RESUMED


@told
async def test_the_same_signal_id_is_one_signal(lab: Lab) -> None:
    waiting = await suspended(lab, TWO)
    assert await waiting.effect(signal_id="s1") is SignalEffect.APPENDED
    assert await waiting.effect(signal_id="s1") is SignalEffect.DUPLICATE
    assert await waiting.effect(signal_id="s2") is SignalEffect.RESUMED


@told
async def test_two_quorums_do_not_fill_each_other(lab: Lab) -> None:
    """Each node counts for itself."""
    quorum = [Count(2, CountKind.DISTINCT_SOURCES, (key,)) for key in ("alpha", "beta")]
    waiting = await suspended(lab, AllOf(tuple(quorum)))
    assert await waiting.effect(by="x", at="alpha") is SignalEffect.APPENDED
    assert await waiting.effect(by="y", at="beta") is SignalEffect.APPENDED
    assert await waiting.effect(by="z", at="alpha") is SignalEffect.APPENDED
    assert await waiting.effect(by="y", at="beta") is SignalEffect.DUPLICATE
    assert await waiting.effect(by="z", at="beta") is SignalEffect.RESUMED


@told
async def test_depth_four_is_reachable(lab: Lab) -> None:
    """Accepted and satisfied, not only accepted."""
    deep = AllOf((AllOf((AllOf((Count(1, CountKind.DISTINCT_SIGNALS, ("a",)),)),)),))
    waiting = await suspended(lab, deep)
    assert await waiting.effect() is SignalEffect.RESUMED


# --- where a signal belongs --------------------------------------------------------------------


@told
async def test_an_old_token_never_resumes_a_later_suspension(lab: Lab) -> None:
    """Whatever ended the first one."""
    for end in ("signal", "operator", "timeout"):
        waiting = await suspended(lab, timeout_at=lab.now + 1000, timeout_behavior="auto_resume")
        if end == "signal":
            await waiting.send()
        elif end == "operator":
            await lab.engine.resume_execution(execution_id=waiting.execution_id)
        else:
            await lab.after(1000)
        async with lab.refuses(WaitpointClosed):
            await waiting.send()
        later = await suspended(lab, claimed=await lab.claim())
        async with lab.refuses(WaitpointClosed):
            await waiting.send()
        assert await lab.state(waiting.execution_id) is PublicState.SUSPENDED
        assert await later.effect() is SignalEffect.RESUMED
        await lab.engine.complete((await lab.claim()).handle)
        async with lab.refuses(TargetNotSignalable):
            await later.send()


@told
async def test_whichever_binding_fires_all_are_closed(lab: Lab) -> None:
    """The primary too."""
    any_one = Count(1, CountKind.DISTINCT_WAITPOINTS, ("a", "b", "c"))
    waiting = await suspended(lab, any_one)
    assert await waiting.effect(at="c") is SignalEffect.RESUMED
    rows = await waitpoints(lab, waiting.execution_id)
    assert {row.state for row in rows} == {WaitpointState.CLOSED}
    again = await suspended(lab, any_one, claimed=await lab.claim())
    for key in ("a", "b", "c"):
        async with lab.refuses(WaitpointClosed):
            await waiting.send(at=key)
    assert await again.effect(at="a") is SignalEffect.RESUMED


@told
async def test_a_pending_waitpoint_buffers_whatever_its_execution_does(lab: Lab) -> None:
    """It neither fails nor pollutes another suspension."""
    claimed = await lab.started()
    other = await pending(lab, claimed, "other")
    waiting = await suspended(lab, Single("a"), claimed)
    await early(lab, claimed, other)
    assert await lab.state(claimed.execution_id) is PublicState.SUSPENDED
    await waiting.send()
    await early(lab, claimed, other)
    again = await lab.claim()
    await early(lab, claimed, other)
    assert await lab.state(claimed.execution_id) is PublicState.ACTIVE
    met = await met_early(
        lab,
        again,
        resume_condition=Count(3, CountKind.DISTINCT_SIGNALS, ("other",)),
        waitpoints=(UsePending(other.waitpoint_id, "other"),),
    )
    assert len(met.signals) == 3


@told
async def test_a_signal_resume_clears_the_timeout(lab: Lab) -> None:
    """The timer of a dead suspension does no harm."""
    waiting = await suspended(lab, timeout_at=lab.now + 1000)
    await waiting.send()
    again = await lab.claim()
    await lab.after(1000)
    assert await lab.state(waiting.execution_id) is PublicState.ACTIVE
    await lab.engine.complete(again.handle)
    await lab.after(1000)
    assert await lab.state(waiting.execution_id) is PublicState.COMPLETED


# --- repeated --------------------------------------------------------------------------------


@told
async def test_a_repeated_key_answers_what_the_first_one_did(lab: Lab) -> None:
    """Also after the resume, at the cap, and after the end."""
    rules = ExecutionPolicy(max_signals_per_execution=2)
    waiting = await suspended(lab, TWO, created={"policy": rules})
    first = await waiting.send(idempotency_key="k1")
    assert first == SignalAccepted(first.signal_id, SignalEffect.APPENDED)
    twice = SignalDuplicate(first.signal_id, SignalEffect.APPENDED)
    async with lab.unchanged():
        assert await waiting.send(idempotency_key="k1", payload=b"other") == twice
    last = await waiting.send(idempotency_key="k2")
    assert last.effect is SignalEffect.RESUMED
    once = SignalDuplicate(last.signal_id, SignalEffect.RESUMED)
    async with lab.unchanged():
        assert await waiting.send(idempotency_key="k2") == once
    await lab.engine.complete((await lab.claim()).handle)
    async with lab.unchanged():
        assert await waiting.send(idempotency_key="k2") == once
        with pytest.raises(InvalidToken):
            await waiting.send(idempotency_key="k2", token="k1:" + "0" * 64)
    async with lab.refuses(TargetNotSignalable):
        await waiting.send(idempotency_key="k3")


@told
async def test_a_key_belongs_to_its_waitpoint_and_is_forgotten_in_time(lab: Lab) -> None:
    """The same key on two waitpoints is two deliveries; a ttl of zero means none."""
    both = AllOf((Count(9, CountKind.DISTINCT_SIGNALS, ("a",)), Single("b", "never")))
    waiting = await suspended(lab, both)
    for key in ("a", "b"):
        assert isinstance(await waiting.send(at=key, idempotency_key="k"), SignalAccepted)
        assert isinstance(await waiting.send(at=key, idempotency_key="k"), SignalDuplicate)
    assert isinstance(await waiting.send(idempotency_key="k", dedup_ttl_ms=0), SignalAccepted)
    assert isinstance(await waiting.send(idempotency_key="z", dedup_ttl_ms=0), SignalAccepted)
    assert isinstance(await waiting.send(idempotency_key="z", dedup_ttl_ms=10), SignalAccepted)
    lab.clock.advance(9)
    assert isinstance(await waiting.send(idempotency_key="z", dedup_ttl_ms=10), SignalDuplicate)
    lab.clock.advance(1)
    assert isinstance(await waiting.send(idempotency_key="z", dedup_ttl_ms=10), SignalAccepted)
    assert isinstance(await waiting.send(idempotency_key=""), SignalAccepted)


@told
async def test_a_repeated_early_signal_counts_once(lab: Lab) -> None:
    claimed = await lab.started()
    details = await pending(lab, claimed)
    signal = signal_to(claimed.execution_id, details, idempotency_key="k")
    first = await lab.engine.deliver_signal(signal)
    again = await lab.engine.deliver_signal(signal)
    assert again == SignalDuplicate(first.signal_id, SignalEffect.BUFFERED)  # type: ignore[union-attr]
    waiting = await suspended(
        lab, TWO, claimed, waitpoints=(UsePending(details.waitpoint_id, "a"),)
    )
    assert isinstance(await waiting.send(idempotency_key="k"), SignalDuplicate)
    assert await waiting.effect() is SignalEffect.RESUMED


# --- limits and content ----------------------------------------------------------------------


@told
async def test_too_many_signals_are_refused_and_change_nothing(lab: Lab) -> None:
    """The policy's cap holds, for buffered ones too; zero means none."""
    rules = ExecutionPolicy(max_signals_per_execution=2)
    claimed = await lab.started(policy=rules)
    details = await pending(lab, claimed)
    for _ in range(2):
        await early(lab, claimed, details)
    async with lab.refuses(SignalLimitExceeded, "2"):
        await lab.engine.deliver_signal(signal_to(claimed.execution_id, details))
    waiting = await suspended(
        lab,
        Count(3, CountKind.DISTINCT_SIGNALS, ("a",)),
        claimed,
        waitpoints=(UsePending(details.waitpoint_id, "a"),),
    )
    async with lab.refuses(SignalLimitExceeded):
        await waiting.send()
    free = await suspended(lab, created={"policy": ExecutionPolicy(max_signals_per_execution=0)})
    for _ in range(5):
        assert await free.effect("no") is SignalEffect.MATCHER_FAILED


@told
async def test_the_payloads_of_all_signals_together_are_bounded(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one execution is sent in its life is capped, whatever each signal holds."""
    monkeypatch.setattr(limits, "SIGNAL_BYTES_TOTAL", 10)
    waiting = await suspended(lab, Count(9, CountKind.DISTINCT_SIGNALS, ("a",)))
    await waiting.send(payload=b"1234567")
    async with lab.refuses(SignalLimitExceeded, "payload"):
        await waiting.send(payload=b"1234")
    await waiting.send(payload=b"123")
    await waiting.send()  # what carries nothing still fits
    async with lab.refuses(SignalLimitExceeded, "payload"):
        await waiting.send(payload=b"1")


@told
async def test_payload_bytes_come_back_as_they_were(lab: Lab) -> None:
    """Any bytes, exactly; absent stays absent, empty stays empty."""
    sent = [None, b"", b"\x00\xff\xfe" * 100, b"x" * 65_536, "grün".encode()]
    waiting = await suspended(lab, Count(len(sent), CountKind.DISTINCT_SIGNALS, ("a",)))
    for payload in sent:
        await waiting.send(payload=payload, payload_encoding="raw", correlation_id="c")
    seen = await lab.engine.observe_signals((await lab.claim()).handle)
    assert [each.payload for each in seen] == sent
    assert {(each.payload_encoding, each.correlation_id) for each in seen} == {("raw", "c")}


@told
async def test_a_payload_of_the_wrong_shape_is_refused_and_the_wait_goes_on(lab: Lab) -> None:
    """A waiter's declared type holds at delivery, for buffered signals too."""
    claimed = await lab.started()
    details = await pending(lab, claimed, payload_type=FORM)
    for wrong in (None, b"", b"nonsense", b"{}", b'{"ok":1}', b"[]"):
        async with lab.refuses(InvalidPayload, "payload"):
            await lab.engine.deliver_signal(
                signal_to(claimed.execution_id, details, payload=wrong, idempotency_key="k")
            )
    waiting = await suspended(
        lab, Single("b", "go"), claimed, waitpoints=(Fresh("b", FORM),), idempotency_key="s"
    )
    async with lab.refuses(InvalidPayload, "payload.ok"):
        await waiting.send(payload=b'{"ok":"yes"}', idempotency_key="k")
    good = await waiting.send(payload=b'{"ok":true}', idempotency_key="k")
    assert good.effect is SignalEffect.RESUMED


@told
async def test_a_signal_keeps_its_times_and_its_words(lab: Lab) -> None:
    waiting = await suspended(lab)
    await waiting.send(created_at=12, signal_category="cat", correlation_id="cor")
    (row,) = await signals(lab, waiting.execution_id)
    assert (row.created_at, row.accepted_at) == (12, lab.now)
    assert (row.signal_category, row.correlation_id) == ("cat", "cor")


# --- many at once ------------------------------------------------------------------------------


@told
async def test_bulk_delivery_answers_each_signal(lab: Lab) -> None:
    """`deliver_signals`: outcomes and errors in order; one bad signal harms no other."""
    waiting = [await suspended(lab, TWO) for _ in range(3)]
    first = waiting[0]
    batch = [
        *(each.signal() for each in waiting),
        first.signal(token="k1:" + "0" * 64),
        first.signal(idempotency_key="k"),
        first.signal(idempotency_key="k"),
        first.signal("late"),
        waiting[1].signal(payload=b"x" * 65_537),
        waiting[1].signal("__x"),
    ]
    answers = await lab.engine.deliver_signals(batch)
    kinds = [getattr(each, "effect", type(each)) for each in answers]
    assert kinds[:5] == [
        *[SignalEffect.APPENDED] * 3,
        InvalidToken,
        SignalEffect.RESUMED,
    ]
    assert isinstance(answers[5], SignalDuplicate)
    assert [type(each).__name__ for each in answers[6:]] == [
        "WaitpointClosed",
        "PayloadTooLarge",
        "InvalidInput",
    ]
    assert await lab.engine.deliver_signals([]) == []


# --- approvals -------------------------------------------------------------------------------


@told
async def test_an_approval_needs_no_token_and_keeps_who_and_why(lab: Lab) -> None:
    """The actor and the comment are stored; two operators are two sources."""
    quorum = Count(2, CountKind.DISTINCT_SOURCES, ("a",), "approved")
    waiting = await suspended(lab, quorum)
    where: dict[str, Any] = {
        "execution_id": waiting.execution_id,
        "waitpoint_id": waiting.at["a"].waitpoint_id,
        "lane_id": LANE,
    }
    approve = lab.engine.deliver_approval_signal

    async def by(actor: str, suffix: str, name: str = "approved") -> object:
        return await approve(
            **where,
            signal_name=name,
            idempotency_suffix=suffix,
            actor=actor,
            comment=b"fine",
        )

    no = await by("ann", "1", "rejected")
    assert no.effect is SignalEffect.MATCHER_FAILED  # type: ignore[attr-defined]
    first = await by("ann", "1")
    assert first.effect is SignalEffect.APPENDED  # type: ignore[attr-defined]
    assert isinstance(await by("ann", "1"), SignalDuplicate)
    again = await by("ann", "2")
    assert again.effect is SignalEffect.DUPLICATE  # type: ignore[attr-defined]
    last = await by("bob", "3")
    assert last.effect is SignalEffect.RESUMED  # type: ignore[attr-defined]
    seen = await lab.engine.observe_signals((await lab.claim()).handle)
    assert [each.source_identity for each in seen] == ["ann", "bob"]
    assert {(each.source_type, each.signal_category) for each in seen} == {("operator", "approval")}
    assert {each.payload for each in seen} == {b"fine"}
    info = await episode(lab, waiting.execution_id)
    assert info.actor == "operator:bob"


@told
async def test_an_approval_is_refused_on_another_lane_or_an_unknown_waitpoint(lab: Lab) -> None:
    waiting, other = await suspended(lab), await suspended(lab)
    good: dict[str, Any] = {
        "execution_id": waiting.execution_id,
        "waitpoint_id": waiting.at["a"].waitpoint_id,
        "signal_name": "go",
        "idempotency_suffix": "1",
    }
    approve = lab.engine.deliver_approval_signal
    async with lab.refuses(InvalidInput, "lane_mismatch"):
        await approve(**{**good, "lane_id": "elsewhere"})
    for wrong in ("0" * 36, other.at["a"].waitpoint_id):
        async with lab.refuses(NotFound, "waitpoint"):
            await approve(**{**good, "waitpoint_id": wrong})
    gone = waiting.execution_id[:-12] + "0" * 12
    async with lab.refuses(NotFound):
        await approve(**{**good, "execution_id": gone, "lane_id": LANE})
    for field, value in (
        ("signal_name", "__operator_only__"),
        ("signal_name", ""),
        ("idempotency_suffix", ""),
        ("waitpoint_id", 5),
        ("actor", ""),
        ("comment", "text"),
        ("signal_dedup_ttl_ms", -1),
    ):
        async with lab.refuses(InvalidInput, field):
            await approve(**{**good, field: value})
    await approve(**good)
    async with lab.refuses(WaitpointClosed):
        await approve(**{**good, "idempotency_suffix": "2"})
