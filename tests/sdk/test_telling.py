"""A worker says what it does: a line for people, fields for machines, nothing when nobody asks."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowfabric import Context, Fabric, Fatal, Retry, StoreUnavailable, Worker
from flowfabric.sdk.worker import telling
from flowfabric.sdk.worker.telling import EVENTS
from tests.sdk.workshop import until, within, working

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "workers.md"
LASTED = r"(\d+ms|\d+\.\ds)"


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "flowfabric.worker"):
        yield caplog


def told(log: pytest.LogCaptureFixture, event: str) -> list[logging.LogRecord]:
    return [each for each in log.records if getattr(each, "event", None) == event]


def only(log: pytest.LogCaptureFixture, event: str) -> logging.LogRecord:
    (record,) = told(log, event)
    missing = [name for name in EVENTS[event] if not hasattr(record, name)]
    assert not missing, f"{event} lacks {missing}"
    return record


async def until_told(log: pytest.LogCaptureFixture, event: str) -> logging.LogRecord:
    async def is_told() -> bool:
        return bool(told(log, event))

    await until(is_told)
    return only(log, event)


def test_a_worker_logs_its_name_and_when_it_stops(
    log: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    ff = Fabric(f"sqlite:///{tmp_path}/work.db", namespace="acme")

    @ff.task(lane="research", needs={"gpu"})
    async def brief() -> None: ...

    @ff.task
    async def report() -> None: ...

    async def main() -> None:
        async with working(
            ff, worker_id="pool", capabilities={"gpu"}, concurrency=7, lease_ttl="90s"
        ):
            await until_told(log, "worker_started")

    asyncio.run(main())
    record = only(log, "worker_started")
    text = record.getMessage()
    assert re.match(rf"worker pool-\S+ starts on sqlite:///{tmp_path}/work.db: ", text)
    assert text.endswith(
        "lanes default, research; tasks brief, report; offers gpu; 7 at once; lease 1m 30s"
    )
    assert record.__dict__["namespaces"] == ["acme"]
    assert record.__dict__["lease_ttl_ms"] == 90_000
    assert only(log, "worker_stopped").getMessage().endswith(" stopped")


def test_no_password_is_ever_said(log: pytest.LogCaptureFixture) -> None:
    ff = Fabric("postgresql://ada:s3cr3t@127.0.0.1:1/app")

    @ff.task
    async def brief() -> None: ...

    async def main() -> None:
        worker = Worker(ff)
        running = asyncio.create_task(worker.run(handle_signals=False))

        async def is_failing() -> bool:
            return any("the store is failing" in each.getMessage() for each in log.records)

        await until(is_failing)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())
    assert "starts on postgresql://ada:***@127.0.0.1:1/app" in log.text
    assert "s3cr3t" not in log.text


def test_each_end_is_one_line_with_its_kind_short_id_attempt_and_duration(
    url: str, log: pytest.LogCaptureFixture
) -> None:
    ff = Fabric(url)

    @ff.task
    async def brief() -> str:
        return "done"

    async def main() -> str:
        async with ff, working(ff):
            run = await ff.submit(brief)
            await run.result("60s")
            await until_told(log, "completed")
            return run.id

    execution_id = asyncio.run(main())
    record = only(log, "completed")
    wanted = rf"brief {execution_id[-8:]}: attempt 1 completed in {LASTED}"
    assert re.fullmatch(wanted, record.getMessage())
    assert record.__dict__["execution_id"] == execution_id
    assert (record.__dict__["kind"], record.__dict__["lane"]) == ("brief", "default")
    assert (record.__dict__["attempt"], record.__dict__["namespace"]) == (1, "default")


def test_a_failure_comes_with_its_reason_and_the_next_try(
    url: str, log: pytest.LogCaptureFixture
) -> None:
    ff = Fabric(url)

    @ff.task(retries=2)
    async def brief(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise Retry(after="50ms", reason="rate limited\x1b[31m")
        if ctx.attempt == 2:
            raise Fatal("the account is closed\nand a second line")

    async def main() -> None:
        async with ff, working(ff):
            await ff.submit(brief)
            await until_told(log, "failed")

    asyncio.run(main())
    first, last = only(log, "retrying"), only(log, "failed")
    wanted = (
        rf"brief \w{{8}}: attempt 1 of 3 failed after {LASTED}: rate limited�\[31m; next try in "
    )
    assert re.match(wanted, first.getMessage())
    assert 0 <= first.__dict__["next_try_in_ms"] < 5_000  # 50, as exactly as the clocks agree
    wanted = (
        rf"brief \w{{8}}: attempt 2 of 3 failed after {LASTED}: the account is closed; there is"
    )
    assert re.match(wanted, last.getMessage())
    assert (first.levelno, last.levelno) == (logging.INFO, logging.WARNING)
    assert last.__dict__["reason"] == "the account is closed"


def test_waiting_and_giving_back_are_said_too(url: str, log: pytest.LogCaptureFixture) -> None:
    ff = Fabric(url)
    started = asyncio.Event()

    @ff.task
    async def parks(ctx: Context) -> None:
        if not ctx.is_resumed:
            await ctx.delay("1h")

    @ff.task
    async def suspends(ctx: Context) -> None:
        await ctx.suspend("reply")

    @ff.task
    async def spawns(ctx: Context) -> None:
        await ctx.gather(await ctx.spawn(suspends))

    @ff.task
    async def lasts() -> None:
        started.set()
        await asyncio.Event().wait()

    async def main() -> None:
        async with ff, working(ff, drain_timeout=0):
            for task in (parks, spawns, lasts):
                await ff.submit(task)
            for event in ("parked", "suspended", "waits_for_children"):
                await until_told(log, event)
            await within(started.wait())

    asyncio.run(main())
    assert only(log, "parked").__dict__["next_try_in_ms"] > 3_000_000
    assert re.search(r"parked after .*, goes on in (59m|1h)", only(log, "parked").getMessage())
    assert re.search(r"suspends \w{8}: attempt 1 suspended", only(log, "suspended").getMessage())
    assert "spawns" in only(log, "waits_for_children").getMessage()
    assert only(log, "worker_draining").__dict__["running"] == 1
    assert "because the worker stops" in only(log, "given_back").getMessage()


def test_a_lost_lease_and_a_refused_report_are_warnings(log: pytest.LogCaptureFixture) -> None:
    ff = Fabric("memory://")
    started, go_on = asyncio.Event(), asyncio.Event()

    @ff.task
    async def stubborn(ctx: Context) -> None:
        if ctx.attempt > 1:
            return
        started.set()
        await go_on.wait()

    @ff.task
    async def late() -> None:
        started.set()
        await go_on.wait()

    async def main() -> None:
        async with ff, working(ff, lease_ttl="1s"):
            engine = await ff.start()
            run = await ff.submit(stubborn)
            await within(started.wait())
            await engine.revoke_lease(execution_id=run.id, reason="suspect")
            await until_told(log, "stopped")
            started.clear()

            async def down(_handles: Any) -> None:
                raise StoreUnavailable("down")

            run = await ff.submit(late)
            await within(started.wait())
            engine.renew_many = down  # type: ignore[method-assign,assignment]
            await engine.cancel_execution(
                execution_id=run.id, reason="no", source="operator_override"
            )
            go_on.set()
            await until_told(log, "report_refused")

    asyncio.run(main())
    assert only(log, "stopped").__dict__["reason"]  # told by the renewal, or by the next claim
    assert "the report was refused: " in only(log, "report_refused").getMessage()
    assert {
        each.levelno for event in ("stopped", "report_refused") for each in told(log, event)
    } == {logging.WARNING}


def test_lines_below_the_level_are_never_made(monkeypatch: pytest.MonkeyPatch) -> None:
    ff = Fabric("memory://")

    @ff.task
    async def brief() -> None: ...

    def tell(*_: Any, **__: Any) -> None:
        raise AssertionError("a line was made")

    monkeypatch.setattr(telling, "_tell", tell)
    monkeypatch.setattr(telling, "span", tell)

    async def main() -> None:
        async with ff, working(ff):
            await (await ff.submit(brief)).result("60s")

    logging.getLogger("flowfabric.worker").setLevel(logging.WARNING)
    try:
        asyncio.run(main())
    finally:
        logging.getLogger("flowfabric.worker").setLevel(logging.NOTSET)


def test_the_guide_lists_every_event_and_its_fields() -> None:
    table = re.findall(
        r"^\| `(\w+)` \| [^|]+ \| ([^|]*)\|$", GUIDE.read_text("utf-8"), re.MULTILINE
    )
    shared = set(telling.EXECUTION_FIELDS)
    documented = {event: set(re.findall(r"`(\w+)`", fields)) for event, fields in table}
    for event, fields in EVENTS.items():
        own = set(fields) - shared if shared <= set(fields) else set(fields)
        assert documented[event] == own, event
