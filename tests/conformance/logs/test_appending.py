"""Appending to the log of an attempt: fenced, bounded, once for each number of a writer."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.api.logs import AppendLogs
from flowfabric.errors import (
    ExecutionNotActive,
    FlowFabricError,
    InvalidInput,
    LeaseExpired,
    LeaseRevoked,
    NotFound,
    RetentionLimitExceeded,
    StaleLease,
)
from flowfabric.ids import new_execution_id
from flowfabric.kernel.stream.log_lines import FULL
from flowfabric.limits import LOG_BYTES_MAX, LOG_CHUNK_LINES, LOG_LINE_BYTES, LOG_LINES_MAX
from flowfabric.model.log_lines import LogBatch, LogsAppended
from flowfabric.model.record import replace
from tests.support.lab import TTL_MS, Lab, scenario
from tests.support.logs import AT, batch, line, log, messages, page

ONE_RETRY = {"retry_policy": {"max_retries": 1, "backoff": {"type": "fixed", "delay_ms": 10}}}
STRANGE = "tab\there\nsecond line \x1b[31m ünï 🌊"


@scenario
async def test_a_line_comes_back_as_it_was_given(lab: Lab) -> None:
    claimed = await lab.started()
    lines = (line(STRANGE, level=40, logger="app.db"), line(""), line("last", at=AT - 5))
    reply = await lab.engine.append_logs(claimed.handle, logs=LogBatch(lines=lines))
    assert reply == LogsAppended(3, 0)
    first, second, third = (await page(lab, claimed)).lines
    assert (first.message, first.level, first.logger) == (STRANGE, 40, "app.db")
    assert (first.number, first.attempt_index, first.at, first.level_name) == (1, 0, AT, "error")
    assert (second.message, second.level_name, second.logger) == ("", "info", "")
    assert (third.number, third.at, third.cursor) == (3, AT - 5, "0:3")


@scenario
async def test_lines_of_one_append_share_a_row(lab: Lab) -> None:
    """A line never costs a row of its own, let alone a commit."""
    claimed = await lab.started()
    await log(lab, claimed, *map(str, range(LOG_CHUNK_LINES + 1)))
    rows = (await lab.dump())["ff_run_log_chunk"]
    assert [len(each.lines) for each in rows] == [LOG_CHUNK_LINES, 1]


@scenario
async def test_an_append_after_the_end_is_refused(lab: Lab) -> None:
    claimed = await lab.started()
    await lab.engine.complete(claimed.handle)
    async with lab.refuses(ExecutionNotActive):
        await log(lab, claimed, "late")


@scenario
async def test_an_owner_that_lost_its_lease_logs_nothing(lab: Lab) -> None:
    claimed = await lab.started()
    await lab.engine.revoke_lease(execution_id=claimed.execution_id, reason="suspicious")
    async with lab.refuses(LeaseRevoked):
        await log(lab, claimed, "late")
    await lab.after(1)
    again = await lab.claim("w2")
    async with lab.refuses(StaleLease):
        await log(lab, claimed, "late")
    await log(lab, again, "of the second attempt")
    assert await messages(lab, again) == ["of the second attempt"]
    assert await messages(lab, claimed) == []


@scenario
async def test_a_lapsed_lease_logs_nothing(lab: Lab) -> None:
    claimed = await lab.started()
    lab.clock.advance(TTL_MS)
    async with lab.refuses(LeaseExpired):
        await log(lab, claimed, "late")


@scenario
async def test_a_log_needs_its_execution_and_attempt(lab: Lab) -> None:
    claimed = await lab.started()
    other = replace(claimed.handle, execution_id=new_execution_id())
    async with lab.refuses(NotFound):
        await lab.engine.append_logs(other, logs=batch("x"))
    async with lab.refuses(StaleLease):
        await lab.engine.append_logs(replace(claimed.handle, attempt_index=7), logs=batch("x"))


# --- once ----------------------------------------------------------------------------------------


@scenario
async def test_a_repeated_append_writes_nothing(lab: Lab) -> None:
    claimed = await lab.started()
    first = await log(lab, claimed, "a", "b", first=1)
    async with lab.unchanged():
        assert await log(lab, claimed, "a", "b", first=1) == first
        assert await log(lab, claimed, "b", first=2) == first
    await log(lab, claimed, "a", "b", "c", first=1)
    assert await messages(lab, claimed) == ["a", "b", "c"]


@scenario
async def test_dropped_lines_are_counted_once(lab: Lab) -> None:
    claimed = await lab.started()
    assert await log(lab, claimed, "a", first=1, dropped=2) == LogsAppended(2, 2)
    assert await log(lab, claimed, "a", first=1, dropped=5) == LogsAppended(2, 5)
    assert await log(lab, claimed, first=4, dropped=3) == LogsAppended(2, 5)
    assert await log(lab, claimed, first=7, dropped=1) == LogsAppended(2, 6)
    assert await messages(lab, claimed) == ["a", FULL]


@scenario
async def test_lines_without_numbers_are_all_new(lab: Lab) -> None:
    claimed = await lab.started()
    await log(lab, claimed, "a", first=9)
    await log(lab, claimed, "b")
    await log(lab, claimed, "b")
    await log(lab, claimed, "old", "c", first=9)
    assert await messages(lab, claimed) == ["a", "b", "b", "c"]


@scenario
async def test_commands_of_one_batch_append_in_order(lab: Lab) -> None:
    claimed = await lab.started()
    asked = [AppendLogs(handle=claimed.handle, logs=batch(str(n), first=n)) for n in (1, 2, 2, 3)]
    replies = await lab.engine.call_many(asked)
    counts = [each.line_count for each in replies if not isinstance(each, FlowFabricError)]
    assert counts == [1, 2, 2, 3]
    assert await messages(lab, claimed) == ["1", "2", "3"]


@scenario
async def test_a_log_goes_on_after_a_suspension(lab: Lab) -> None:
    claimed = await lab.started()
    await log(lab, claimed, "before", first=1)
    await lab.engine.delay(claimed.handle, delay_until=lab.now + 50)
    async with lab.refuses(ExecutionNotActive):
        await log(lab, claimed, "while it waits")
    await lab.after(50)
    again = await lab.claim()
    await log(lab, again, "after", first=2)
    assert await messages(lab, again) == ["before", "after"]


# --- bounds --------------------------------------------------------------------------------------


@scenario
async def test_a_line_of_4_kib_is_taken_and_one_byte_more_is_not(lab: Lab) -> None:
    claimed = await lab.started()
    await log(lab, claimed, "x" * LOG_LINE_BYTES, "ü" * (LOG_LINE_BYTES // 2))
    for longer in ("x" * (LOG_LINE_BYTES + 1), "ü" * (LOG_LINE_BYTES // 2) + "x"):
        async with lab.refuses(RetentionLimitExceeded, "line.message"):
            await log(lab, claimed, "good", longer)


@scenario
async def test_a_thousand_lines_are_kept_and_then_a_marker(lab: Lab) -> None:
    claimed = await lab.started()
    numbers = list(map(str, range(LOG_LINES_MAX)))
    assert await log(lab, claimed, *numbers) == LogsAppended(LOG_LINES_MAX, 0)
    assert await log(lab, claimed, "one", "two") == LogsAppended(LOG_LINES_MAX + 1, 2)
    assert await log(lab, claimed, "three") == LogsAppended(LOG_LINES_MAX + 1, 3)
    first = await page(lab, claimed)
    assert [each.message for each in first.lines] == numbers
    rest = await page(lab, claimed, after=first.next_cursor)
    assert [each.message for each in rest.lines] == [FULL]
    assert (rest.lines[0].logger, rest.lines[0].level_name) == ("flowfabric.logs", "warning")
    assert (rest.lines[0].at, rest.dropped_count) == (lab.now, 3)


@scenario
async def test_a_mebibyte_is_kept_and_then_a_marker(lab: Lab) -> None:
    """Also where a smaller line would still fit: readers see where lines are missing."""
    claimed = await lab.started()
    count = LOG_BYTES_MAX // LOG_LINE_BYTES
    long = "x" * LOG_LINE_BYTES
    assert await log(lab, claimed, *([long] * (count - 1)), "y") == LogsAppended(count, 0)
    assert await log(lab, claimed, long, "short") == LogsAppended(count + 1, 2)
    found = await page(lab, claimed)
    assert [each.message for each in found.lines] == [long] * (count - 1) + ["y", FULL]


@scenario
async def test_the_next_attempt_has_a_log_of_its_own_with_room(lab: Lab) -> None:
    claimed = await lab.started(policy=ONE_RETRY)
    await log(lab, claimed, *map(str, range(LOG_LINES_MAX)))
    await log(lab, claimed, "too much")
    await lab.engine.fail(claimed.handle, reason="broke")
    await lab.after(10)
    again = await lab.claim()
    assert await log(lab, again, "fresh") == LogsAppended(1, 0)
    assert await messages(lab, again) == ["fresh"]


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"message": b"bytes"}, "message"),
        ({"message": "\x00"}, "message"),
        ({"message": "\ud800"}, "message"),
        ({"at": -1}, "at"),
        ({"at": None}, "at"),
        ({"level": 101}, "level"),
        ({"level": "info"}, "level"),
        ({"logger": "x" * 257}, "logger"),
        ({"logger": "two\nlines"}, "logger"),
    ],
)
def test_a_malformed_line_is_refused(lab: Lab, wrong: dict[str, Any], field: str) -> None:
    async def check() -> None:
        claimed = await lab.started()
        async with lab.refuses(InvalidInput, field):
            logs = LogBatch(lines=(line("good"), line(**wrong)))
            await lab.engine.append_logs(claimed.handle, logs=logs)

    lab.run(check())


@scenario
async def test_a_malformed_batch_is_refused(lab: Lab) -> None:
    claimed = await lab.started()
    for wrong, field in (
        (batch(*["x"] * (LOG_LINES_MAX + 1)), "lines"),
        (batch("x", first=0), "first"),
        (batch("x", dropped=-1), "dropped"),
        (LogBatch(lines="text"), "lines"),  # type: ignore[arg-type]
        (LogBatch(lines=("text",)), "lines"),  # type: ignore[arg-type]
        ("text", "logs"),
    ):
        async with lab.refuses(InvalidInput, field):
            await lab.engine.append_logs(claimed.handle, logs=wrong)  # type: ignore[arg-type]


# --- with the end --------------------------------------------------------------------------------


@scenario
async def test_lines_ride_on_the_end(lab: Lab) -> None:
    claimed = await lab.started()
    logs = batch("last words", first=1)
    done = await lab.engine.complete(claimed.handle, result=b"r", logs=logs)
    async with lab.unchanged():
        assert await lab.engine.complete(claimed.handle, result=b"r", logs=logs) == done
    found = await page(lab, claimed)
    assert [each.message for each in found.lines] == ["last words"]
    assert found.closed_at == done.completed_at


@scenario
async def test_lines_ride_on_a_failure_that_is_retried(lab: Lab) -> None:
    claimed = await lab.started(policy=ONE_RETRY)
    logs = batch("why", first=1)
    first = await lab.engine.fail(claimed.handle, reason="broke", logs=logs)
    assert await lab.engine.fail(claimed.handle, reason="broke", logs=logs) == first
    assert await messages(lab, claimed) == ["why"]


@scenario
async def test_a_wrong_line_keeps_the_end_from_happening(lab: Lab) -> None:
    claimed = await lab.started()
    async with lab.refuses(InvalidInput, "level"):
        await lab.engine.complete(claimed.handle, logs=LogBatch(lines=(line(level=-1),)))
    await lab.engine.complete(claimed.handle)


@scenario
async def test_lines_of_a_stale_owner_do_not_ride_along(lab: Lab) -> None:
    claimed = await lab.started()
    await lab.engine.revoke_lease(execution_id=claimed.execution_id, reason="suspicious")
    async with lab.refuses(LeaseRevoked):
        await lab.engine.complete(claimed.handle, logs=batch("late"))
