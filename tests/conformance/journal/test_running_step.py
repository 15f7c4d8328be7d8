"""The step that runs is told by the last entry, or by a renewal of the lease that came later."""

from __future__ import annotations

import pytest

from flowfabric.api.leases import Renew
from flowfabric.errors import InvalidInput
from flowfabric.model.results import Claimed, LeaseRenewal
from tests.support.journal import entry, record
from tests.support.lab import Lab, scenario


async def told(lab: Lab, claimed: Claimed) -> tuple[str | None, int | None]:
    found = await lab.engine.explain(execution_id=claimed.execution_id)
    return found.step, found.step_since


@scenario
async def test_a_renewal_tells_which_step_runs_until_something_newer_does(lab: Lab) -> None:
    claimed = await lab.started()
    handle = claimed.handle
    assert await told(lab, claimed) == (None, None)
    lab.clock.advance(5_000)
    for expected in ("charge", "mail"):  # the second one changes the row
        (reply,) = await lab.engine.renew_many(
            [Renew(handle=handle, next_key=expected, next_key_ms=3_000)]
        )
        assert isinstance(reply, LeaseRenewal)
        assert await told(lab, claimed) == (expected, lab.now - 3_000)
        lab.clock.advance(1_000)
    await record(lab, claimed, entry(0, "mail"))
    assert await told(lab, claimed) == (None, None)
    lab.clock.advance(1_000)
    await lab.engine.call(Renew(handle=handle, next_key="pay", next_key_ms=10))
    assert (await told(lab, claimed))[0] == "pay"
    lab.clock.advance(1_000)
    await lab.engine.renew(handle)
    assert await told(lab, claimed) == (None, None)
    await lab.engine.call(Renew(handle=handle, next_key="pay"))
    await lab.engine.cancel_execution(
        execution_id=claimed.execution_id, reason="x", source="operator_override"
    )
    assert await told(lab, claimed) == (None, None)


@scenario
async def test_what_a_renewal_tells_is_checked(lab: Lab) -> None:
    handle = (await lab.started()).handle
    for wrong in ({"next_key": ""}, {"next_key": "a", "next_key_ms": -1}):
        with pytest.raises(InvalidInput, match="next_key"):
            await lab.engine.call(Renew(handle=handle, **wrong))
