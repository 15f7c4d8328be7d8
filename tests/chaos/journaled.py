"""Handlers with steps that can be killed, and where their bodies note what they did.

Each run of a body returns another word, so a result that was lost can be told from the one that
was recorded; and each effect notes the words it depends on.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from flowfabric import Context, Fabric, SyncContext
from flowfabric.config import EngineConfig
from flowfabric.ids import new_secret_id
from flowfabric.sdk.journal.scopes import RUNNING, current_step
from tests.chaos.journeys import add_journeys
from tests.chaos.processes import whole_lines
from tests.support.effects import Effect, digest_of

STEPS = 10
LEASE = "1s"
BUDGET = "calls"  # of the steps that spend
RECOVERIES = 1_000  # kills must not use them up


class Notes:
    """A file to which one process appends, a line in one write. A kill loses no whole line."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self.count = 0

    def add(self, effect: Effect) -> None:
        """One line."""
        os.write(self._file, msgspec.json.encode(effect) + b"\n")
        self.count += 1


def read_notes(folder: Path) -> list[Effect]:
    """What the bodies of all processes did, in the order of each process."""
    return [
        msgspec.json.decode(line, type=Effect)
        for path in sorted(folder.glob("*.notes"))
        for line in whole_lines(path)
    ]


class Book:
    """What the bodies of one process note."""

    def __init__(self, notes: Notes, on_effect: Callable[[Effect], None]) -> None:
        self._notes = notes
        self._on_effect = on_effect
        self._known: dict[str, tuple[object, list[str]]] = {}  # by execution, with its handler

    def done(self, *arguments: Any, has_effects: bool = True, fails: bool = False) -> str:
        """Note the body that runs here with these arguments, first the words it depends on; its
        result, another word each time."""
        claimed, step = RUNNING.get().claimed, current_step()
        result = f"{step.key}={new_secret_id()}"
        # A later try has the same inputs, whatever came in between.
        known = list(self._known_here()) if step.attempt == 1 else []
        effect = Effect(
            execution_id=claimed.execution_id,
            key=step.key,
            epoch=claimed.lease_epoch,
            attempt=step.attempt,
            has_effects=has_effects,
            inputs=arguments[0],
            known=known,
            result=None if fails else result,
            digest=digest_of(*arguments),
        )
        self._notes.add(effect)
        self._on_effect(effect)
        return result

    def failing(self, *arguments: Any, kind: type[Exception], fails: bool) -> str:
        """The same for a body that may raise."""
        result = self.done(*arguments, fails=fails)
        if fails:
            raise kind("no")
        return result

    def given(self, result: str) -> str:
        """The handler was given a result: what begins later may depend on it."""
        self._known_here().append(result)
        return result

    def _known_here(self) -> list[str]:
        """What the handler that runs here was given, also before a wait in which it was kept."""
        held = RUNNING.get()
        handler, known = self._known.get(held.claimed.execution_id, (None, []))
        if handler is not held:
            handler, known = self._known[held.claimed.execution_id] = held, []
        return known


class Declined(Exception):
    """A body that does not want to."""


class Steps:
    """The steps of the handlers."""

    def __init__(self, ff: Fabric, book: Book) -> None:
        self.given = book.given

        @ff.step
        async def effect(inputs: list[str]) -> str:
            return book.done(inputs)

        @ff.step(effects=False)
        async def read(inputs: list[str]) -> str:
            await asyncio.sleep(random.random() / 500)
            return book.done(inputs, has_effects=False)

        @ff.step(retries=2, backoff="1ms", raises=[Declined])
        async def moody(inputs: list[str], ends_badly: bool) -> str:
            fails = ends_badly or current_step().attempt < 2
            return book.failing(inputs, ends_badly, kind=Declined, fails=fails)

        @ff.step
        async def stubborn(inputs: list[str]) -> str:
            return book.failing(inputs, kind=ConnectionError, fails=random.random() < 0.5)

        def plain_effect(inputs: list[str]) -> str:
            return book.done(inputs)

        self.effect, self.read, self.moody, self.stubborn = effect, read, moody, stubborn
        self.plain_effect = plain_effect

    async def side(self, first: str, name: str) -> list[str]:
        """A branch of several steps."""
        a = self.given(await self.effect([first, name]))
        b = self.given(await self.read([a]))
        return [a, b, self.given(await self.effect([a, b]))]

    async def branch(self, ctx: Context, first: str, name: str) -> list[str]:
        """The same in a task of the handler's own."""
        async with ctx.branch(name):
            return await self.side(first, name)

    async def second_thoughts(self, first: str, second: str) -> str:
        """A failure that the handler catches."""
        try:
            return await self.moody([first], True)
        except Declined:
            return self.given(await self.effect([second]))


def journaled_fabric(
    url: str, notes: Notes, on_effect: Callable[[Effect], None] = lambda effect: None
) -> Fabric:
    """With its tasks; `on_effect` is called inside of each body."""
    ff = Fabric(url, config=EngineConfig(pool_size=3, poll_interval_ms=200))
    book = Book(notes, on_effect)
    steps = Steps(ff, book)

    @ff.task(recoveries=RECOVERIES)
    async def ten(count: int) -> list[str]:
        found: list[str] = []
        for _ in range(count):
            found.append(steps.given(await steps.effect(found[-1:])))
        return found

    @ff.task(recoveries=RECOVERIES)
    def ten_in_a_thread(ctx: SyncContext, count: int) -> list[str]:
        found: list[str] = []
        for _ in range(count):
            found.append(ctx.step("plain_effect", steps.plain_effect, found[-1:]))
        return found

    @ff.task(recoveries=RECOVERIES, retries=1_000, backoff="1ms")
    async def tangle(ctx: Context) -> dict[str, Any]:
        """A bit of everything."""
        first = steps.given(await steps.effect([]))
        second = steps.given(await steps.read([first]))
        beside = asyncio.create_task(steps.branch(ctx, first, "left"))
        calls = [steps.side(first, "x"), steps.side(first, "y"), steps.moody([second], False)]
        sides = await ctx.gather(*calls)
        left = await beside
        mapped = await ctx.map(lambda each: steps.effect([second, each]), ["p", "q", "r"], limit=2)
        caught = await steps.second_thoughts(first, second)
        plain = ctx.step("plain_effect", steps.plain_effect, [caught])
        together = await asyncio.gather(steps.read([caught]), plain)
        await steps.stubborn([caught])  # not caught: it ends the attempt
        return {
            "line": [first, second, caught, *together],
            "sides": sides,
            "left": left,
            "mapped": mapped,
            "last": await steps.effect([each for side in sides[:2] for each in side]),
        }

    @ff.step(spend={BUDGET: {"tokens": 9}}, actual=lambda _: {"tokens": 1})
    async def pay(inputs: list[str]) -> str:
        return book.done(inputs)

    @ff.task(recoveries=RECOVERIES)
    async def noted(word: str) -> str:
        return word

    @ff.task(recoveries=RECOVERIES)
    async def paying(count: int) -> list[str]:
        """Steps that spend, each followed by a submit."""
        ids: list[str] = []
        words: list[str] = []
        for _ in range(count):
            words.append(steps.given(await pay(words[-1:])))
            ids.append((await ff.submit(noted, words[-1])).id)
        return ids

    add_journeys(ff, steps, {"recoveries": RECOVERIES, "retries": 1_000, "backoff": "1ms"})
    return ff


TANGLE: dict[str, Any] = {
    "line": ["effect", "read", "effect#2", "read#2", "plain_effect"],
    "sides": [
        ["gather/0/effect", "gather/0/read", "gather/0/effect#2"],
        ["gather/1/effect", "gather/1/read", "gather/1/effect#2"],
        "moody",
    ],
    "left": ["left/effect", "left/read", "left/effect#2"],
    "mapped": ["map/0/effect", "map/1/effect", "map/2/effect"],
    "last": "effect#3",
}
