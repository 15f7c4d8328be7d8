"""Cases: how a worker ends."""

from __future__ import annotations

import asyncio
from typing import Final

from flowfabric.server.conformance.case import case
from flowfabric.server.conformance.stage import ECHO, SLEEP, CaseSkipped, Stage, expect
from flowfabric.server.conformance.watch import CLAIM

_QUIET_S: Final = 0.3
_TAKEN_S: Final = 0.1  # for an answer to arrive, and a handler to begin


def _has_left(stage: Stage, instance: str) -> bool:
    wanted = f"/v1/workers/{instance}"
    return any(
        each.method == "DELETE" and each.path == wanted and each.status == 200
        for each in stage.watch.exchanges
    )


async def _ends(stage: Stage, codes: tuple[int, ...] | None) -> None:
    process = stage.process
    if process is None:
        raise CaseSkipped("it ends the worker, which was not started from here")
    await stage.until(lambda: process.exit_code is not None, "the program ends")
    found = process.exit_code
    if codes is None:
        expect(found, "it should end with an exit code that tells of the failure, not with 0")
    else:
        expect(found in codes, f"its exit code is {found}")
    stage.watch.exchanges.clear()
    process.start()
    await stage.ready()


@case("end", needs_process=True)
async def drains(stage: Stage) -> None:
    """Asked to drain, it claims no more, finishes what it runs, leaves and ends."""
    await stage.ready()
    made = await stage.submit(SLEEP, {"ms": 400})
    await stage.begun(made)
    instance = stage.instance
    await stage.engine.drain_worker(worker_instance_id=instance, reason="conformance")
    await stage.until(
        lambda: (
            any((each.answer or {}).get("drain") for each in stage.watch.of(CLAIM))
            or any(
                (each.answer or {}).get("is_draining")
                for each in stage.watch.of("/v1/workers/stops")
            )
        ),
        "it hears that it should drain",
    )
    later = await stage.submit(ECHO, "for another one")
    await stage.result(made, "what it ran")
    await stage.until(lambda: _has_left(stage, instance), "it leaves by DELETE")
    expect(not stage.handles(later), "it claimed work after it was asked to drain")
    await _ends(stage, (0,))
    await stage.result(later, "what waited for its successor")


@case("end", needs_process=True)
async def terminates(stage: Stage) -> None:
    """On SIGTERM it finishes what it runs, leaves and ends with 0."""
    await stage.ready()
    made = await stage.submit(SLEEP, {"ms": 400})
    await stage.until(lambda: bool(stage.handles(made)), "the worker claims it")
    await asyncio.sleep(_TAKEN_S)
    instance = stage.instance
    if stage.process is not None:
        stage.process.terminate()
    await stage.result(made, "what it ran")
    expect(await stage.attempts(made) == 1, "it gave up what it ran")
    await stage.until(lambda: _has_left(stage, instance), "it leaves by DELETE")
    await _ends(stage, (0,))


async def _is_shut_out(stage: Stage, status: int, code: str) -> None:
    await stage.ready()
    with stage.fault("*", times=1_000, status=status, code=code) as fault:
        await stage.submit(ECHO, "the last one")
        await stage.until(lambda: fault.met > 0, f"it meets the {status}")
        if stage.process is not None:
            process = stage.process
            await stage.until(
                lambda: process.exit_code is not None, f"it ends by itself after a {status}"
            )
        await asyncio.sleep(_QUIET_S)
        met = fault.met
        expect(met <= 10, f"after a {status} it asked {met} times")
    await _ends(stage, None)


@case("end", needs_process=True)
async def unauthorized(stage: Stage) -> None:
    """A token that is not taken any more (401) ends it, with an error."""
    await _is_shut_out(stage, 401, "unauthorized")


@case("end", needs_process=True)
async def forbidden(stage: Stage) -> None:
    """A token without the scope (403) ends it, with an error."""
    await _is_shut_out(stage, 403, "missing_scope")
