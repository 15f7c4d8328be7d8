"""Handlers with steps, run beside a test, and what they left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from flowfabric import Fabric, JournalEntry, Run
from tests.sdk.workshop import within, working

Main = Callable[[Fabric], Coroutine[Any, Any, None]]


async def journal(ff: Fabric, run: Run[Any], **more: Any) -> tuple[JournalEntry, ...]:
    """The entries of a run, with values."""
    engine = await ff.start()
    page = await engine.read_journal(execution_id=run.id, **{"values": True, "limit": 1000, **more})
    return page.entries


async def keys(ff: Fabric, run: Run[Any]) -> list[str]:
    """Their keys."""
    return [each.key for each in await journal(ff, run)]


async def attempts(ff: Fabric, run: Run[Any]) -> list[Any]:
    """The attempts of a run, first to last."""
    engine = await ff.start()
    return list((await engine.list_attempts(execution_id=run.id)).items)


def worked(ff: Fabric, main: Main, **settings: Any) -> None:
    """Run a test with a worker beside it."""

    async def story() -> None:
        async with ff, working(ff, **settings):
            await within(main(ff))

    asyncio.run(story())
