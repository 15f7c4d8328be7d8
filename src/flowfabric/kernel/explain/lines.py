"""Where an execution stands in the line of its serial key, in words."""

from __future__ import annotations

from typing import Final

from flowfabric.model.execution import Execution
from flowfabric.model.line import LineRow
from flowfabric.model.record import Record
from flowfabric.model.shown import shown_length
from flowfabric.model.state import PublicState

COUNTED_MAX: Final = 1_000  # places ahead that are counted
_ORDINALS: Final = (
    *("first", "second", "third", "fourth", "fifth"),
    *("sixth", "seventh", "eighth", "ninth", "tenth"),
)


class LineLook(Record, frozen=True):
    """The line of an execution that waits for its turn: its head, and how many places are between
    them; at most `COUNTED_MAX` are counted."""

    line: LineRow
    head: Execution | None  # none: it is gone, or cannot be read
    between: int

    @property
    def position(self) -> int:
        """Its place; that of the head is the first."""
        return self.between + 2


def line_summary(look: LineLook, now: int) -> str:
    """Its place, and what is ahead of it.

    third in line for acme; ahead: {fp:1}:…, running 3 m
    """
    key, more = look.line.serial_key, look.between >= COUNTED_MAX
    place = f"over {COUNTED_MAX} places" if more else f"{ordinal(look.position)} in line"
    behind = f"{place} back for {key}" if more else f"{place} for {key}"
    return f"{behind}; ahead: {look.line.head_id}, {_state_of(look, now)}"


def line_hints(look: LineLook) -> tuple[str, ...]:
    """What would let the line go on."""
    head = look.line.head_id
    if look.line.held_at is not None:
        passing = f"ff line release {look.line.serial_key} lets the next one go on"
        return (f"ff retry {head} runs it again", passing)
    if look.head is not None and not look.head.is_leased:
        return (f"ff why {head}",)
    return ()


def ordinal(number: int) -> str:
    """The word for a place.

    >>> ordinal(3), ordinal(12), ordinal(21)
    ('third', '12th', '21st')
    """
    if number <= len(_ORDINALS):
        return _ORDINALS[number - 1]
    teens = 10 <= number % 100 <= 20
    ending = "th" if teens else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _state_of(look: LineLook, now: int) -> str:
    head = look.head
    if look.line.held_at is not None:
        return f"failed, and holds up the line since {_ago(look.line.held_at, now)}"
    if head is None:
        return "which is gone"
    word = "running" if head.public_state is PublicState.ACTIVE else head.public_state.value
    return f"{word.replace('_', ' ')} {_ago(head.last_transition_at, now)}"


def _ago(since: int, now: int) -> str:
    return shown_length(max(0, now - since) // 1000 * 1000)
