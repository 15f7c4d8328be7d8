"""The wire can carry every request and every answer that the register declares."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.api import wire
from flowfabric.api.backend import EngineBackend
from flowfabric.api.budgets import RecordSpend
from flowfabric.api.executions import DescribeExecution
from flowfabric.api.operation import OPERATIONS, Request
from flowfabric.api.waits import (
    DeliverSignal,
    DeliverSignals,
    Signal,
    SuspendByTriple,
    SuspendRequest,
)
from flowfabric.errors import FlowFabricError, InvalidInput, InvalidToken, NotFound
from flowfabric.model.execution import Fence
from flowfabric.model.record import replace
from flowfabric.model.suspension import SignalAccepted, SignalEffect, TimeoutOnly, Token

CARRIED = sorted(name for name, each in OPERATIONS.items() if not each.is_local)
UNREADABLE = b"\xc1"  # the one byte that MessagePack never begins with


def test_the_register_is_filled() -> None:
    assert CARRIED
    assert all(hasattr(EngineBackend, name) for name in CARRIED)


@pytest.mark.parametrize("name", CARRIED)
def test_requests_can_be_read(name: str) -> None:
    """A type that cannot be read would be a TypeError, before any byte is looked at."""
    with pytest.raises(InvalidInput, match="malformed"):
        wire.decode_request(name, UNREADABLE)


@pytest.mark.parametrize("name", CARRIED)
def test_answers_can_be_read(name: str) -> None:
    with pytest.raises(InvalidInput, match="malformed"):
        wire.decode_reply(OPERATIONS[name], UNREADABLE)


# --- what does not fit ---------------------------------------------------------------------------

ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
GOOD = Signal(execution_id="e", waitpoint_id="w", signal_name="s")


def describe(execution_id: Any) -> Request[Any]:
    return DescribeExecution(execution_id=execution_id)


def many(signals: Any) -> Request[Any]:
    return DeliverSignals(signals=signals)


def spent(deltas: Any) -> Request[Any]:
    return RecordSpend(budget_id="b", execution_id="e", deltas=deltas)


def refusal(request: Request[Any]) -> InvalidInput:
    """What a request is answered that does not come through."""
    with pytest.raises(InvalidInput) as caught:
        wire.decode_request(wire.operation_of(request).name, wire.encode_request(request))
    return caught.value


@pytest.mark.parametrize(
    ("request_", "place", "field", "index"),
    [
        (describe(5), "execution_id", "execution_id", None),
        (describe("\ud800"), "execution_id", "execution_id", None),
        (describe(2**70), "execution_id", "execution_id", None),
        (describe(object()), "execution_id", "execution_id", None),
        (describe(ENDLESS), "execution_id", "execution_id", None),
        (DeliverSignal(signal=replace(GOOD, payload="x")), "signal.payload", "payload", None),
        (DeliverSignal(signal=replace(GOOD, token=5)), "signal.token", "token", None),
        (
            DeliverSignal(signal=replace(GOOD, signal_id="\udcff")),
            "signal.signal_id",
            "signal_id",
            None,
        ),
        (many([GOOD, 5]), "signals[1]", "signals[1]", 1),
        (
            many([GOOD, GOOD, replace(GOOD, source_type=b"")]),
            *("signals[2].source_type", "signals[2].source_type", 2),
        ),
        (
            many([GOOD, replace(GOOD, source_type="\ud800")]),
            *("signals[1].source_type", "signals[1].source_type", 1),
        ),
        (spent({"a": 1.5}), "deltas", "deltas", None),
        (spent({7: 1}), "deltas", "deltas", None),
        (
            spent({"a": 2**70}),
            "deltas.a",
            "deltas.a",
            None,
        ),
    ],
)
def test_an_error_names_the_place(request_: Any, place: str, field: str, index: int | None) -> None:
    error = refusal(request_)
    assert error.detail.startswith(f"{place}: ")
    assert error.fields.get("field") == field
    assert error.fields.get("index") == index


def test_a_long_value_does_not_hide_its_place() -> None:
    asked = SuspendRequest(resume_condition=TimeoutOnly(), reason_code="x" * 10_000)
    error = refusal(SuspendByTriple(execution_id="e", fence=Fence("l", 1, "a"), request=asked))
    assert error.fields == {"field": "reason_code"}
    assert len(error.detail) < 300


# --- what only a wire carries --------------------------------------------------------------------


def back(name: str, reply: object) -> Any:
    """An answer, there and back."""
    return wire.decode_reply(OPERATIONS[name], wire.encode_reply(reply))


def test_a_token_crosses() -> None:
    assert back("read_waitpoint_token", Token("k1:secret")) == Token("k1:secret")
    assert back("read_waitpoint_token", None) is None
    request = DeliverSignal(signal=replace(GOOD, token=Token("k1:secret")))
    assert wire.decode_request("deliver_signal", wire.encode_request(request)) == request


def test_errors_among_answers_cross() -> None:
    answers = [
        SignalAccepted("s", next(iter(SignalEffect))),
        InvalidToken("no", field="token"),
        NotFound("gone"),
    ]
    assert back("deliver_signals", answers) == answers


def test_an_error_of_a_newer_version_is_an_error() -> None:
    class Newer(FlowFabricError):
        """Not known here."""

        code = "newer"

    error = wire.decode_error(wire.encode_error(Newer("so", field="x")))
    assert type(error) is FlowFabricError
    assert (error.detail, error.fields) == ("so", {"field": "x"})
