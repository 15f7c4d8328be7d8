"""Tokens and signing keys through a whole life: refused alike when wrong, shown to nobody."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from flowfabric.api.keys import RotateWaitpointHmacSecretAll, SeedWaitpointHmacSecret
from flowfabric.api.waits import Fresh, Signal, SuspendRequest, UsePending
from flowfabric.config import EngineConfig
from flowfabric.engine.operations.signals import delivery
from flowfabric.errors import FlowFabricError, InvalidInput, InvalidToken, WaitpointClosed
from flowfabric.kernel.wait.signal import DeliverSignal
from flowfabric.kernel.wait.suspend import SuspendExecution
from flowfabric.model.record import to_json
from flowfabric.model.results import Claimed
from flowfabric.model.suspension import (
    Count,
    CountKind,
    SignalAccepted,
    SignalDuplicate,
    SignalEffect,
    Single,
    Suspended,
    Token,
    WaitpointDetails,
)
from tests.support.lab import Lab, scenario

SECRET = "c0ffee" * 10 + "abcd"
NEXT_SECRET = "decade" * 10 + "1234"
ABSENT = "{fp:138}:01890000-0000-7000-8000-000000000001"


async def waiting(lab: Lab, key: str = "deploy", **fields: Any) -> tuple[Claimed, WaitpointDetails]:
    """A suspended execution and its one waitpoint."""
    claimed = await lab.started()
    return claimed, await suspended(lab, claimed, key, **fields)


async def suspended(
    lab: Lab, claimed: Claimed, key: str = "deploy", **fields: Any
) -> WaitpointDetails:
    request = SuspendRequest(resume_condition=Single(key, "ok"), **fields)
    begun = await lab.engine.suspend(claimed.handle, request)
    assert isinstance(begun, Suspended)
    return begun.waitpoints[0]


def signal_to(claimed: Claimed, waitpoint: WaitpointDetails, **fields: Any) -> Signal:
    usual = {
        "execution_id": claimed.execution_id,
        "waitpoint_id": waitpoint.waitpoint_id,
        "token": waitpoint.token,
        "signal_name": "ok",
        "source_type": "user",
        "source_identity": "ann",
    }
    return Signal(**{**usual, **fields})


class Work:
    """Counts what authentication computes."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.macs = self.comparisons = 0
        digest, compare = hmac.digest, hmac.compare_digest

        def counted_digest(*values: Any) -> Any:
            self.macs += 1
            return digest(*values)

        def counted_compare(left: Any, right: Any) -> bool:
            self.comparisons += 1
            return compare(left, right)

        patch.setattr("flowfabric.kernel.wait.token.hmac.digest", counted_digest)
        patch.setattr("flowfabric.kernel.wait.token.hmac.compare_digest", counted_compare)

    def take(self) -> tuple[int, int]:
        seen = self.macs, self.comparisons
        self.macs = self.comparisons = 0
        return seen


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(monkeypatch)


# --- every wrong token is one and the same refusal ---------------------------------------------


async def wrong_signals(lab: Lab) -> dict[str, Signal]:
    """Each way to be wrong, where something that would be right exists beside it."""
    mine, waitpoint = await waiting(lab)
    other, others = await waiting(lab)
    ended, late = await waiting(lab)
    await lab.cancel(ended.execution_id)
    again, old = await waiting(lab)
    await lab.engine.deliver_signal(signal_to(again, old))
    resumed = await lab.claim()
    assert resumed.execution_id == again.execution_id
    lab.clock.advance(1)
    new = await suspended(lab, resumed)
    text = waitpoint.token.reveal()
    return {
        "forged": signal_to(mine, waitpoint, token="k1:" + "0" * 64),
        "truncated": signal_to(mine, waitpoint, token=text[:-1]),
        "truncated to the kid": signal_to(mine, waitpoint, token="k1:"),
        "upper case": signal_to(mine, waitpoint, token=text[:3] + text[3:].upper()),
        "unknown kid": signal_to(mine, waitpoint, token="k7:" + text[3:]),
        "no kid": signal_to(mine, waitpoint, token=text[3:]),
        "another execution's": signal_to(mine, waitpoint, token=others.token),
        "another execution's, and its id": signal_to(other, waitpoint),
        "right execution, another's waitpoint": signal_to(mine, others),
        "unknown waitpoint": signal_to(mine, waitpoint, waitpoint_id="never-made"),
        "unknown execution": signal_to(mine, waitpoint, execution_id=ABSENT),
        "both unknown": signal_to(mine, waitpoint, execution_id=ABSENT, waitpoint_id="never-made"),
        "of an earlier suspension": signal_to(again, new, token=old.token),
        "an ended execution, forged": signal_to(ended, late, token="k1:" + "0" * 64),
        "an ended execution, another's": signal_to(ended, late, token=text),
        "a closed waitpoint, forged": signal_to(again, old, token="k1:" + "0" * 64),
    }


@scenario
async def test_every_wrong_token_gets_one_answer_for_one_price(lab: Lab, work: Work) -> None:
    wrong = await wrong_signals(lab)
    told = set()
    for what, signal in wrong.items():
        work.take()
        async with lab.unchanged():
            with pytest.raises(InvalidToken) as refusal:
                await lab.engine.deliver_signal(signal)
        # `dump` derives nothing, so this is the delivery alone.
        assert work.take() == (1, 1), what
        error = refusal.value
        told.add(f"{error} | {error!r} | {sorted(error.as_dict().items(), key=str)}")
    assert len(told) == 1, told


@scenario
async def test_many_at_once_are_refused_as_each_alone(lab: Lab, work: Work) -> None:
    """One good one among the wrong ones is not disturbed, and they learn nothing from it."""
    wrong = list((await wrong_signals(lab)).values())
    claimed, waitpoint = await waiting(lab)
    work.take()
    answers = await lab.engine.deliver_signals([*wrong, signal_to(claimed, waitpoint)])
    assert work.take() == (len(wrong) + 1, len(wrong) + 1)
    *refused, good = answers
    assert {type(each) for each in refused} == {InvalidToken}
    assert len({str(each) for each in refused}) == 1
    assert isinstance(good, SignalAccepted)
    assert good.effect is SignalEffect.RESUMED


@scenario
async def test_authentication_comes_before_everything_else(lab: Lab) -> None:
    """A stranger learns neither a key that was used, nor a state, nor what payload is wanted."""
    claimed = await lab.started()
    request = SuspendRequest(
        resume_condition=Count(2, CountKind.DISTINCT_SIGNALS, ("deploy",)),
        waitpoints=(Fresh("deploy", '{"type": "integer"}'),),
    )
    begun = await lab.engine.suspend(claimed.handle, request)
    waitpoint = begun.waitpoints[0]
    accepted = signal_to(claimed, waitpoint, idempotency_key="once", payload=b"1")
    await lab.engine.deliver_signal(accepted)
    forged = "k1:" + "1" * 64
    for fields in (
        {"idempotency_key": "once", "payload": b"1"},
        {"payload": b'"no integer"'},
        {"signal_id": "mine"},
    ):
        async with lab.refuses(InvalidToken):
            await lab.engine.deliver_signal(signal_to(claimed, waitpoint, token=forged, **fields))
    repeated = await lab.engine.deliver_signal(accepted)
    assert isinstance(repeated, SignalDuplicate)


@scenario
async def test_a_token_used_again_does_nothing_again(lab: Lab) -> None:
    claimed, waitpoint = await waiting(lab)
    once = signal_to(claimed, waitpoint, idempotency_key="once")
    first = await lab.engine.deliver_signal(once)
    assert isinstance(first, SignalAccepted)
    async with lab.unchanged():
        again = await lab.engine.deliver_signal(once)
    assert again == SignalDuplicate(first.signal_id, SignalEffect.RESUMED)
    async with lab.refuses(WaitpointClosed):
        await lab.engine.deliver_signal(signal_to(claimed, waitpoint))
    resumed = await lab.claim()
    await suspended(lab, resumed)
    async with lab.refuses(WaitpointClosed):  # the next wait has another address
        await lab.engine.deliver_signal(signal_to(claimed, waitpoint))


@scenario
async def test_keys_are_rotated_under_tokens_in_flight(lab: Lab, work: Work) -> None:
    claimed, waitpoint = await waiting(lab)
    other, others = await waiting(lab)
    third, thirds = await waiting(lab)
    await lab.engine.rotate_waitpoint_hmac_secret_all(
        new_kid="k2", new_secret_hex=NEXT_SECRET, grace_ms=1_000
    )
    fresh, its = await waiting(lab)
    assert its.token.reveal().startswith("k2:")
    lab.clock.advance(999)
    accepted = await lab.engine.deliver_signal(signal_to(claimed, waitpoint))
    assert isinstance(accepted, SignalAccepted)
    lab.clock.advance(1)
    work.take()
    async with lab.refuses(InvalidToken):  # its key has expired
        await lab.engine.deliver_signal(signal_to(other, others))
    assert work.take() == (1, 1)
    # A token that is handed out again is made with the new key; it opens this waitpoint alone.
    again = await lab.engine.read_waitpoint_token(
        execution_id=other.execution_id, waitpoint_id=others.waitpoint_id
    )
    assert again is not None
    async with lab.refuses(InvalidToken):
        await lab.engine.deliver_signal(signal_to(fresh, its, token=again))
    accepted = await lab.engine.deliver_signal(signal_to(other, others, token=again))
    assert isinstance(accepted, SignalAccepted)
    assert isinstance(await lab.engine.deliver_signal(signal_to(fresh, its)), SignalAccepted)
    # The operator gets through as well to one whose key is gone.
    approved = await lab.engine.deliver_approval_signal(
        execution_id=third.execution_id,
        waitpoint_id=thirds.waitpoint_id,
        signal_name="ok",
        idempotency_suffix="1",
    )
    assert isinstance(approved, SignalAccepted)


@scenario
async def test_a_repeated_suspend_gives_tokens_only_to_its_own_caller(lab: Lab) -> None:
    claimed, waitpoint = await waiting(lab, idempotency_key="again")
    request = SuspendRequest(resume_condition=Single("deploy", "ok"), idempotency_key="again")
    repeated = await lab.engine.suspend(claimed.handle, request)
    assert isinstance(repeated, Suspended)
    assert repeated.waitpoints == (waitpoint,)
    stranger = msgspec.structs.replace(claimed.handle, lease_id="9" * 36)
    with pytest.raises(FlowFabricError) as refusal:
        await lab.engine.suspend(stranger, request)
    assert waitpoint.token.reveal()[3:] not in f"{refusal.value!r} {refusal.value.as_dict()}"


# --- nobody is shown a secret ------------------------------------------------------------------


def texts_in(value: Any, seen: set[int] | None = None) -> Iterator[str]:
    """Every text reachable in an object, through its fields, items and causes."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, bytes):
        yield value.decode("latin-1")
    elif isinstance(value, str):
        yield value
    else:
        yield repr(value)
        for part in parts_of(value):
            yield from texts_in(part, seen)


def parts_of(value: Any) -> list[Any]:
    match value:
        case dict():
            return [*value, *value.values()]
        case list() | tuple() | set() | frozenset():
            return list(value)
        case msgspec.Struct():
            return [getattr(value, name) for name in value.__struct_fields__]
        case BaseException():
            return [str(value), value.args, vars(value), value.__cause__, value.__context__]
        case _:
            return []


async def whole_life(lab: Lab) -> tuple[list[str], list[Any]]:
    """Secrets that were in use, and every public answer on the way."""
    engine = lab.engine
    public: list[Any] = []
    claimed = await lab.started(tags={"a.b": "c"})
    pending = await engine.create_waitpoint(
        claimed.handle, waitpoint_key="cb", expires_in_ms=60_000
    )
    public.append(await engine.list_pending_waitpoints(execution_id=claimed.execution_id))
    await engine.deliver_signal(signal_to(claimed, pending, signal_name="early"))
    request = SuspendRequest(
        resume_condition=Count(2, CountKind.DISTINCT_SIGNALS, ("cb", "deploy")),
        waitpoints=(Fresh("deploy"), UsePending(pending.waitpoint_id, "cb")),
        idempotency_key="s",
    )
    begun = await engine.suspend(claimed.handle, request)
    assert isinstance(begun, Suspended)
    waitpoint = next(each for each in begun.waitpoints if each.waitpoint_key == "deploy")
    public += [
        await engine.list_pending_waitpoints(execution_id=claimed.execution_id),
        (await engine.list_suspended()).items,
        (await engine.list_suspensions(execution_id=claimed.execution_id)).items,
        await engine.describe_execution(execution_id=claimed.execution_id),
        await engine.explain(execution_id=claimed.execution_id),
        await engine.list_executions(),
        await engine.doctor(),
    ]
    wrong = [
        signal_to(claimed, waitpoint, token=waitpoint.token.reveal()[:-1]),
        signal_to(claimed, waitpoint, token=pending.token),
        signal_to(claimed, waitpoint, waitpoint_id="other"),
        signal_to(claimed, waitpoint, signal_name=""),
        signal_to(claimed, waitpoint, signal_name="__reserved"),
        signal_to(claimed, waitpoint, token="x" * 5_000),
    ]
    public += await engine.deliver_signals(wrong)
    for signal in wrong:
        with pytest.raises(FlowFabricError) as refusal:
            await engine.deliver_signal(signal)
        public.append(refusal.value)
    public.append(await engine.deliver_signal(signal_to(claimed, waitpoint)))
    with pytest.raises(FlowFabricError) as refusal:
        await engine.deliver_signal(signal_to(claimed, waitpoint))
    public.append(refusal.value)
    resumed = await lab.claim()
    public += [
        await engine.observe_signals(resumed.handle),
        await engine.resume_info(resumed.handle),
    ]
    stored = (await lab.dump())["ff_waitpoint_hmac"]
    public += [
        await engine.rotate_waitpoint_hmac_secret_all(new_kid="k2", new_secret_hex=NEXT_SECRET),
        await engine.rotate_waitpoint_hmac_secret_all(new_kid="k2", new_secret_hex=NEXT_SECRET),
        await engine.seed_waitpoint_hmac_secret(kid="k2", secret_hex=NEXT_SECRET),
        await engine.list_waitpoint_hmac_kids(),
    ]
    for call in (
        engine.rotate_waitpoint_hmac_secret_all(new_kid="k2", new_secret_hex=SECRET),
        engine.seed_waitpoint_hmac_secret(kid="k3", secret_hex=SECRET),
        engine.seed_waitpoint_hmac_secret(kid="k3", secret_hex=SECRET + "x"),
        engine.rotate_waitpoint_hmac_secret_all(new_kid="bad kid", new_secret_hex=SECRET),
    ):
        with pytest.raises(FlowFabricError) as refusal:
            await call
        public.append(refusal.value)
    await engine.complete(resumed.handle, result=b"done")
    public += [
        await engine.doctor(),
        await engine.get_execution_result(execution_id=claimed.execution_id),
        (await engine.list_attempts(execution_id=claimed.execution_id)).items,
    ]
    macs = [each.token.reveal().partition(":")[2] for each in (*begun.waitpoints, pending)]
    return [*macs, *(each.secret_hex for each in stored), SECRET, NEXT_SECRET], public


@scenario
async def test_nothing_public_carries_a_token_or_a_key(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """Objects are walked, not only printed."""
    caplog.set_level(logging.DEBUG)
    secrets, public = await whole_life(lab)
    for answer in public:
        for text in texts_in(answer):
            for secret in secrets:
                assert secret not in text, type(answer).__name__
                assert secret[:16] not in text, type(answer).__name__
    for secret in secrets:
        assert secret[:16] not in caplog.text


@scenario
async def test_stored_rows_have_no_token_and_print_no_key(lab: Lab) -> None:
    secrets, _ = await whole_life(lab)
    dump = await lab.dump()
    shown = repr(dump)
    for secret in secrets:
        assert secret[:16] not in shown
    keys = dump.pop("ff_waitpoint_hmac")
    assert {each.kid for each in keys} == {"k1", "k2"}
    for table, rows in dump.items():
        for text in texts_in(rows):
            for secret in secrets:
                assert secret[:16] not in text, table
    assert dump["signal_events"]


@scenario
async def test_values_on_the_way_do_not_show_themselves(lab: Lab) -> None:
    claimed, waitpoint = await waiting(lab)
    mac = waitpoint.token.reveal()[3:]
    signal = signal_to(claimed, waitpoint, token=waitpoint.token.reveal())
    command = delivery(lab.engine, signal)
    assert isinstance(command, DeliverSignal)
    for value in (waitpoint, [waitpoint], Suspended("s", (waitpoint,)), signal, command):
        for shown in (repr(value), str(value), f"{value}"):
            assert mac[:16] not in shown, type(value).__name__
    assert "token" not in SuspendExecution.__struct_fields__
    with pytest.raises(TypeError) as refusal:
        to_json(waitpoint)  # a token becomes JSON only on purpose
    assert mac[:16] not in str(refusal.value)
    assert isinstance(waitpoint.token, Token)


def test_a_configured_secret_is_not_shown() -> None:
    config = EngineConfig(waitpoint_secret=SECRET)
    assert SECRET[:16] not in f"{config} {config!r}"


def test_a_request_does_not_show_its_secret() -> None:
    for request in (
        SeedWaitpointHmacSecret(kid="k9", secret_hex=SECRET),
        RotateWaitpointHmacSecretAll(new_kid="k9", new_secret_hex=SECRET),
    ):
        assert "k9" in repr(request)
        assert SECRET[:16] not in f"{request} {request!r}"


@scenario
async def test_a_token_of_the_wrong_shape_is_not_repeated(lab: Lab) -> None:
    claimed, waitpoint = await waiting(lab)
    for token in ("", "k1:" + "7" * 5_000, None, b"k1:77777777", 7):
        with pytest.raises(InvalidInput) as refusal:
            await lab.engine.deliver_signal(signal_to(claimed, waitpoint, token=token))
        assert "777" not in f"{refusal.value!r} {refusal.value.as_dict()}"
