"""Faults that a test plants: crashes, a store that is away, replies that are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from flowfabric.api.journal import Checkpoint, LoadJournal
from flowfabric.api.leases import Claim, Renew
from flowfabric.api.operation import Request
from flowfabric.errors import InvalidInput, OutcomeUnknown, StoreUnavailable
from flowfabric.model.checks import check_integer
from flowfabric.model.handle import Handle
from flowfabric.model.journal import NewEntry
from flowfabric.model.shown import shown
from flowfabric.testing.hands import Hand
from flowfabric.testing.line import Line

Place = Literal["body", "checkpoint", "commit"]
_PLACES: Final = ("body", "checkpoint", "commit")
Note = Callable[[Handle, NewEntry], None]
_NO_NEWS: Final = (Claim, Renew, Checkpoint, LoadJournal)


def name_of(key: str) -> str:
    """The name of the step that a key belongs to.

    >>> name_of("gather#2/0/fetch#3"), name_of("mail[a/b]"), name_of("charge")
    ('fetch', 'mail', 'charge')
    """
    return key.partition("[")[0].rpartition("/")[2].partition("#")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """A worker that dies at a step; the arguments of `fabric.crash`."""

    before: str | None = None
    after: str | None = None
    nth: int = 1
    at: Place = "body"

    def __post_init__(self) -> None:
        if (self.before is None) == (self.after is None):
            raise InvalidInput("crash: name a step, before= or after=", field="before")
        if self.at not in _PLACES:
            words = ", ".join(_PLACES)
            raise InvalidInput(f"at: {shown(self.at)} is not one of {words}", field="at")
        if self.before is not None and self.at != "body":
            detail = "at: checkpoint and commit come after a step; write after="
            raise InvalidInput(detail, field="at")
        check_integer(self.nth, field="nth", least=1, most=1_000_000)

    @property
    def place(self) -> str:
        """Where it happens."""
        return "before" if self.before is not None else self.at

    def fits(self, key: str) -> bool:
        """Whether this is its step."""
        wanted = self.before if self.before is not None else self.after
        return wanted in (key, name_of(key))


class _Planted:
    """A crash, and how often its place was passed."""

    def __init__(self, crash: Crash) -> None:
        self.crash = crash
        self.left = crash.nth

    def strikes(self, place: str, key: str) -> bool:
        if self.left == 0 or place != self.crash.place or not self.crash.fits(key):
            return False
        self.left -= 1
        return self.left == 0


class Faults:
    """What a test has planted. Implements `line.Trouble`."""

    def __init__(self, now: Callable[[], float], note: Note) -> None:
        self._now = now
        self._note = note
        self._planted: list[_Planted] = []
        self._lost_replies: list[int] = []  # how many replies until the one that is lost
        self.down_until: float | None = None
        self.has_news = False  # whether work may have become ready since workers last looked
        self.hands: dict[Line, Hand] = {}

    def plant(self, crash: Crash) -> None:
        """A worker will die."""
        self._planted.append(_Planted(crash))

    def lose_reply(self, nth: int) -> None:
        """The nth reply to a checkpoint or a report, from now on, is lost."""
        self._lost_replies.append(check_integer(nth, field="nth", least=1, most=1_000_000))

    @property
    def unused(self) -> list[Crash]:
        """Crashes that did not happen."""
        return [each.crash for each in self._planted if each.left]

    @property
    def is_down(self) -> bool:
        """Whether the store is away."""
        if self.down_until is not None and self._now() >= self.down_until:
            self.down_until = None
        return self.down_until is not None

    # --- at a step -------------------------------------------------------------------------------

    async def at_body(self, hand: Hand, place: str, key: str) -> None:
        """A function is about to be called, or has returned. A dead worker goes no further."""
        if self._strikes(place, key):
            hand.die()
        await self._alive(hand)

    def _strikes(self, place: str, key: str) -> bool:
        # Each of them counts.
        return sum(each.strikes(place, key) for each in self._planted) > 0

    async def _alive(self, hand: Hand) -> None:
        while hand.paused_until is not None and not hand.is_dead:
            await hand.go_on.wait()
        if hand.is_dead:
            await hand.line.silence()

    # --- on the line -----------------------------------------------------------------------------

    async def before(self, line: Line, requests: Sequence[Request[Any]]) -> None:
        """A worker asks its store."""
        hand = self.hands[line]
        await self._alive(hand)
        if self.is_down:
            raise StoreUnavailable("the test has taken the store away")
        for handle, entry in _entries(requests):
            self._note(handle, entry)
            if self._strikes("checkpoint", entry.key):
                hand.die()
        await self._alive(hand)

    async def after(self, line: Line, requests: Sequence[Request[Any]]) -> None:
        """The store has answered."""
        hand = self.hands[line]
        self.has_news = self.has_news or not isinstance(requests[0], _NO_NEWS)
        for _, entry in _entries(requests):
            if self._strikes("commit", entry.key):
                hand.die()
        await self._alive(hand)
        if self._lost_replies and any(hasattr(each, "entries") for each in requests):
            self._lost_replies = [left - 1 for left in self._lost_replies]
            if 0 in self._lost_replies:
                self._lost_replies.remove(0)
                raise OutcomeUnknown("the test has lost the reply")


def _entries(requests: Sequence[Request[Any]]) -> Iterator[tuple[Handle, NewEntry]]:
    for request in requests:
        for entry in getattr(request, "entries", None) or ():
            yield request.handle, entry  # type: ignore[attr-defined]
