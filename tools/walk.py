"""How far a reader walks: the files, functions and switches that one call passes through.

    python tools/walk.py                     on PostgreSQL (the test wheel's, or FF_TEST_POSTGRES)
    python tools/walk.py sqlite|memory
    python tools/walk.py --files submit      the files of one walk, in the order they are met

Each walk is made a few times first, so that caches are warm and statements prepared, and then once
under a profile of every thread. Only code of src/flowfabric counts. A coroutine's resumption counts
as a call; a layer is the first folder or module below the package.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any, NamedTuple

from flowfabric import EngineConfig, Fabric
from flowfabric.api.backend import EngineBackend
from flowfabric.api.waits import SuspendRequest
from flowfabric.model.results import Claimed
from flowfabric.model.suspension import Single

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = f"{ROOT / 'src' / 'flowfabric'}/"
STORES = ("postgres", "sqlite", "memory")
WARM_UPS = 3
LANE = "default"
# Files that a walk may cross. A walk that grows longer than this has lost its story.
LIMITS = {"submit": 28, "claim": 24, "complete": 24, "signal": 30, "cascade": 32}


class Profile:
    """Every call into the package while it records."""

    def __init__(self) -> None:
        self.calls: list[CodeType] = []
        self._is_recording = False

    def watch(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and self._is_recording and frame.f_code.co_filename.startswith(PACKAGE):
            self.calls.append(frame.f_code)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """In this thread, and in every thread that starts from now on."""
        threading.setprofile(self.watch)
        sys.setprofile(self.watch)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    async def record(self, work: Awaitable[Any]) -> Measure:
        """Await the work and say what it passed through."""
        self.calls, self._is_recording = [], True
        try:
            await work
        finally:
            self._is_recording = False
        return measured(self.calls)


class Measure(NamedTuple):
    """One walk in numbers; `names` are its files, each where it is met first."""

    names: list[str]
    functions: int
    calls: int
    file_switches: int
    layer_switches: int


def measured(calls: list[CodeType]) -> Measure:
    files = [code.co_filename.removeprefix(PACKAGE) for code in calls]
    layers = [file.split("/")[0] for file in files]
    return Measure(
        names=list(dict.fromkeys(files)),
        functions=len({(code.co_filename, code.co_qualname) for code in calls}),
        calls=len(calls),
        file_switches=_switches(files),
        layer_switches=_switches(layers),
    )


def _switches(steps: list[str]) -> int:
    return sum(before != after for before, after in pairwise(steps))


class Walks:
    """A program with one task. Each walk prepares what it needs and returns the call to measure."""

    def __init__(self, url: str) -> None:
        self.fabric = ff = Fabric(url, config=EngineConfig(loops=False))

        @ff.task
        async def greet(name: str = "ada") -> str:
            return name

        self.task = greet
        self.engine: EngineBackend

    async def open(self) -> None:
        """Start the engine that the walks below the SDK ask."""
        self.engine = await self.fabric.start()

    async def submit(self) -> Awaitable[Any]:
        return self.fabric.submit(self.task)

    async def claim(self) -> Awaitable[Any]:
        await self.fabric.submit(self.task)
        return self._claim()

    async def complete(self) -> Awaitable[Any]:
        return self._complete(await self._claimed())

    async def signal(self) -> Awaitable[Any]:
        """An approval that resumes."""
        claimed = await self._claimed()
        wish = SuspendRequest(resume_condition=Single("sign", "approved"))
        await self.engine.suspend(claimed.handle, wish)
        return self.fabric.approve(claimed.execution_id, "sign", by="ada")

    async def cascade(self) -> Awaitable[Any]:
        """The end of a member that frees one, which takes its result."""
        flow = self.fabric.flow("walk")
        first = flow.add(self.task)
        flow.add(self.task, first)
        await flow.submit()
        return self._complete(await self._claim())

    async def _claimed(self) -> Claimed:
        await self.fabric.submit(self.task)
        return await self._claim()

    async def _claim(self) -> Claimed:
        [claimed] = await self._claim_up_to(1)
        return claimed

    async def _claim_up_to(self, limit: int) -> list[Claimed]:
        return await self.engine.claim(
            lanes=[LANE], worker_id="walker", worker_instance_id="walker-1", limit=limit
        )

    async def _complete(self, claimed: Claimed) -> None:
        await self.engine.complete(claimed.handle, result=b'"done"', result_encoding="json")

    async def tidy(self) -> None:
        """Take what a walk has left to be claimed, so that the next one meets its own."""
        await self._claim_up_to(10)


async def walk(url: str) -> dict[str, Measure]:
    """Every walk on one store."""
    profile = Profile()
    found: dict[str, Measure] = {}
    with profile.installed():
        walks = Walks(url)
        async with walks.fabric:
            await walks.open()
            for name in LIMITS:
                prepare: Callable[[], Awaitable[Awaitable[Any]]] = getattr(walks, name)
                for _ in range(WARM_UPS):
                    await (await prepare())
                    await walks.tidy()
                found[name] = await profile.record(await prepare())
                await walks.tidy()
    return found


@contextmanager
def database(store: str) -> Iterator[str]:
    """The URL of an empty database."""
    if store == "memory":
        yield "memory://"
    elif store == "sqlite":
        with TemporaryDirectory(prefix="ff-walk-") as folder:
            yield f"sqlite:///{folder}/walk.db"
    else:
        sys.path.insert(0, str(ROOT))
        from tests.support.databases import postgres_server

        with postgres_server() as server, server.database() as url:
            yield url


def table(found: dict[str, Measure]) -> Iterator[str]:
    yield "walk       files  limit  functions  calls  file switches  layer switches"
    for name, each in found.items():
        yield (
            f"{name:<9}{len(each.names):>7}{LIMITS[name]:>7}{each.functions:>11}{each.calls:>7}"
            f"{each.file_switches:>15}{each.layer_switches:>16}"
        )


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools/walk.py")
    parser.add_argument("store", nargs="?", choices=STORES, default="postgres")
    parser.add_argument("--files", choices=LIMITS, help="list the files of one walk")
    given = parser.parse_args(words)
    with database(given.store) as url:
        found = asyncio.run(walk(url))
    if given.files:
        print("\n".join(found[given.files].names))
    else:
        print("\n".join(table(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
