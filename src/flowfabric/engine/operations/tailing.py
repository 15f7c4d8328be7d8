"""Waiting for what an attempt shows or logs, whichever it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from flowfabric import limits
from flowfabric.api.hints import wait_event
from flowfabric.clock import stopwatch
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.waiting import left_s
from flowfabric.engine.tails import LOOKED_AT_S, Reached, Subject
from flowfabric.model.checks import check_integer


class Page(Protocol):
    """A part of what there is to read."""

    @property
    def has_news(self) -> bool:
        """Whether it tells anything."""
        ...

    @property
    def next_cursor(self) -> str:
        """Where to read on."""
        ...


P = TypeVar("P", bound=Page)


async def tail(
    machine: Machine,
    subject: Subject,
    after: Reached,
    wait_s: float,
    read: Callable[[Reached], Awaitable[tuple[P, Reached]]],
) -> P:
    """Read, and read again when woken, until there is something, the end, or no time left.

    A tail that goes on where one has just ended in vain begins with its last page: thousands of
    idle tails do not read each time they ask again.
    """
    if wait_s <= 0:
        return (await read(after))[0]
    until = stopwatch() + wait_s
    with machine.tails.waiting(subject, after) as waiting:
        page: P | None = machine.tails.last_page(subject, after)
        while page is None or await wait_event(waiting.bell, left_s(until)):
            page, waiting.place = await read(waiting.place)
            if page.has_news:
                return page
        if wait_s >= LOOKED_AT_S:
            machine.tails.note_idle(subject, page)
        return page


def check_attempt(value: object) -> int:
    """The index of an attempt."""
    return check_integer(value, field="attempt_index", least=0, most=limits.RETRIES_MAX * 4)


def check_wait_s(value: object) -> float:
    """How long to wait at most."""
    return check_integer(value, field="wait_ms", least=0, most=limits.TAIL_MS_MAX) / 1000
