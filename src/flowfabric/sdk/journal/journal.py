"""The journal of one run of a handler: what it finds there, and what it adds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Final, Protocol, TypedDict, Unpack
from weakref import WeakSet

from flowfabric import limits
from flowfabric.clock import monotonic
from flowfabric.errors import JournalFull
from flowfabric.ids import derived_uuid
from flowfabric.kernel.journal.lookup import ASIDE, Asked, Contradiction, Lookup, Mismatch
from flowfabric.model.journal import (
    PATCH_PREFIX,
    UNUSED_KEY,
    CodeMark,
    EntryError,
    EntryKind,
    EntryState,
    JournalEntry,
    NewEntry,
    Settlement,
)
from flowfabric.model.record import replace, to_json
from flowfabric.model.suspension import ResumeInfo
from flowfabric.sdk.errors import JournalMismatch, Stopped
from flowfabric.sdk.journal import failures
from flowfabric.sdk.journal.failures import Failure
from flowfabric.sdk.journal.outbox import Outbox, Sender
from flowfabric.sdk.journal.room import Room
from flowfabric.sdk.journal.scopes import Scope, StepInfo
from flowfabric.sdk.journal.submits import Submits
from flowfabric.sdk.threads import Threads

_UNUSED_SHOWN: Final = 10  # keys in a line of the log
_UNUSED_MAX: Final = 1_000  # keys that are recorded
_FORMAT_OF_SPAWNS: Final = 2
_FORMAT_OF_SUBMITS: Final = 3
_LOGGER = logging.getLogger("flowfabric.task")
# Of a call of a step, the facts of this try, and the function that makes it.
Around = Callable[[Any, StepInfo, Callable[[], Awaitable[Any]]], Awaitable[Any]]


class Owner(Sender, Protocol):
    """What a journal needs of the worker that runs its handler."""

    @property
    def lapse_at(self) -> float:
        """When the lease is surely gone unless it was renewed, on the monotonic clock."""
        ...

    @property
    def home(self) -> object:
        """The task or the thread in which the handler runs."""
        ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the worker."""
        ...

    @property
    def bodies(self) -> Threads:
        """Threads for plain functions."""
        ...

    @property
    def payload_bytes_max(self) -> int:
        """How large a value may be."""
        ...

    @property
    def around(self) -> Around | None:
        """What is called in the place of each function, in tests."""
        ...

    @property
    def code_version(self) -> str | None:
        """The version of the handler."""
        ...

    def now_ms(self) -> int:
        """The store's clock, as far as the worker knows it."""
        ...


class EntryFields(TypedDict, total=False):
    """What an entry may have beside its key, its number and its times."""

    kind: EntryKind
    state: EntryState
    value: bytes | None
    digest: bytes | None
    arguments: bytes | None
    error: EntryError | None
    tries: int
    is_secret: bool
    settles: tuple[Settlement, ...]


class Journal:
    """What a handler has done, and does. Its methods are called on the loop's own thread, but for
    those that say otherwise."""

    def __init__(
        self,
        owner: Owner,
        entries: Sequence[JournalEntry] = (),
        *,
        chapter_index: int = 0,
        outcomes: Mapping[str, ResumeInfo] | None = None,
    ) -> None:
        self.owner = owner
        position = entries[-1].position + 1 if entries else 0
        self.outbox = Outbox(owner, position, CodeMark(version=owner.code_version))
        self.root = Scope(self, "", owner.home)
        self.branches: dict[asyncio.Task[Any], str] = {}  # under way, and their scopes
        self._ending: WeakSet[asyncio.Task[Any]] = WeakSet()  # cancelled by calls, not by the code
        self._withdrawn: WeakSet[asyncio.Task[Any]] = WeakSet()  # those among them that lost a race
        self.performing = 0  # calls that are being made
        self.running: dict[str, float] = {}  # their keys, and since when, on the monotonic clock
        self.watch: Callable[[str], None] | None = None  # told of each call, by a debugger
        self.outcomes = outcomes or {}  # how waits ended, by their suspensions
        # Of a chapter that another one began: the arguments of the handler.
        self.arguments: bytes | None = None
        if entries and entries[0].kind is EntryKind.CHAPTER:
            self.arguments, recorded = entries[0].value or b"", entries[1:]
        else:
            recorded = entries
        code = entries[0].code if entries else None
        self._began = None if code is None else code.version  # by which version of the code
        # Journals of an earlier release know nothing of spawns: these take no numbers there.
        self.numbers_spawns = code is None or code.format >= _FORMAT_OF_SPAWNS
        self.numbers_submits = code is None or code.format >= _FORMAT_OF_SUBMITS  # likewise
        self.submits = Submits(self)
        self.room = Room(owner)
        self._lookup = Lookup(map(self._settled, recorded))
        self.chapter_index = chapter_index
        self._sizes = list(accumulate((entry.size for entry in entries), initial=0))
        self._reached = 0  # how many entries were there when the last answered call was made
        self._bytes = self._sizes[-1]
        self._has_warned = False
        self._patches: dict[str, bool] = {}  # what was answered about changes of the code
        self.state: Any = None  # what the handler has published last, in this run
        self._failures: list[Failure] = []
        self._together: list[tuple[BaseException, list[BaseException]]] = []

    @property
    def is_blocking(self) -> bool:
        """Whether the handler is a plain function in a thread."""
        return isinstance(self.owner.home, int)

    def _settled(self, entry: JournalEntry) -> JournalEntry:
        """A wait that has ended is an answer."""
        if entry.kind is EntryKind.WAIT and entry.refers_to in self.outcomes:
            return replace(entry, state=EntryState.OK)
        return entry

    def end(self, tasks: Iterable[asyncio.Task[Any]], *, for_good: bool = False) -> None:
        """Cancel branches that are no longer needed, as every run of the handler does. `for_good`:
        no run needs them any more."""
        for task in list(tasks):
            if (path := self.branches.get(task)) is not None:
                self.pass_over_branch(path)
            self._ending.add(task)
            if for_good:
                self._withdrawn.add(task)
            task.cancel()

    def is_withdrawn(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether a branch has lost a race: what it waits for is not wanted any more."""
        return task in self._withdrawn

    def is_ending(self, task: asyncio.Task[Any]) -> bool:
        """Whether a branch was cancelled because it is no longer needed."""
        return task in self._ending

    # --- what is recorded ------------------------------------------------------------------------

    @property
    def is_replaying(self) -> bool:
        """Whether the handler is answered from what earlier runs recorded. Any thread may ask."""
        return self._lookup.is_replaying

    @property
    def unread(self) -> set[str]:
        """The keys of entries that no call has asked for."""
        return self._lookup.unread

    def ask(
        self,
        scope: Scope,
        key: str,
        *,
        kind: EntryKind = EntryKind.STEP,
        digest: bytes | None = None,
        formerly: str | None = None,
        is_aside: bool = False,
    ) -> Asked:
        """The next call of a scope, as it stands in the journal. In the thread of the scope, unless
        it `is_aside`."""
        if self.owner.is_stopped:
            raise Stopped(self.owner.claimed.execution_id)
        self.outbox.raise_error()
        if self.watch is not None:
            self.watch(key)
        found = self._lookup.ask(
            *(scope.path, key), kind=kind, digest=digest, formerly=formerly, is_aside=is_aside
        )
        if isinstance(found, Mismatch):
            raise self._mismatch(found)
        if (answer := found.answer) is None:
            self._check_room()
        else:
            self._reached = max(self._reached, answer.position + 1)
        return found

    def count(self, scope: Scope, key: str) -> None:
        """A call that leaves no entry of its own. In the thread of the scope."""
        if self.owner.is_stopped:
            raise Stopped(self.owner.claimed.execution_id)
        if (found := self._lookup.count(scope.path, key)) is not None:
            raise self._mismatch(found)

    def patched(self, scope: Scope, change: str) -> bool:
        """Whether a change of the code applies: it does where an earlier run has said so, or where
        nothing is recorded behind this place. The answer belongs to the change, not to the place.
        In the thread of the scope."""
        if self.owner.is_stopped:
            raise Stopped(self.owner.claimed.execution_id)
        key = f"{PATCH_PREFIX}{change}"
        if key not in self._patches:
            is_known = self._lookup.has_entry(key)
            self._patches[key] = is_known or not self._lookup.is_followed(scope.path)
            if self._patches[key] and not is_known:
                self.owner.loop.call_soon_threadsafe(self._mark, key)
        return self._patches[key]

    def _mark(self, key: str) -> None:
        self.add(key, ASIDE, kind=EntryKind.PATCH)

    def removed(self, scope: Scope, name: str) -> None:
        """The code had a call of this name here. In the thread of the scope."""
        self._lookup.remove(scope.path, scope.key(name).now)

    def pass_over(self, key: str) -> bool:
        """Whether there is an entry, which later runs need not ask for. In the thread of the
        scope."""
        return self._lookup.has_entry(key)

    def pass_over_branch(self, path: str) -> None:
        """What a branch has recorded that is not needed any more."""
        self._lookup.pass_over(path)

    def _mismatch(self, found: Mismatch) -> JournalMismatch:
        entry = found.recorded
        said = {
            Contradiction.INSERTED: f"stands where the recorded call {entry.key!r} is expected",
            Contradiction.KIND: f"is recorded as {entry.kind.value}",
            Contradiction.ARGUMENTS: "is recorded with other arguments",
        }[found.contradiction]
        error = self.mismatch(f"the call {found.key!r} {said}", entry)
        if found.contradiction is Contradiction.ARGUMENTS:
            error.recorded = entry
        return error

    def mismatch(self, said: str, entry: JournalEntry) -> JournalMismatch:
        """The code contradicts an entry: what is said of it, and all that an operator needs."""
        before = ", ".join(self._lookup.consumed) or "none"
        met = self.owner.code_version
        versions = ""
        if met is not None or self._began is not None:
            versions = f"; recorded by version {self._began}, met by version {met}"
        return JournalMismatch(
            f"the code of {self.owner.claimed.execution_kind} does not fit its journal: {said} "
            f"(entry {entry.position}, attempt {entry.attempt_index + 1}; answered before it: "
            f"{before}{versions})"
        )

    def _check_room(self) -> None:
        entries, size = self.outbox.count, self._bytes
        if entries >= limits.JOURNAL_ENTRIES_MAX or size >= limits.JOURNAL_BYTES_MAX:
            what = "entries" if entries >= limits.JOURNAL_ENTRIES_MAX else "bytes"
            most = limits.JOURNAL_ENTRIES_MAX if what == "entries" else limits.JOURNAL_BYTES_MAX
            detail = (
                f"{self.owner.claimed.execution_id}: {most:,} {what} are recorded; a handler goes "
                "on with an empty journal by ctx.continue_as_new, from ctx.should_continue on"
            )
            raise JournalFull(detail, limit=most)
        if _is_long(entries, size) and not self._has_warned:
            self._has_warned = True
            _LOGGER.warning(
                "%s: its journal has %d entries and %d bytes; every run of the handler reads them, "
                "and ctx.continue_as_new goes on with an empty one",
                *(self.owner.claimed.execution_id, entries, size),
            )

    @property
    def should_continue(self) -> bool:
        """Whether the chapter is long. A run that is answered from it is told what the first run
        was told at this place, which had fewer entries."""
        if self.is_replaying:
            return _is_long(self._reached, self._sizes[self._reached])
        return _is_long(self.outbox.count, self._bytes)

    # --- what is added ---------------------------------------------------------------------------

    def add(
        self, key: str, asked: int, *, began: float | None = None, **fields: Unpack[EntryFields]
    ) -> None:
        """One more entry. `began`: of the call, on the monotonic clock."""
        self.put(self.entry(key, asked, began=began, **fields))

    def put(self, entry: NewEntry) -> None:
        """One more entry, made before."""
        self.outbox.put(entry)
        self._bytes += len(entry.value or b"")

    def note_size(self, size: int) -> None:
        """The store has given the value of an entry."""
        self._bytes += size

    def entry(
        self, key: str, asked: int, *, began: float | None = None, **fields: Unpack[EntryFields]
    ) -> NewEntry:
        """An entry of a call that ends now."""
        took_ms = 0 if began is None else max(0, int((monotonic() - began) * 1000))
        return NewEntry(
            position=0,
            key=key,
            asked=asked,
            began_at=max(0, self.owner.now_ms() - took_ms),
            took_ms=took_ms,
            **fields,
        )

    def publish(self, value: Any, data: bytes) -> None:
        """What the run shows from now on. A replay of its own journal has shown it before; a fork
        shows with its first new entry what the copied ones led to. Any thread may ask."""
        if self.owner.is_stopped:
            raise Stopped(self.owner.claimed.execution_id)
        self.state = value
        is_live = not self.is_replaying
        if is_live or self.owner.claimed.forked_from is not None:
            if self.is_blocking:
                loop = self.owner.loop
                loop.call_soon_threadsafe(partial(self.outbox.publish, data, at_once=is_live))
            else:
                self.outbox.publish(data, at_once=is_live)

    async def barrier(self, key: str) -> None:
        """Nothing that others see begins before everything it may depend on is durable."""
        self.outbox.raise_error()
        await self.outbox.flush(key)
        self.check_lease()

    def check_lease(self) -> None:
        """A lease that has surely expired ends the handler, before it does anything more."""
        if self.owner.is_stopped or monotonic() >= self.owner.lapse_at:
            raise Stopped(self.owner.claimed.execution_id)

    def idempotency_key(self, key: str) -> str:
        """The same for a step on every try, attempt and recovery. Any thread may ask."""
        return derived_uuid(self.owner.claimed.execution_id, self.chapter_index, key)

    def seed(self, scope: Scope) -> str:
        """What random numbers of a scope are derived from. Any thread may ask."""
        return f"{self.owner.claimed.execution_id}\n{self.chapter_index}\n{scope.path}"

    def uuid(self, scope: Scope) -> str:
        """The next derived UUID of a scope. In the thread of the scope."""
        scope.uuids += 1
        return derived_uuid(self.seed(scope), "uuid", scope.uuids)

    def note_unused(self) -> None:
        """The handler has succeeded, and did not ask for some entries: its code has no such calls
        any more."""
        if unread := sorted(self.unread):
            _LOGGER.warning(
                "%s: recorded, and not asked for: %s",
                *(self.owner.claimed.execution_id, ", ".join(unread[:_UNUSED_SHOWN])),
            )
            value = to_json(unread[:_UNUSED_MAX])
            self.add(UNUSED_KEY, ASIDE, kind=EntryKind.UNUSED, value=value)

    # --- failures --------------------------------------------------------------------------------

    def failed(self, failure: Failure) -> None:
        """The handler meets this failure now. Any thread may say it."""
        self._failures.append(failure)

    def failed_together(self, first: BaseException, others: list[BaseException]) -> None:
        """Branches failed; the handler gets one of their exceptions. Any thread may say it."""
        self._together.append((first, others))

    def reopen(self, error: BaseException) -> None:
        """The attempt ends by this exception: the failed calls it came from are tried again by the
        next attempt. Failures that the handler caught are history."""
        if not self._failures:
            return
        causes = {id(each) for each in self._causes(error)}
        for each in self._failures:
            if id(each.exception) in causes:
                self.add(
                    each.key,
                    each.asked,
                    kind=each.kind,
                    state=EntryState.REOPENED,
                    digest=each.digest,
                    error=each.error,
                    tries=each.tries,
                )
        self._failures.clear()

    def _causes(self, error: BaseException) -> list[BaseException]:
        found = list(failures.chain_of(error))
        known = {id(each) for each in found}
        for first, others in self._together:
            if id(first) in known:
                found += [cause for each in others for cause in failures.chain_of(each)]
        return found


def _is_long(entries: int, size: int) -> bool:
    return entries >= limits.JOURNAL_ENTRIES_WARN or size >= limits.JOURNAL_BYTES_WARN
