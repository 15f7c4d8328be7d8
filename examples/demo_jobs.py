"""The tasks of the demo. A worker process loads this file: `ff worker demo_jobs:ff`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from flowfabric import Context, Fabric

ff = Fabric()


@ff.task
async def greet(name: str) -> str:
    return f"hello, {name}"


@ff.task(retries=3, backoff="500ms")
async def exchange_rate(ctx: Context, currency: str) -> float:
    """Asks a service that does not answer the first two times."""
    if ctx.attempt < 3:
        raise ConnectionError(f"the exchange did not answer (attempt {ctx.attempt})")
    return {"EUR": 1.08, "JPY": 0.0067}[currency]


@ff.task
async def render(ctx: Context, frames: int) -> str:
    """Tells how far it is."""
    for frame in range(1, frames + 1):
        await asyncio.sleep(0.1)
        await ctx.progress(100 * frame // frames, f"frame {frame} of {frames}")
    return f"{frames} frames"


@ff.step
async def write(page: int, ledger: str) -> str:
    """One page: recorded when it is done, and then never written again."""
    note(ledger, f"process {os.getpid()} writes page {page}")
    await asyncio.sleep(0.4)
    return f"page {page}"


@ff.task
async def report(ctx: Context, pages: int, ledger: str) -> str:
    """Long enough to be killed in the middle. The ledger shows which process did what."""
    done = []
    for page in range(1, pages + 1):
        await ctx.progress(100 * page // pages, f"page {page} of {pages}")
        done.append(await write(page, ledger))
    return f"a report of {len(done)} pages"


def note(ledger: str, line: str) -> None:
    with Path(ledger).open("a", encoding="utf-8") as file:
        file.write(line + "\n")
