"""Cases: answers that are lost, servers that are busy or away."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from flowfabric.clock import monotonic
from flowfabric.server.conformance.case import case
from flowfabric.server.conformance.stage import ECHO, SLEEP, Stage, expect
from flowfabric.server.conformance.watch import CLAIM, COMMANDS, Exchange, Fault

_AWAY_S: Final = 1.0
_RETRY_S: Final = 1


def _with(word: str, exchange: Exchange) -> bool:
    return bool(exchange.items(word))


async def _claim_is_lost(stage: Stage, *, is_half: bool) -> None:
    await stage.ready()
    with stage.fault(CLAIM, is_half=is_half) as fault:
        # The claim that waits now was let through before: the next one is lost.
        await stage.result(await stage.submit(ECHO, "before"), "an echo")
        await stage.until(lambda: fault.met > 0, "it claims again")
        made = await stage.submit(ECHO, "lost on its way")
        await stage.result(made, "an execution whose claim was not answered")
    ids = [each.body.get("claim_id") for each in stage.watch.of(CLAIM)]
    lost = {} if fault.last is None else fault.last.body
    told = "the claim whose answer was lost was not asked again by its claim_id"
    expect(ids.count(lost.get("claim_id")) >= 2, told)
    found = await stage.engine.describe_execution(execution_id=made)
    expect(found is not None and not found.reclaim_count, "the lease had to run out first")
    expect(await stage.attempts(made) == 1, "it had several attempts")


@case("lost answers")
async def lost_claim(stage: Stage) -> None:
    """A claim whose answer is lost is asked again by its id, and no lease runs out."""
    await _claim_is_lost(stage, is_half=False)


@case("lost answers")
async def half_claim(stage: Stage) -> None:
    """A claim whose answer is cut in half is asked again by its id."""
    await _claim_is_lost(stage, is_half=True)


async def _report_is_lost(stage: Stage, *, is_half: bool) -> None:
    with stage.fault(COMMANDS, only=lambda each: _with("complete", each), is_half=is_half) as fault:
        made = await stage.submit(ECHO, "reported twice")
        await stage.result(made, "an execution whose report was not answered")
        await stage.until(lambda: fault.met > 0, "it reports")
        await stage.until(
            lambda: len(stage.reports(made)) >= 2, "the report is repeated with the same handle"
        )
    handles = {
        item["handle"]
        for _, item in stage.commands("complete")
        if item["handle"] in stage.handles(made)
    }
    expect(len(handles) == 1, "the report was repeated with another handle")


@case("lost answers")
async def lost_report(stage: Stage) -> None:
    """A report whose answer is lost is repeated with the same handle."""
    await _report_is_lost(stage, is_half=False)


@case("lost answers")
async def half_report(stage: Stage) -> None:
    """A report whose answer is cut in half is repeated with the same handle."""
    await _report_is_lost(stage, is_half=True)


@case("lost answers")
async def lost_renewal(stage: Stage) -> None:
    """A renewal whose answer is lost costs no lease."""
    lease_s = stage.require_short_leases()
    with stage.fault(COMMANDS, only=lambda each: _with("renew", each)) as fault:
        made = await stage.submit(SLEEP, {"ms": round(lease_s * 1_400)})
        await stage.result(made, "a handler whose renewal was not answered")
        expect(fault.met, "it never renewed")
    expect(await stage.attempts(made) == 1, "its lease was lost")


async def _is_refused(stage: Stage, path: str, status: int, code: str) -> None:
    await stage.ready()
    headers = {"retry-after": str(_RETRY_S)}
    with stage.fault(path, status=status, code=code, headers=headers) as fault:
        made = await stage.submit(ECHO, "after a refusal")
        await stage.result(made, f"an execution after a {status}")
        await stage.result(await stage.submit(ECHO, "another"), "another one")
        await stage.until(lambda: fault.met > 0, f"it meets the {status}")
        await stage.ready()
    several = stage.watch.of(path)
    at = next(i for i, each in enumerate(several) if each.status == status and _made(each))
    again = several[at + 1 :]
    expect(again, f"after a {status} it asked no more")
    pause = again[0].at - several[at].ended_at
    told = f"Retry-After was {_RETRY_S} s, and it came again after {pause:.2f} s"
    expect(pause >= _RETRY_S * 0.95, told)


def _made(exchange: Exchange) -> bool:
    return (exchange.answer or {}).get("request_id") == "conformance"


@case("refusals")
async def overloaded(stage: Stage) -> None:
    """A claim that is answered 503 comes again, not before `Retry-After`."""
    await _is_refused(stage, CLAIM, 503, "overloaded")


@case("refusals")
async def draining(stage: Stage) -> None:
    """A report that is answered 503 is given again."""
    only = lambda each: _with("complete", each)  # noqa: E731 - said once
    headers = {"retry-after": "0"}
    with stage.fault(COMMANDS, status=503, code="draining", headers=headers, only=only) as fault:
        made = await stage.submit(ECHO, "reported later")
        await stage.result(made, "an execution whose report was refused with 503")
        expect(fault.met, "it never reported")
    expect(await stage.attempts(made) == 1, "it was run again instead")


def _is_met(fault: Fault) -> bool:
    return fault.met > 0


@case("refusals")
async def gateways(stage: Stage) -> None:
    """A 502 or 504 of something in between does not end it."""
    await stage.ready()
    for status in (502, 504):
        with stage.fault(CLAIM, status=status, code="gateway") as fault:
            await stage.result(await stage.submit(ECHO, status), f"an execution before a {status}")
            await stage.until(partial(_is_met, fault), f"it meets a {status}")
            await stage.ready()


@case("refusals")
async def stale_reports(stage: Stage) -> None:
    """A report that is refused for a lost lease is given up, and the worker goes on."""
    made = await stage.submit(SLEEP, {"ms": 100})
    await stage.begun(made)
    with stage.fault("/v1/workers/stops", times=1_000, status=503, code="overloaded"):
        await stage.engine.revoke_lease(execution_id=made, reason="conformance")
        await stage.result(made, "an execution that was revoked")
    first = stage.handles(made)[0]
    reports = [item for _, item in stage.commands("complete") if item["handle"] == first]
    expect(len(reports) <= 1, f"it reported the lost lease {len(reports)} times")
    await stage.result(await stage.submit(ECHO, "goes on"), "the next one")


@case("outages")
async def away(stage: Stage) -> None:
    """A server that is away for a while is waited for, and what was finished is reported."""
    await stage.ready()
    made = await stage.submit(SLEEP, {"ms": 100})
    await stage.begun(made)
    stage.watch.is_deaf = True
    try:
        await asyncio.sleep(_AWAY_S)
    finally:
        stage.watch.is_deaf = False
    before = monotonic()
    await stage.result(made, "an execution that ended while the server was away")
    await stage.result(await stage.submit(ECHO, "back"), "the next one")
    expect(monotonic() - before < stage.patience_s, "it took too long to come back")


@case("outages")
async def told_to_reconnect(stage: Stage) -> None:
    """A claim that is answered empty, with `reconnect`, is followed by another one."""
    await stage.ready()
    stage.watch.adds = {"reconnect": True}
    try:
        await stage.result(await stage.submit(ECHO, 1), "an execution")
        await stage.ready()
    finally:
        stage.watch.adds = {}


@case("outages")
async def more_fields(stage: Stage) -> None:
    """Fields that it does not know are passed over, in answers and in their items."""
    await stage.ready()
    stage.watch.adds = {"of_a_later_release": {"a": [1]}}
    try:
        for number in range(3):
            await stage.result(await stage.submit(ECHO, number), "an execution")
    finally:
        stage.watch.adds = {}
