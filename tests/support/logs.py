"""Short words for logs of runs."""

from __future__ import annotations

from typing import Any

from flowfabric.model.log_lines import LogBatch, LogPage, LogsAppended, NewLine
from flowfabric.model.results import Claimed
from tests.support.lab import Lab

AT = 1_700_000_000_000


def line(message: str = "x", **fields: Any) -> NewLine:
    """A line to keep."""
    return NewLine(**{"at": AT, "message": message, **fields})


def batch(*messages: str, **fields: Any) -> LogBatch:
    """Lines to append."""
    return LogBatch(lines=tuple(map(line, messages)), **fields)


async def log(lab: Lab, claimed: Claimed, *messages: str, **fields: Any) -> LogsAppended:
    """Append as the owner."""
    return await lab.engine.append_logs(claimed.handle, logs=batch(*messages, **fields))


async def page(lab: Lab, claimed: Claimed, **fields: Any) -> LogPage:
    """Lines of the claimed attempt."""
    fields.setdefault("limit", 1_000)
    return await lab.engine.read_logs(
        execution_id=claimed.execution_id, attempt_index=claimed.attempt_index, **fields
    )


async def messages(lab: Lab, claimed: Claimed, **fields: Any) -> list[str]:
    """What the lines of the claimed attempt say."""
    return [each.message for each in (await page(lab, claimed, **fields)).lines]
