"""The cases by name, in the order in which they are played."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from flowfabric.server.conformance.stage import Stage

Play = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that a worker must do."""

    name: str
    group: str
    play: Play
    needs_process: bool  # it ends the worker, which must be started again


CASES: Final[list[Case]] = []


def case(group: str, *, needs_process: bool = False) -> Callable[[Play], Play]:
    """Enter a function; its docstring is the name."""

    def enter(play: Play) -> Play:
        name = (play.__doc__ or "").strip().removesuffix(".")
        CASES.append(Case(name, group, play, needs_process))
        return play

    return enter
