"""Cases: leases are renewed while handlers run, and handlers end with their leases."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from flowfabric.clock import monotonic
from flowfabric.server.conformance.case import case
from flowfabric.server.conformance.stage import ECHO, SLEEP, Stage, expect
from flowfabric.server.conformance.watch import CLAIM, STOPS, Exchange

_LONG_MS: Final = 60_000


@case("leases")
async def renews(stage: Stage) -> None:
    """A handler that takes longer than its lease keeps it, and runs once."""
    lease_s = stage.require_short_leases()
    made = await stage.submit(SLEEP, {"ms": round(lease_s * 2_000)})
    await stage.result(made, "a long handler")
    count = await stage.attempts(made)
    expect(count == 1, f"it had {count} attempts: its lease was lost")
    found = await stage.engine.describe_execution(execution_id=made)
    expect(found is not None and not found.reclaim_count, "its lease ran out and was taken")
    mine = set(stage.handles(made))
    times = [each.at for each, item in stage.commands("renew") if item["handle"] in mine]
    gaps = [later - before for before, later in pairwise(times)]
    expect(len(times) >= 3, f"it was renewed {len(times)} times in two lengths of its lease")
    expect(max(gaps) < lease_s * 0.7, f"{max(gaps):.1f} s lay between two renewals")


def held_in(exchange: Exchange) -> set[tuple[str, int]]:
    """The leases that a request names as held."""
    return {
        (str(each.get("execution_id")), each.get("lease_epoch", 0))
        for each in exchange.body.get("held", ())
    }


def _asks(stage: Stage) -> list[Exchange]:
    return [each for each in stage.watch.exchanges if each.path in (CLAIM, STOPS)]


async def _running(stage: Stage, count: int = 1) -> list[str]:
    made = [await stage.submit(SLEEP, {"ms": _LONG_MS}) for _ in range(count)]
    await stage.begun(*made)
    return made


async def _dropped(stage: Stage, execution_id: str) -> None:
    """Return when the worker waits, and holds this one no more."""
    await stage.until(
        lambda: any(
            not each.is_over and execution_id not in {one for one, _ in held_in(each)}
            for each in _asks(stage)
        ),
        "it stops the handler and asks without this lease",
    )


@case("stops")
async def tells_what_it_holds(stage: Stage) -> None:
    """It tells the leases it holds, with their epochs, so that it hears of their loss."""
    (made,) = await _running(stage)
    epochs = {item["execution_id"]: item["lease_epoch"] for _, item in stage.claimed()}
    await stage.until(
        lambda: any((made, epochs[made]) in held_in(each) for each in _asks(stage)),
        "a claim or a poll for stops has this lease in `held`",
    )
    await stage.cancel(made)
    await _dropped(stage, made)


@case("stops")
async def stops_on_cancel(stage: Stage) -> None:
    """A cancelled execution is stopped, and the worker goes on with others."""
    (made,) = await _running(stage)
    await stage.cancel(made)
    await _dropped(stage, made)
    other = await stage.submit(ECHO, "next")
    await stage.result(other, "the next one")


@case("stops")
async def says_nothing_after_a_stop(stage: Stage) -> None:
    """Nothing is reported of a lease after it was told to stop; or it is, once, and refused."""
    (made,) = await _running(stage)
    await stage.cancel(made)
    await _dropped(stage, made)
    count = len(stage.reports(made))
    expect(count <= 1, f"it reported a lost lease {count} times")


@case("stops")
async def revoked_is_run_again(stage: Stage) -> None:
    """A lease that an operator takes is given up, and the execution is claimed anew."""
    made = await stage.submit(SLEEP, {"ms": 300})
    await stage.begun(made)
    first = stage.handles(made)
    await stage.engine.revoke_lease(execution_id=made, reason="conformance")
    await stage.result(made, "a revoked execution")
    expect(len(stage.handles(made)) == len(first) + 1, "it was not claimed a second time")


@case("stops")
async def a_full_worker_hears(stage: Stage) -> None:
    """A worker without a free slot waits for stops, and hears of a cancel at once."""
    made = await _running(stage, stage.concurrency)
    await stage.until(
        lambda: any(
            not each.is_over and (each.path == STOPS or each.body.get("limit") == 0)
            for each in _asks(stage)
        ),
        "a poll for stops, or a claim with limit 0, waits",
    )
    before = monotonic()
    await stage.cancel(made[0])
    await _dropped(stage, made[0])
    seconds = monotonic() - before
    expect(seconds < 1.0, f"it heard of a cancel after {seconds:.1f} s")
    await stage.cancel(*made)
    await _dropped(stage, made[-1])


@case("stops")
async def frees_the_slot(stage: Stage) -> None:
    """The slot of a stopped handler is used again."""
    made = await _running(stage, stage.concurrency)
    other = await stage.submit(ECHO, "waits for a slot")
    await stage.cancel(*made)
    await stage.result(other, "what waited for a slot")
