"""A run with methods that block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from flowfabric.model.journal import JournalEntry
from flowfabric.model.log_lines import LogLine
from flowfabric.model.mailbox import MailboxInfo, Sent
from flowfabric.model.results import CreateResult, ExecutionSnapshot, Explanation
from flowfabric.model.state import PublicState
from flowfabric.model.stream import Frame
from flowfabric.sdk.durations import Duration
from flowfabric.sdk.run import Run
from flowfabric.sdk.spend import Spend
from flowfabric.sdk.task import Task

if TYPE_CHECKING:
    from flowfabric.sdk.blocking import SyncFabric

R = TypeVar("R")
T = TypeVar("T")


class SyncRun(Generic[R]):
    """A `Run` with methods that block."""

    __slots__ = ("_run", "_sync")

    def __init__(self, sync: SyncFabric, run: Run[R]) -> None:
        self._sync = sync
        self._run = run

    def __repr__(self) -> str:
        return f"SyncRun({self.id!r})"

    @property
    def id(self) -> str:
        """The id of the execution."""
        return self._run.id

    @property
    def task(self) -> Task[..., R] | None:
        """The task it runs, if known."""
        return self._run.task

    @property
    def batch_index(self) -> int | None:
        """Where the items of this submit begin in the list that its batch is run with."""
        return self._run.batch_index

    @property
    def answer(self) -> CreateResult | None:
        """What became of the submit."""
        return self._run.answer

    @property
    def is_new(self) -> bool:
        """False when the idempotency key found an earlier submission."""
        return self._run.is_new

    def result(self, timeout: Duration | None = None) -> R:
        """Wait for the end and give the result: see `Run.result`."""
        return self._sync.wait(self._run.result(timeout))

    def state(self) -> PublicState:
        """Its state, in one word."""
        return self._sync.wait(self._run.state())

    def info(self) -> ExecutionSnapshot:
        """Everything known about it."""
        return self._sync.wait(self._run.info())

    def explain(self) -> Explanation:
        """Why it is not running, or that it is."""
        return self._sync.wait(self._run.explain())

    def stream(self, *, after: str | None = None, best_effort: bool = True) -> Iterator[Frame]:
        """What the handler shows, until the run has ended: see `Run.stream`."""
        return self._each(self._run.stream(after=after, best_effort=best_effort))

    def logs(
        self, *, attempt: int | None = None, after: str | None = None, follow: bool = False
    ) -> Iterator[LogLine]:
        """What the handler logged, line by line: see `Run.logs`."""
        lines = self._run.logs(attempt=attempt, after=after, follow=follow)
        return self._each(lines)

    def _each(self, items: Any) -> Iterator[Any]:
        """Item by item; what is left half read is ended."""
        item = self._sync.wait(_next(items))
        try:
            while item is not None:
                yield item
                item = self._sync.wait(_next(items))
        finally:
            self._sync.wait(_end(items))

    def summary(self) -> Any:
        """What the handler last said with `ctx.summary`: see `Run.summary`."""
        return self._sync.wait(self._run.summary())

    @overload
    def published(self, kind: type[T]) -> T | None: ...
    @overload
    def published(self, kind: None = None) -> Any: ...

    def published(self, kind: Any = None) -> Any:
        """What the run shows of itself: see `Run.published`."""
        return self._sync.wait(self._run.published(kind))

    def send(self, mailbox: str, value: Any, *, key: str | None = None, by: str = "") -> Sent:
        """Put a message into a mailbox: see `Run.send`."""
        return self._sync.wait(self._run.send(mailbox, value, key=key, by=by))

    def ask(
        self,
        mailbox: str,
        value: Any,
        kind: Any = None,
        *,
        timeout: Duration | None = None,
        key: str | None = None,
        by: str = "",
    ) -> Any:
        """Send a message, and wait for the answer: see `Run.ask`."""
        asking = self._run.ask(mailbox, value, kind, timeout=timeout, key=key, by=by)
        return self._sync.wait(asking)

    def mailboxes(self) -> tuple[MailboxInfo, ...]:
        """Its mailboxes: see `Run.mailboxes`."""
        return self._sync.wait(self._run.mailboxes())

    def cancel(self, reason: str = "") -> None:
        """Stop it, whatever it is doing."""
        self._sync.wait(self._run.cancel(reason))

    def spend(self) -> Spend:
        """What it has spent so far: see `Run.spend`."""
        return self._sync.wait(self._run.spend())

    def journal(self) -> tuple[JournalEntry, ...]:
        """What the handler has recorded: see `Run.journal`."""
        return self._sync.wait(self._run.journal())

    def fork(
        self,
        before: str,
        *,
        set: Mapping[str, Any] | None = None,
        input: Mapping[str, Any] | None = None,
    ) -> SyncRun[R]:
        """A new run that goes on from a copy of this one's journal: see `Run.fork`."""
        return SyncRun(self._sync, self._sync.wait(self._run.fork(before, set=set, input=input)))

    @overload
    def retry(self, reason: str = "", *, cascade: bool = False, fresh: bool = False) -> None: ...
    @overload
    def retry(
        self, reason: str = "", *, input: Mapping[str, Any], key: str | None = None
    ) -> SyncRun[R]: ...

    def retry(
        self,
        reason: str = "",
        *,
        cascade: bool = False,
        fresh: bool = False,
        input: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> SyncRun[R] | None:
        """Run it again after its end: see `Run.retry`."""
        how: dict[str, Any] = {"cascade": cascade, "fresh": fresh, "input": input, "key": key}
        again = self._sync.wait(self._run.retry(reason, **how))
        return None if again is None else SyncRun(self._sync, again)

    def retries(self) -> list[SyncRun[R]]:
        """The runs that are retries of this one with another input."""
        return [SyncRun(self._sync, each) for each in self._sync.wait(self._run.retries())]


async def _next(items: Any) -> Any:
    return await anext(items, None)


async def _end(items: Any) -> None:
    await items.aclose()
