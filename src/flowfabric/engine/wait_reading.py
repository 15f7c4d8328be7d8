"""Operations that look at what suspended executions wait for. No answer holds a token."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric.engine.core import EngineCore
from flowfabric.kernel.explain_waits import WaitLook, in_words, lines_of, progress_of
from flowfabric.model.checks import check_list, check_name
from flowfabric.model.execution import Execution
from flowfabric.model.record import Record
from flowfabric.model.results import WaitLine
from flowfabric.model.suspension import (
    Contribution,
    ReasonCode,
    SuspensionRow,
    WaitpointRow,
    WaitpointState,
)
from flowfabric.model.words import TimeoutBehavior
from flowfabric.stores.base import Corrupt, Reader
from flowfabric.stores.tables import SUSPENSIONS, WAITPOINTS


class WaitInfo(Record, frozen=True):
    """One suspended execution: what it waits for, since when, until when."""

    execution_id: str
    execution_kind: str
    lane_id: str
    namespace: str
    suspension_id: str
    reason: ReasonCode
    since: int
    timeout_at: int | None
    at_timeout: TimeoutBehavior
    waits_for: str
    have: int
    need: int
    lines: tuple[WaitLine, ...]
    signals: tuple[Contribution, ...]  # those that count


class WaitPage(Record, frozen=True):
    """One page of waits; hand `next_cursor` back for the next."""

    waits: tuple[WaitInfo, ...]
    next_cursor: str | None


class WaitReading(EngineCore):
    """What `ff waits` and `ff why` show."""

    async def describe_waits(self, *, execution_ids: Sequence[str]) -> dict[str, WaitInfo]:
        """The open waits of those that are suspended."""
        checked = [self.check_id(each) for each in check_list(execution_ids, field="execution_ids")]

        async def work(reader: Reader) -> dict[str, WaitInfo]:
            found = await reader.get(checked)
            waiting = [
                each
                for each in found.values()
                if not isinstance(each, Corrupt) and each.suspension_id is not None
            ]
            keys = [(each.execution_id, each.suspension_id) for each in waiting]
            rows = await reader.peek_rows(SUSPENSIONS, keys) if keys else {}
            return {
                each.execution_id: _info(each, row)
                for each, key in zip(waiting, keys, strict=True)
                if (row := rows.get(key)) is not None
            }

        return await self.read(work)

    async def find_waitpoint(self, *, execution_id: str, waitpoint_key: str) -> WaitpointRow | None:
        """The waitpoint a key stands for: one that is waited on, a pending one, else the last."""
        checked = self.check_id(execution_id)
        key = check_name(waitpoint_key, field="waitpoint_key")
        rows = await self.read(lambda reader: reader.rows_of(WAITPOINTS, [checked]))
        known = [row for row in rows if row.waitpoint_key == key]
        return max(known, key=_freshness, default=None)


def _freshness(row: WaitpointRow) -> tuple[int, int, str]:
    rank = (WaitpointState.CLOSED, WaitpointState.PENDING, WaitpointState.ACTIVE)
    return rank.index(row.state), row.created_at, row.waitpoint_id


def _info(execution: Execution, row: SuspensionRow) -> WaitInfo:
    have, need = progress_of(row)
    return WaitInfo(
        execution.execution_id,
        execution.execution_kind,
        execution.lane_id,
        execution.namespace,
        row.suspension_id,
        row.reason_code,
        row.created_at,
        row.timeout_at,
        row.timeout_behavior,
        in_words(row.condition, row.progress),
        have,
        need,
        lines_of(row.condition, row.progress),
        row.progress,
    )


async def look_at_wait(execution: Execution, reader: Reader) -> WaitLook | None:
    """The open episode of an execution, if it is suspended."""
    if execution.suspension_id is None:
        return None
    key = (execution.execution_id, execution.suspension_id)
    row = (await reader.peek_rows(SUSPENSIONS, [key])).get(key)
    return None if row is None else WaitLook(row)
