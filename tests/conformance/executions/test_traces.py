"""The trace of a submit is kept with the execution, and handed to each attempt."""

from __future__ import annotations

from typing import Any, Final

import pytest

from flowfabric.model.results import Duplicate
from flowfabric.model.trace import Trace, read_trace
from tests.support.lab import TTL_MS, Lab, scenario

PARENT: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
HOSTILE: Final = (
    *("", "x", "00", PARENT.upper(), f" {PARENT}", f"{PARENT}\n", f"{PARENT}-00", PARENT[:-1]),
    *("ff" + PARENT[2:], PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32)),
    *(PARENT.replace("b7ad6b7169203331", "0" * 16), "0" * 100_000, PARENT.replace("-", "_")),
    *("00-\x00", "ü" * 55, "' OR 1=1 --"),
)


@scenario
async def test_every_attempt_is_handed_the_trace_of_the_submit(lab: Lab) -> None:
    claimed = await lab.started(traceparent=PARENT, tracestate="a=1,b=2")
    assert claimed.trace == Trace(PARENT, "a=1,b=2")
    lab.clock.advance(TTL_MS)
    await lab.after(TTL_MS)
    again = await lab.claim("w2")
    assert (again.execution_id, again.trace) == (claimed.execution_id, claimed.trace)
    plain = await lab.started()
    assert plain.trace is None


@scenario
async def test_a_malformed_traceparent_is_dropped_and_the_submit_succeeds(lab: Lab) -> None:
    for parent in HOSTILE:
        claimed = await lab.started(traceparent=parent, tracestate="a=1")
        assert claimed.trace is None, parent


@pytest.mark.parametrize("state", ["", "a", "A=1", "a=\x01", "a=1," * 40, "a=" + "1" * 600, "ü=1"])
def test_a_malformed_tracestate_is_dropped_by_itself(state: Any) -> None:
    assert read_trace(PARENT, state) == Trace(PARENT)


def test_a_later_version_is_read_as_the_one_that_is_known() -> None:
    assert read_trace("cc" + PARENT[2:] + "-what-ever", "a=1") == Trace(PARENT, "a=1")


@scenario
async def test_another_trace_makes_no_other_request_of_a_submit(lab: Lab) -> None:
    await lab.create(idempotency_key="k", traceparent=PARENT)
    again = await lab.engine.create_execution(execution_kind="work", idempotency_key="k")
    assert isinstance(again, Duplicate)
