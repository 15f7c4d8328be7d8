"""What a replayed handler has in the place of a worker and a store.

It is answered by a journal; what it would record, and what it waits for, is noted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NoReturn, TypeVar, cast

from flowfabric.api.admin import ServerTimeMs
from flowfabric.api.backend import EngineBackend
from flowfabric.api.control import CancelExecution
from flowfabric.api.executions import ReadOutcomes
from flowfabric.api.hints import Bell
from flowfabric.api.journal import LoadJournal
from flowfabric.api.leases import Progress
from flowfabric.api.operation import Request
from flowfabric.api.waits import CloseWaitpoint, ReadWaitpointToken
from flowfabric.errors import FlowFabricError
from flowfabric.model.journal import EntryKind, JournalEntry, JournalPage, NewEntry
from flowfabric.model.record import Record
from flowfabric.model.results import BackendCapabilities, Outcome
from flowfabric.model.state import PublicState
from flowfabric.model.suspension import Token
from flowfabric.sdk.journal.journal import Journal
from flowfabric.sdk.journal.outbox import Outbox
from flowfabric.sdk.journal.room import Room, Waiter
from flowfabric.sdk.journal.scopes import RUNNING, Scope
from flowfabric.sdk.worker.held import Held
from flowfabric.testing.faults import name_of

R = TypeVar("R")
T = TypeVar("T")
_STEPS: Final = (EntryKind.STEP, EntryKind.STARTED, EntryKind.RETRYING)
_WAITS: Final = (EntryKind.WAIT, EntryKind.ENDED)
# Requests that change nothing a handler sees: their replies are not looked at.
_UNHEARD: Final = (CloseWaitpoint, CancelExecution, Progress)
_NO_TOKEN: Final = Token("replay")


class Reached(BaseException):
    """A handler in a thread has come to the end of its journal."""


class End(Record, frozen=True):
    """The end of another execution, as the handler saw it: what it returned, and when."""

    result: bytes | None
    at: int = 0


class _Ended(Record, frozen=True):
    """As much of an ended execution as a handler that waits for its result looks at."""

    public_state: PublicState = PublicState.COMPLETED


@dataclass(frozen=True, slots=True)
class Noted:
    """A call whose answer the journal does not have, or an entry that the handler adds."""

    key: str
    kind: EntryKind
    digest: bytes | None = None
    was: str | None = None

    def contradicts(self, entry: JournalEntry) -> str | None:
        """How it differs from what is recorded."""
        if self.kind is not entry.kind and not (self.kind in _STEPS and entry.kind in _STEPS):
            return f"is of the kind {self.kind.value}, and recorded as {entry.kind.value}"
        if self.kind is EntryKind.WINNER:
            return None  # which one wins is chance, until it is recorded
        if None not in (self.digest, entry.digest) and self.digest != entry.digest:
            return "has other arguments than the recorded call"
        return None

    def is_for(self, entry: JournalEntry) -> bool:
        """Whether the entry is this call's."""
        return self.key == entry.key or (self.was is not None and self.was == name_of(entry.key))


class Tape(EngineBackend):
    """In the place of a store: it has a journal and the results of other executions, and notes what
    it cannot answer."""

    def __init__(
        self, page: JournalPage, now_ms: int, ends: Mapping[str, End], *, raises: bool
    ) -> None:
        self._page = page
        self._now_ms = now_ms
        self._ends = ends
        self._raises = raises
        self._results: list[tuple[int, asyncio.Future[None]]] = []  # that a handler waits for
        self._ends_here: list[asyncio.Future[None]] = []
        self.asked: list[str] = []
        self.noted: list[Noted] = []  # entries that the handler added
        self.waits: list[Noted] = []  # waits that are not over
        self.is_vague = False  # it was given what only a store knows: arguments may differ

    async def call(self, request: Request[R]) -> R:
        """What a journal answers; anything else ends the replay."""
        if isinstance(request, LoadJournal):
            return self._page  # type: ignore[return-value]
        if isinstance(request, ServerTimeMs):
            return self._now_ms  # type: ignore[return-value]
        if isinstance(request, ReadOutcomes):
            return await self._outcomes(request.execution_ids)  # type: ignore[return-value]
        if isinstance(request, ReadWaitpointToken):
            self.is_vague = True
            return _NO_TOKEN  # type: ignore[return-value]
        if isinstance(request, _UNHEARD):
            return None  # type: ignore[return-value]
        return await self.refuse(request)

    async def refuse(self, request: Request[Any]) -> NoReturn:
        """No journal answers it: what follows cannot be seen."""
        self.asked.append(type(request).__name__)
        await self.end()

    async def end(self) -> NoReturn:
        """Never return to the handler."""
        if self._raises:
            raise Reached
        self._ends_here.append(asyncio.get_running_loop().create_future())
        await self._ends_here[-1]
        raise Reached

    async def _outcomes(self, ids: Sequence[str]) -> dict[str, Outcome]:
        """Results of others come when nothing else moves, in the order in which they came."""
        if not ids:
            return {}
        found = [self._ends.get(each) for each in ids]
        ended = [each for each in found if each is not None]
        if len(ended) < len(found):
            self.asked.append(ReadOutcomes.__name__)
            await self.end()
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._results.append((max(each.at for each in ended), told))
        await told
        success = cast("Any", _Ended())
        return {key: Outcome(success, each.result) for key, each in zip(ids, ended, strict=True)}

    def next_result(self) -> bool:
        """Tell the first result that is waited for; False if there is none."""
        self._results = [each for each in self._results if not each[1].done()]
        if not self._results:
            return False
        first = min(self._results, key=lambda each: each[0])
        first[1].set_result(None)
        return True

    def leave(self) -> None:
        """No answer comes any more."""
        for _, told in self._results:
            if self._raises and not told.done():
                told.set_exception(Reached())
        for each in self._ends_here:
            each.cancel()

    async def call_many(self, requests: Sequence[Request[R]]) -> list[R | FlowFabricError]:
        """Each by itself."""
        return [*[await self.call(request) for request in requests]]

    def listen(self, topics: Iterable[str]) -> AbstractContextManager[Bell]:
        """Nothing is told."""
        return nullcontext(Bell())

    def follow(self, told: Callable[[Mapping[str, int]], None]) -> Callable[[], None]:
        """Nothing is told."""
        return lambda: None

    def again(self) -> EngineBackend:
        """The same."""
        return self

    @property
    def home_namespace(self) -> str:
        """Any."""
        return "default"

    def at_home_in(self, namespace: str) -> EngineBackend:
        """The same."""
        return self

    def backend_label(self) -> str:
        """It is none of the stores."""
        return "replay"

    def capabilities(self) -> BackendCapabilities:
        """None."""
        return BackendCapabilities("replay", "", 0, {})

    async def start(self, *, migrate: bool = True) -> None:
        """There is nothing to open."""

    async def close(self) -> None:
        """There is nothing to close."""


class _NotingOutbox(Outbox):
    """Nothing is sent: what would be recorded is noted."""

    def __init__(self, sender: Any, position: int, tape: Tape) -> None:
        super().__init__(sender, position)
        self._tape = tape

    def put(self, entry: NewEntry) -> None:
        """The handler goes on, as it does before an entry is durable."""
        self._position += 1
        self._tape.noted.append(Noted(entry.key, entry.kind, entry.digest))

    def publish(self, state: bytes, *, at_once: bool = True) -> None:
        """No reader is told."""

    async def room(self) -> None:
        """Nothing waits here."""

    async def carry(
        self, entries: Sequence[NewEntry], send: Callable[[tuple[NewEntry, ...]], Awaitable[T]]
    ) -> T:
        """What would come with them does not come."""
        if not entries:
            return await send(())
        for entry in entries:
            self.put(entry)
        return await self._tape.end()


class _StillRoom(Room):
    """No wait ends here that the journal does not end."""

    def __init__(self, owner: Any, tape: Tape) -> None:
        super().__init__(owner)
        self._tape = tape

    async def wait(self, waiter: Waiter) -> NoReturn:
        """For ever."""
        await self._tape.end()


class _ReplayedJournal(Journal):
    """A journal that is not added to."""

    def __init__(self, owner: Replayed, *given: Any, **more: Any) -> None:
        super().__init__(owner, *given, **more)
        self._tape = owner.tape
        self.outbox = _NotingOutbox(owner, self.outbox.count, owner.tape)
        self.room = _StillRoom(owner, owner.tape)

    def ask(
        self,
        scope: Scope,
        key: str,
        *,
        kind: EntryKind = EntryKind.STEP,
        digest: bytes | None = None,
        formerly: str | None = None,
        is_aside: bool = False,
    ) -> Any:
        """As every journal; a wait that is not over is noted."""
        tape = self._tape
        found = super().ask(
            *(scope, key),
            kind=kind,
            digest=None if tape.is_vague else digest,
            formerly=formerly,
            is_aside=is_aside,
        )
        if kind in _WAITS and found.answer is None:
            tape.waits.append(Noted(key, kind))
        return found


class Replayed(Held):
    """A handler that is answered by a tape alone."""

    journal_type: ClassVar[type[Journal]] = _ReplayedJournal
    mismatch: str | None = None
    watch: Callable[[str], None] | None = None  # told of each call

    @property
    def tape(self) -> Tape:
        """What answers it."""
        return cast("Tape", self.desk.engine)

    async def load_journal(self) -> None:
        """Before the handler is called."""
        await super().load_journal()
        if self.watch is not None:
            self.journal.watch = self.watch

    async def recorded_arguments(self, entry: JournalEntry) -> bytes | None:
        """As far as the history has them."""
        return entry.arguments

    async def hold(self, why: str) -> None:
        """The journal does not fit."""
        self.mismatch = why

    def is_served_by(self, engine: EngineBackend) -> bool:
        """Calls of the program's own fabric come here, too."""
        return not self.is_finished

    async def _uninterrupted(self, operation: Coroutine[Any, Any, T]) -> T:
        """No reply comes that would have to be waited for."""
        return await operation


def replayed_here() -> Replayed | None:
    """The handler whose task or thread this is, if it is replayed."""
    found = RUNNING.get()
    return found if isinstance(found, Replayed) else None


class Nowhere(Tape):
    """In the place of the store of a program whose handlers are replayed: nothing is opened."""

    def __init__(self) -> None:
        super().__init__(JournalPage((), 0, 0), 0, {}, raises=False)

    async def call(self, request: Request[R]) -> R:
        """By the tape of the handler that calls."""
        replayed = replayed_here()
        return await (self if replayed is None else replayed.tape).refuse(request)
