"""What a run of a handler finds in its journal: the answer to a call, nothing, or a contradiction.

Calls are found by their keys, so most changes of code need nothing. Numbers tell the rest: each
call has one in its scope, counted on from the last call that was answered. A call without an entry
whose number belongs to an entry that no call has read was put in front of it by a change of the
code. That holds for a wait and a `once` step that were begun, too; not for a step that keeps
failing, which a change may replace. A number without an entry was in flight when the last run
ended.

A call with a key of its own in another task than its scope's may come before or after any other:
it has no number.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from flowfabric.model.journal import EntryKind, EntryState, JournalEntry
from flowfabric.model.record import Record

_ANSWERS = (EntryState.OK, EntryState.FAILED)
_STEP = (EntryKind.STEP, EntryKind.STARTED, EntryKind.RETRYING)
_WAITS = (EntryKind.WAIT, EntryKind.WAITPOINT, EntryKind.ENDED, EntryKind.MESSAGE)
_BEGUN = (*_WAITS, EntryKind.STARTED)  # without an end: no call may take their places
ASIDE: Final = (1 << 30) - 1  # in the place of a number, which no call ever has


class Contradiction(StrEnum):
    """How code and journal disagree."""

    INSERTED = "inserted"  # a new call stands before one that is recorded
    KIND = "kind"  # the entry records something else
    ARGUMENTS = "arguments"  # the same call had other arguments


class Mismatch(Record, frozen=True):
    """A call that does not fit the journal."""

    contradiction: Contradiction
    key: str  # of the call
    recorded: JournalEntry  # the entry it contradicts


class Asked(Record, frozen=True):
    """A call as it stands in the journal: its number in its scope, and its entry if it has one."""

    number: int
    entry: JournalEntry | None = None

    @property
    def answer(self) -> JournalEntry | None:
        """The entry, if it says how the call ended."""
        entry = self.entry
        return entry if entry is not None and entry.state in _ANSWERS else None


class Lookup:
    """The entries of one journal, and how far a run has come in them."""

    def __init__(self, entries: Iterable[JournalEntry] = ()) -> None:
        self._by_key: dict[str, JournalEntry] = {}
        self._keys: dict[tuple[str, int], str] = {}  # by scope and number
        self._follower: str | None = None  # what the last run asked for after the last entry
        self._seen: set[str] = set()  # keys that were asked for and have no answer
        for entry in entries:
            self._follower = entry.next_key
            if entry.kind is EntryKind.UNUSED:
                continue  # for people: no call asks for it
            self._by_key[entry.key] = entry  # the last one counts
            self._keys[scope_of(entry.key), entry.asked] = entry.key
        self._unread = {key for key, entry in self._by_key.items() if entry.state in _ANSWERS}
        self._begun = {  # likewise, but nothing is answered from them
            key
            for key, entry in self._by_key.items()
            if entry.state is EntryState.OPEN and entry.kind in _BEGUN
        }
        self._reached: dict[str, int] = {}  # the number of the last call of each scope
        self._is_live = not self._unread
        self.consumed: list[str] = []  # keys of the last calls that were answered

    @property
    def is_replaying(self) -> bool:
        """Whether calls are answered from entries: every one so far was, and more are there."""
        return not self._is_live

    @property
    def unread(self) -> set[str]:
        """The keys of entries that no call has asked for."""
        return self._unread

    def ask(
        self,
        scope: str,
        key: str,
        *,
        kind: EntryKind = EntryKind.STEP,
        digest: bytes | None = None,
        formerly: str | None = None,
        is_aside: bool = False,
    ) -> Asked | Mismatch:
        """The next call of a scope. `formerly`: the key it had before it was renamed. `is_aside`:
        it may come at any time, and takes no number."""
        entry = self._by_key.get(key)
        if entry is None and formerly is not None:
            entry = self._by_key.get(formerly)
        if entry is None:
            number = ASIDE
            if not is_aside:
                if (found := self.count(scope, key)) is not None:
                    return found
                number = self._reached[scope]
            # Of children that all ended with a result nothing is recorded but their spawn.
            self._is_live = self._is_live or kind is not EntryKind.ENDED or not self._unread
            self._seen.add(key)
            return Asked(number)
        if entry.kind is not kind and not (kind in _STEP and entry.kind in _STEP):
            return Mismatch(Contradiction.KIND, key, entry)
        if digest is not None and entry.digest is not None and digest != entry.digest:
            return Mismatch(Contradiction.ARGUMENTS, key, entry)
        if entry.asked != ASIDE:
            self._reached[scope] = entry.asked
        self._read(entry.key)
        if entry.state in _ANSWERS:
            self.consumed = [*self.consumed[-2:], key]
            self._is_live = self._is_live or not self._unread
        else:
            # A wait that is not over keeps its own branch back; others go on with the replay.
            self._is_live = self._is_live or entry.kind not in _WAITS or not self._unread
        return Asked(entry.asked, entry)

    def has_entry(self, key: str) -> bool:
        """Whether anything is recorded under a key; asking reads it."""
        self._read(key)
        return key in self._by_key

    def _read(self, key: str) -> None:
        self._unread.discard(key)
        self._begun.discard(key)

    def pass_over(self, scope: str) -> None:
        """Nothing asks for what is recorded in a scope, or below it."""
        self._unread = {key for key in self._unread if not key.startswith(f"{scope}/")}
        self._begun = {key for key in self._begun if not key.startswith(f"{scope}/")}

    def is_followed(self, scope: str) -> bool:
        """Whether something was asked for in a scope, or below it, behind the calls made so far."""
        prefix = f"{scope}/" if scope else ""
        if any(key.startswith(prefix) for key in self._unread | self._begun):
            return True
        follower = self._follower
        return follower is not None and follower.startswith(prefix) and follower not in self._seen

    def remove(self, scope: str, key: str) -> None:
        """The code has no such call any more: it takes the place it had."""
        if (entry := self._by_key.get(key)) is None:
            return
        self._read(key)
        if entry.asked != ASIDE:
            self._reached[scope] = entry.asked
        self._is_live = self._is_live or not self._unread

    def count(self, scope: str, key: str) -> Mismatch | None:
        """A call that takes a number and leaves no entry, such as the beginning of branches."""
        number = self._reached.get(scope, -1) + 1
        expected = self._keys.get((scope, number))
        if expected in self._unread or expected in self._begun:
            return Mismatch(Contradiction.INSERTED, key, self._by_key[expected])
        self._reached[scope] = number
        return None


def scope_of(key: str) -> str:
    """The scope of a key.

    >>> scope_of("gather#2/0/fetch"), scope_of("fetch"), scope_of("mail[a/b]")
    ('gather#2/0', '', '')
    """
    plain = key.partition("[")[0]
    return plain.rpartition("/")[0]
