"""Waiting for an execution while showing its progress."""

from __future__ import annotations

import asyncio
from typing import Final

from flowfabric.api.backend import EngineBackend
from flowfabric.cli.call import Call
from flowfabric.cli.show.executions import note
from flowfabric.model.results import ExecutionSnapshot

_LOOK_EVERY_S: Final = 0.25
_BAR_CELLS: Final = 24


def bar(percent: int, cells: int = _BAR_CELLS) -> str:
    """A progress bar in plain characters.

    >>> bar(50, 10)
    '[#####.....]  50%'
    """
    full = round(max(0, min(100, percent)) * cells / 100)
    return f"[{'#' * full}{'.' * (cells - full)}] {percent:3d}%"


async def watch(
    engine: EngineBackend, call: Call, execution_id: str, *, timeout_ms: int | None
) -> ExecutionSnapshot:
    """The finished execution; WaitTimeout when it takes longer."""
    ticker = None
    if call.terminal.shows_progress:
        ticker = asyncio.create_task(_keep_telling(engine, call, execution_id))
    try:
        return await engine.wait_for_result(execution_id=execution_id, wait_ms=timeout_ms)
    finally:
        if ticker is not None:
            ticker.cancel()
            await asyncio.wait([ticker])
            call.terminal.end_status()


async def _keep_telling(engine: EngineBackend, call: Call, execution_id: str) -> None:
    while True:
        snapshot = await engine.describe_execution(execution_id=execution_id)
        if snapshot is not None:
            now = await engine.server_time_ms()
            percent = snapshot.progress_pct
            parts = (
                snapshot.public_state.value,
                "" if percent is None else bar(percent),
                snapshot.progress_message or note(snapshot, now),
            )
            call.terminal.status("  ".join(filter(None, parts)))
        await asyncio.sleep(_LOOK_EVERY_S)
