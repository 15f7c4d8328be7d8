"""Waits for the ends of executions: children, and runs of any kind.

A result never changes, so another run of the handler reads it again; of executions that are no
children the journal notes that they were waited for. How one ended without a result may change,
since an operator can let it run again: that is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from flowfabric.errors import NotFound, WaitTimeout
from flowfabric.model.handle import HandleKind
from flowfabric.model.journal import EntryError, EntryKind, EntryState
from flowfabric.model.record import Record, to_json
from flowfabric.model.results import Outcome
from flowfabric.model.state import PublicState
from flowfabric.model.suspension import ResumeCause, ResumeInfo
from flowfabric.sdk.errors import RunCancelled, RunError, RunExpired, RunFailed
from flowfabric.sdk.journal.interruption import interruptible
from flowfabric.sdk.journal.journal import Journal
from flowfabric.sdk.journal.room import Waiter
from flowfabric.sdk.journal.scopes import Scope, own_scope
from flowfabric.sdk.run import error_of, read_result
from flowfabric.sdk.task import Task

Wanted = tuple[str, Task[..., Any] | None]  # an execution, and the task that tells its result


class Lost(Record, frozen=True):
    """How an execution ended without a result."""

    code: str
    detail: str
    fields: dict[str, Any]


# None: it ended with a result, which is read again.
_ENDED: Final[msgspec.json.Decoder[dict[str, Lost | None]]] = msgspec.json.Decoder(
    dict[str, Lost | None]
)
_UNTIL: Final[msgspec.json.Decoder[int]] = msgspec.json.Decoder(int)


class Ends:
    """The ends that one run of a handler waits for."""

    __slots__ = ("_own", "_owner", "_spawned")

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._own: set[str] = set()  # children that are surely this execution's
        self._spawned: dict[str, bool] = {}  # children of this run: whether their end is known

    def know(self, children: Sequence[str], *, is_own: bool) -> None:
        """These are children; `is_own`: of this execution, and of no other that it was forked
        from."""
        for each in children:
            self._spawned.setdefault(each, False)
        if is_own:
            self._own.update(children)

    def call(self, scope: Scope, wanted: Sequence[Wanted]) -> EndsCall:
        """One wait, with its place among the calls of the handler. In the thread of the scope."""
        return EndsCall(self, self._owner, scope, wanted)

    def note(self, ended: Iterable[str]) -> None:
        """These have ended."""
        for each in ended:
            if each in self._spawned:
                self._spawned[each] = True

    def has(self, execution_id: str) -> bool:
        """Whether it is a child of this run, which the entry of its spawn names."""
        return execution_id in self._spawned

    def is_over(self, execution_id: str) -> bool:
        """Whether a child is known to have ended."""
        return self._spawned.get(execution_id, False)

    def is_all(self, ids: Iterable[str]) -> bool:
        """Whether these are children, and no other one may still run."""
        wanted = set(ids)
        left = {each for each, is_over in self._spawned.items() if not is_over}
        return wanted <= self._own and left <= wanted


class EndsCall:
    """A wait for executions, as it stands in the journal."""

    __slots__ = ("_asked", "_ends", "_journal", "_key", "_owner", "_scope", "_wanted")

    def __init__(self, ends: Ends, owner: Any, scope: Scope, wanted: Sequence[Wanted]) -> None:
        self._ends = ends
        self._owner = owner
        self._journal: Journal = owner.journal
        self._scope = scope
        self._wanted = wanted
        self._key = scope.key("ended").now
        self._asked = self._journal.ask(scope, self._key, kind=EntryKind.ENDED, is_aside=True)

    async def answers(self, timeout_ms: int | None = None) -> list[Any]:
        """The result of each, or how it was lost."""
        answer = self._asked.answer
        if answer is not None and answer.state is EntryState.FAILED:
            raise self._timed_out()
        known = {} if answer is None else _ENDED.decode(answer.value or b"{}")
        lost = {key: each for key, each in known.items() if each is not None}
        ids = [key for key in dict.fromkeys(key for key, _ in self._wanted) if key not in lost]
        outcomes = await self._read(ids)
        self._ends.note(outcomes)
        if len(outcomes) < len(ids):
            missing = [each for each in ids if each not in outcomes]
            outcomes = {**outcomes, **await self._wait(missing, timeout_ms)}
        self._ends.note((*ids, *lost))
        lost = {**lost, **_lost(outcomes)}
        if answer is None:
            self._record(ids, lost)
        return [
            lost[key] if key in lost else read_result(task, key, outcomes[key].result)
            for key, task in self._wanted
        ]

    def _record(self, ids: Sequence[str], lost: Mapping[str, Lost]) -> None:
        """What another run of the handler does not find elsewhere: how some were lost, and which
        were waited for that are no children."""
        ended = {key: lost.get(key) for key in ids if key in lost or not self._ends.has(key)}
        if ended:
            number = self._asked.number
            self._journal.add(self._key, number, kind=EntryKind.ENDED, value=to_json(ended))

    async def _read(self, ids: Sequence[str]) -> Mapping[str, Outcome]:
        found: dict[str, Outcome] = {}
        for start in range(0, len(ids), _AT_ONCE):
            part = ids[start : start + _AT_ONCE]
            found |= await self._owner.ask(lambda e, part=part: e.read_outcomes(execution_ids=part))
        return found

    async def _wait(self, missing: Sequence[str], timeout_ms: int | None) -> Mapping[str, Outcome]:
        owner = self._owner
        if owner.claimed.handle.kind is HandleKind.RESUMED:
            await self._check_there(missing[0])
        is_alone = self._scope is self._journal.root and not self._journal.branches
        if is_alone and timeout_ms is None and self._ends.is_all(missing):
            await interruptible(owner, owner.wait_children())
            await owner.park()  # raises where the handler is not kept: it ends here
            found = await self._read(missing)
            left = [each for each in missing if each not in found]
            return {**found, **await self._wait(left, None)} if left else found
        until = self._until(timeout_ms)
        waiter = Waiter(until, ends=frozenset(missing))
        found = await interruptible(owner, self._journal.room.wait(waiter))
        if not isinstance(found, ResumeInfo):
            outcomes: Mapping[str, Outcome] = found
            return outcomes
        if found.cause is ResumeCause.TIMEOUT:
            self._note(
                EntryState.FAILED, error=EntryError(WaitTimeout.__name__, "its time is over")
            )
        raise self._timed_out()

    def _until(self, timeout_ms: int | None) -> int | None:
        """When the wait ends, as the first run has recorded it."""
        entry = self._asked.entry
        if entry is not None and entry.state is EntryState.OPEN and entry.value:
            return _UNTIL.decode(entry.value)
        if timeout_ms is None:
            return None
        until: int = self._owner.now_ms() + timeout_ms
        self._note(EntryState.OPEN, value=str(until).encode())
        return until

    def _note(self, state: EntryState, **more: Any) -> None:
        number = self._asked.number
        self._journal.add(self._key, number, kind=EntryKind.ENDED, state=state, **more)

    def _timed_out(self) -> WaitTimeout:
        ids = ", ".join(dict.fromkeys(key for key, _ in self._wanted))
        return WaitTimeout(f"{ids:.200}: has not ended in time")

    async def _check_there(self, execution_id: str) -> None:
        """An execution that is no longer there never ends."""
        state = await self._owner.ask(lambda e: e.read_execution_state(execution_id=execution_id))
        if state is None:
            raise NotFound(f"execution {execution_id}", entity="watched", id=execution_id)


async def result_of(owner: Any, run: Wanted, timeout_ms: int | None) -> Any:
    """The result of any execution, in a handler: it waits for it without a worker."""
    scope = own_scope("result", owner.journal)
    (answer,) = await Ends(owner).call(scope, [run]).answers(timeout_ms)
    if isinstance(answer, Lost):
        kind = next((each for each in _ERRORS if each.code == answer.code), RunError)
        raise kind(answer.detail, **answer.fields)
    return answer


_AT_ONCE: Final = 1_000  # executions of one read
_ERRORS: Final = (RunFailed, RunCancelled, RunExpired)


def _lost(outcomes: Mapping[str, Outcome]) -> dict[str, Lost]:
    """Those that ended without a result."""
    found = {}
    for key, outcome in outcomes.items():
        ended = outcome.ended
        if ended.public_state is not PublicState.COMPLETED:
            error = error_of(ended)
            fields = {**error.fields, "state": ended.public_state.value}
            found[key] = Lost(error.code, error.detail, fields)
    return found
