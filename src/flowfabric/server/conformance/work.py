"""Cases: work is claimed, done, and told."""

from __future__ import annotations

import asyncio
from typing import Final

from flowfabric.server.conformance.case import case
from flowfabric.server.conformance.stage import (
    ECHO,
    FAIL,
    LANE,
    PROGRESS,
    SLEEP,
    Stage,
    expect,
)
from flowfabric.server.conformance.watch import CLAIM

_BURST: Final = 40
_LARGE: Final = 200_000
_LONG_MS: Final = 60_000


@case("registration")
async def registers(stage: Stage) -> None:
    """It registers before it claims."""
    await stage.ready()
    paths = [each.path for each in stage.watch.exchanges]
    expect(paths[0].endswith("/register"), f"its first request was to {paths[0]}")


@case("registration")
async def tells_itself(stage: Stage) -> None:
    """It names its instance, its lane and its kinds."""
    told = stage.registered
    for word in ("worker_id", "worker_instance_id"):
        expect(told.get(word), f"register: {word} is missing")
    expect(LANE in told.get("lanes", ()), f"register: lanes should have {LANE!r}")
    kinds = told.get("kinds") or ()
    expect({ECHO, SLEEP, FAIL, PROGRESS} <= set(kinds), f"register: kinds are {kinds}")


@case("registration")
async def tells_concurrency(stage: Stage) -> None:
    """It tells how many it runs at once, at least two."""
    told = stage.registered.get("concurrency")
    expect(isinstance(told, int) and told >= 2, f"register: concurrency is {told!r}")


@case("registration")
async def is_listed(stage: Stage) -> None:
    """It is in the list of live workers under the name that it claims with."""
    listed = [each.worker_instance_id for each in (await stage.engine.list_workers()).items]
    claims = {each.body.get("worker_instance_id") for each in stage.watch.of(CLAIM)}
    expect(claims <= set(listed), f"it claims as {claims}, registered are {listed}")


async def _echoes(stage: Stage, value: object) -> None:
    made = await stage.submit(ECHO, value)
    found = await stage.result(made, "an echo")
    expect(found == value, f"sent {value!r:.200}, came back {found!r:.200}")


@case("work")
async def runs(stage: Stage) -> None:
    """It runs an execution and reports its result."""
    await _echoes(stage, {"topic": "solar"})


@case("work")
async def keeps_values(stage: Stage) -> None:
    """Text beyond ASCII, large integers, nulls and nesting come back equal."""
    await _echoes(stage, {"é🙂\u2028": [2**53 - 1, -1, None, True, {"a": [[]]}, '\\"']})


@case("work")
async def takes_scalars(stage: Stage) -> None:
    """An input may be null, a number or a list."""
    values: tuple[object, ...] = (None, 0, [], "text", False)
    for value in values:
        await _echoes(stage, value)


@case("work")
async def takes_large(stage: Stage) -> None:
    """An input of 200 kB comes back whole."""
    await _echoes(stage, {"text": "x" * _LARGE})


@case("work")
async def takes_bytes(stage: Stage) -> None:
    """An input that is no JSON comes as `input_base64` and goes back as `result_base64`."""
    data = bytes(range(256))
    made = await stage.submit(ECHO, raw=data)
    found = await stage.outcome(made, "an echo of bytes")
    expect(found.result == data, f"the bytes came back as {found.result!r:.100}")


@case("work")
async def takes_nothing(stage: Stage) -> None:
    """An execution without an input is run."""
    made = await stage.submit(ECHO, raw=b"")
    found = await stage.outcome(made, "an echo of nothing")
    state = found.ended.public_state.value
    expect(state == "completed", f"it is {state}")


@case("work")
async def each_once(stage: Stage) -> None:
    """Of many executions each runs once."""
    made = [await stage.submit(ECHO, number) for number in range(_BURST)]
    found = [await stage.result(each, "one of many") for each in made]
    expect(found == list(range(_BURST)), "results are mixed up")
    counts = [await stage.attempts(each) for each in made]
    expect(set(counts) == {1}, f"attempts: {counts}")


@case("work")
async def runs_side_by_side(stage: Stage) -> None:
    """It runs several at once, and goes on claiming while they run."""
    made = [await stage.submit(SLEEP, {"ms": _LONG_MS}) for _ in range(2)]
    await stage.begun(*made)
    await stage.cancel(*made)


@case("work")
async def no_more_than_it_said(stage: Stage) -> None:
    """It never asks for more than its free slots."""
    made = [await stage.submit(SLEEP, {"ms": 50}) for _ in range(stage.concurrency + 2)]
    for each in made:
        await stage.outcome(each, "one of more than it has slots for")
    _expect_free_slots(stage)


def _expect_free_slots(stage: Stage) -> None:
    most = stage.concurrency
    for each in stage.watch.of(CLAIM):
        limit, held = each.body.get("limit", 1), len(each.body.get("held", ()))
        told = f"a claim has limit {limit} with {held} held, of {most} slots"
        expect(limit + held <= most, told)


@case("failures")
async def reports_failures(stage: Stage) -> None:
    """A failure is reported with its reason."""
    made = await stage.submit(FAIL, {"reason": "no such page", "permanent": True})
    ended = (await stage.outcome(made, "a failure")).ended
    expect(ended.public_state.value == "failed", f"it is {ended.public_state.value}")
    (attempt,) = (await stage.engine.list_attempts(execution_id=made)).items
    expect("no such page" in (attempt.failure_reason or ""), f"reason: {attempt.failure_reason!r}")


@case("failures")
async def permanent_is_permanent(stage: Stage) -> None:
    """A permanent failure is reported as such, and is not tried again."""
    made = await stage.submit(FAIL, {"reason": "never", "permanent": True}, retries=3)
    await stage.outcome(made, "a permanent failure")
    count = await stage.attempts(made)
    expect(count == 1, f"it was tried {count} times: failure_class should be permanent")


@case("failures")
async def comes_again(stage: Stage) -> None:
    """A failure that passes is tried again, and the next attempt is run."""
    made = await stage.submit(FAIL, {"reason": "busy", "times": 2}, retries=3)
    await stage.result(made, "an execution that fails twice")
    count = await stage.attempts(made)
    expect(count == 3, f"attempts: {count}")


@case("failures")
async def goes_on_after_failures(stage: Stage) -> None:
    """A handler that breaks is reported as failed, and the worker goes on."""
    made = await stage.submit(SLEEP, "no object")
    ended = (await stage.outcome(made, "a handler with a wrong input")).ended
    expect(ended.public_state.value == "failed", f"it is {ended.public_state.value}")
    await _echoes(stage, "still there")


@case("failures")
async def leaves_other_kinds(stage: Stage) -> None:
    """It takes no work of kinds that it has not named."""
    made = await stage.submit(f"{LANE}.unknown")
    await _echoes(stage, "meanwhile")
    expect(not stage.handles(made), "it claimed a kind that it has no handler for")
    await stage.cancel(made)


@case("work")
async def shows_progress(stage: Stage) -> None:
    """Progress is told while the handler runs."""
    made = await stage.submit(PROGRESS, {"percent": 50, "message": "half"})
    await stage.outcome(made, "one that tells its progress")
    told = [item for _, item in stage.commands("progress")]
    expect(
        any(each.get("percent") == 50 and each.get("message") == "half" for each in told),
        f"progress commands: {told!r:.300}",
    )


@case("claims")
async def waits_for_work(stage: Stage) -> None:
    """Without work it waits at the server, and does not ask over and over."""
    await stage.ready()
    before = len(stage.watch.of(CLAIM))
    await asyncio.sleep(min(1.0, stage.patience_s))
    count = len(stage.watch.of(CLAIM)) - before
    expect(count <= 2, f"{count} claims in a second without work: give wait_ms")


@case("claims")
async def claims_have_ids(stage: Stage) -> None:
    """Each claim has an id of its own."""
    ids = [each.body.get("claim_id") for each in stage.watch.of(CLAIM)]
    expect(all(ids), "a claim without a claim_id: its answer cannot be asked for again")
    expect(len(set(ids)) == len(ids), "a claim_id was used again although its answer came")


@case("claims")
async def is_found_at_once(stage: Stage) -> None:
    """New work is begun at once, not at the next look."""
    await stage.ready()
    before = asyncio.get_running_loop().time()
    await _echoes(stage, 1)
    seconds = asyncio.get_running_loop().time() - before
    expect(seconds < 1.0, f"an echo took {seconds:.1f} s")
