"""A run: the handle of one submitted execution."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, Final, Generic, TypeVar, overload

import msgspec

from flowfabric import limits
from flowfabric.api.backend import EngineBackend
from flowfabric.api.page import every_item
from flowfabric.clock import monotonic
from flowfabric.errors import FlowFabricError, InvalidInput, NotFound, WaitTimeout
from flowfabric.model.checks import check_flag, check_integer
from flowfabric.model.journal import JournalEntry
from flowfabric.model.log_lines import LogLine
from flowfabric.model.mailbox import MailboxInfo, Sent
from flowfabric.model.results import CreateResult, ExecutionSnapshot, Explanation
from flowfabric.model.shown import shown
from flowfabric.model.state import PublicState
from flowfabric.model.stream import Frame
from flowfabric.sdk import codec
from flowfabric.sdk.durations import Duration, to_ms
from flowfabric.sdk.errors import ResultMismatch, RunCancelled, RunError, RunExpired, RunFailed
from flowfabric.sdk.home import Home
from flowfabric.sdk.journal.scopes import RUNNING, name_with
from flowfabric.sdk.spend import Spend, by_budget, spend_of_execution
from flowfabric.sdk.streaming import frames_of, lines_of
from flowfabric.sdk.task import Task

R = TypeVar("R")
T = TypeVar("T")

_ENDS: dict[PublicState, type[RunError]] = {
    PublicState.FAILED: RunFailed,
    PublicState.CANCELLED: RunCancelled,
    PublicState.EXPIRED: RunExpired,
}
_FRESH_S: Final = 0.005
_FIRST_LOOK_MS: Final = 20  # if no hint comes before
_PLAIN = msgspec.json.Decoder()


class Run(Generic[R]):
    """One submitted execution. It can be had again from its id with `ff.run(id, task)`.

    ```
    run = await brief.submit("solar")
    report = await run.result(timeout="5m")
    ```
    """

    __slots__ = ("_fabric", "_submitted_at", "answer", "id", "is_new", "task")

    def __init__(
        self,
        fabric: Home,
        execution_id: str,
        task: Task[..., R] | None = None,
        *,
        is_new: bool = False,
        answer: CreateResult | None = None,
    ) -> None:
        self.id = execution_id
        self.is_new = is_new  # false when a key of the submit found an earlier one
        self.answer = answer  # what became of the submit: `Created`, `Debounced`, …
        self._fabric = fabric
        self._submitted_at = monotonic() if is_new else None
        _check_task(task)
        self.task = task

    @property
    def batch_index(self) -> int | None:
        """Where the items of this submit begin in the list that its batch is run with."""
        return getattr(self.answer, "batch_index", None)

    def __repr__(self) -> str:
        return f"Run({self.id!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    async def result(self, timeout: Duration | None = None) -> R:
        """Wait for the end and give the result.

        Raises `RunFailed`, `RunCancelled` or `RunExpired` with the reason, and `WaitTimeout` when
        the time is over first, with the reason in its `explanation`; the work itself goes on then.
        A handler that waits for another run has no worker meanwhile.
        """
        engine = await self._fabric.start()
        wait_ms = None if timeout is None else to_ms(timeout, field="timeout")
        if (handler := RUNNING.get()) is not None and handler.may_wait_for(engine):
            found: R = await handler.result_of((self.id, self.task), wait_ms)
            return found
        try:
            outcome = await engine.wait_for_outcome(
                execution_id=self.id, wait_ms=wait_ms, look_after_ms=self._look_after_ms()
            )
        except WaitTimeout as error:
            raise await explained(engine, self.id, error) from None
        if outcome.ended.public_state is not PublicState.COMPLETED:
            raise error_of(outcome.ended)
        return read_result(self.task, self.id, outcome.result)

    def _look_after_ms(self) -> int:
        """Nothing ends at once: a read right after the submit would be in vain, and in the way."""
        if self._submitted_at is None or monotonic() - self._submitted_at > _FRESH_S:
            return 0
        return _FIRST_LOOK_MS

    async def state(self) -> PublicState:
        """Its state, in one word."""
        engine = await self._fabric.start()
        state: PublicState | None = await engine.read_execution_state(execution_id=self.id)
        if state is None:
            raise self._not_found()
        return state

    async def info(self) -> ExecutionSnapshot:
        """Everything known about it."""
        engine = await self._fabric.start()
        snapshot: ExecutionSnapshot | None = await engine.describe_execution(execution_id=self.id)
        if snapshot is None:
            raise self._not_found()
        return snapshot

    async def explain(self) -> Explanation:
        """Why it is not running, or that it is."""
        engine = await self._fabric.start()
        explanation: Explanation = await engine.explain(execution_id=self.id)
        return explanation

    async def stream(
        self, *, after: str | None = None, best_effort: bool = True
    ) -> AsyncIterator[Frame]:
        """What the handler shows with `ctx.emit`, frame by frame, until the run has ended.

            async for frame in run.stream():
                print(frame.text, end="")

        It begins with the first frame that is kept, or after a place: `frame.cursor` of the last
        one seen. A store that is away for a while is waited for; no frame is given twice, and no
        durable one left out. A retry begins a stream of its own, which `frame.attempt_index` tells.
        """
        frames = frames_of(self._fabric.start, self.id, after=after, best_effort=best_effort)
        async for frame in frames:
            yield frame

    async def summary(self) -> Any:
        """What the handler last said with `ctx.summary`, as plain data; None before it did."""
        engine = await self._fabric.start()
        found = await engine.read_summary(execution_id=self.id)
        return None if found is None else _PLAIN.decode(found.document)

    @overload
    async def published(self, kind: type[T]) -> T | None: ...
    @overload
    async def published(self, kind: None = None) -> Any: ...

    async def published(self, kind: Any = None) -> Any:
        """What the run shows of itself with `ctx.state`, as this type or as plain data; None before
        it did. No worker is asked: it answers in every state of the run.

        progress = await run.published(Progress)
        """
        decoder = _PLAIN if kind is None else codec.decoder_of(kind, field="kind")
        engine = await self._fabric.start()
        found = await engine.read_published(execution_id=self.id)
        if found is None:
            return None
        try:
            return decoder.decode(found.value)
        except codec.DecodeErrors as error:
            detail = f"{self.id}: what it has published: {error}"
            raise ResultMismatch(detail, execution_id=self.id, result=found.value) from None

    async def send(self, mailbox: str, value: Any, *, key: str | None = None, by: str = "") -> Sent:
        """Put a message into a mailbox that the task declares; the handler takes it with
        `ctx.receive`.

            await run.send("orders", Order(7), key="order-7")

        A repeated `key` counts once, for a day. `by` is the sender's name. In a handler it is a
        step: another run of it sends nothing again. One that does not fit the type is
        `InvalidPayload`; a run that has ended, `TargetNotSignalable`.
        """
        payload = encoded_message(value)
        engine = await self._fabric.start()
        wait = partial(_send, engine, self.id, mailbox, payload, by, wants_reply=False)
        handler = RUNNING.get()
        if handler is not None and handler.may_wait_for(engine):
            data = await handler.recorded(name_with("send", mailbox), wait, key)
            return Sent(**data)
        return await wait(key)

    @overload
    async def ask(
        self,
        mailbox: str,
        value: Any,
        kind: type[T],
        *,
        timeout: Duration | None = None,
        key: str | None = None,
        by: str = "",
    ) -> T: ...
    @overload
    async def ask(
        self,
        mailbox: str,
        value: Any,
        kind: None = None,
        *,
        timeout: Duration | None = None,
        key: str | None = None,
        by: str = "",
    ) -> Any: ...

    async def ask(
        self,
        mailbox: str,
        value: Any,
        kind: Any = None,
        *,
        timeout: Duration | None = None,
        key: str | None = None,
        by: str = "",
    ) -> Any:
        """Send a message, and wait for the handler's answer (`message.reply`), as this type or as
        plain data.

            answer = await run.ask("orders", Order(7), timeout="10s")

        Raises `NoReply` when the run has ended without an answer, and `WaitTimeout` when the time
        is over first: the message stays, and asking again with the same `key` waits for the same
        answer. In a handler it is a step, which keeps its worker while it waits.
        """
        decoder = _PLAIN if kind is None else codec.decoder_of(kind, field="kind")
        wait_ms = None if timeout is None else to_ms(timeout, field="timeout")
        payload = encoded_message(value)
        engine = await self._fabric.start()
        wait = partial(_ask, engine, self.id, mailbox, payload, by, wait_ms)
        handler = RUNNING.get()
        if handler is not None and handler.may_wait_for(engine):
            data = codec.encode(await handler.recorded(name_with("ask", mailbox), wait, key))
        else:
            data = codec.encode(await wait(key))
        try:
            return decoder.decode(data)
        except codec.DecodeErrors as error:
            detail = f"{self.id}: the answer from {mailbox}: {error}"
            raise ResultMismatch(detail, execution_id=self.id, result=data) from None

    async def mailboxes(self) -> tuple[MailboxInfo, ...]:
        """Its mailboxes, with how many messages are unread and were received."""
        engine = await self._fabric.start()
        found: tuple[MailboxInfo, ...] = await engine.list_mailboxes(execution_id=self.id)
        return found

    async def logs(
        self, *, attempt: int | None = None, after: str | None = None, follow: bool = False
    ) -> AsyncIterator[LogLine]:
        """What the handler logged, line by line, of all attempts or of one, counted from 1.

            async for line in run.logs(follow=True):
                print(line.level_name, line.message)

        It ends with the last line there is; with `follow` it waits for more until the run has
        ended. `after` is the `cursor` of the last line seen. A log that is full ends with a line
        that says so.
        """
        index = None
        if attempt is not None:
            index = check_integer(attempt, field="attempt", least=1, most=limits.RETRIES_MAX) - 1
        check_flag(follow, field="follow")
        lines = lines_of(
            self._fabric.start, self.id, attempt_index=index, after=after, follow=follow
        )
        async for line in lines:
            yield line

    async def cancel(self, reason: str = "") -> None:
        """Stop it, whatever it is doing. Cancelling twice is no error.

        A running handler mostly learns of it at once, by a hint; at the latest when its worker
        renews the lease, after a third of the lease's length.
        """
        engine = await self._fabric.start()
        await engine.cancel_execution(
            execution_id=self.id, reason=reason, source="operator_override"
        )

    async def spend(self) -> Spend:
        """What it has spent so far, by budget and dimension: what its handler reported and settled,
        in all attempts and whatever was reset since. Reservations are not spent yet.

            (await run.spend())["gpt"]["tokens"]
        """
        return by_budget(await spend_of_execution(await self._fabric.start(), self.id))

    async def journal(self) -> tuple[JournalEntry, ...]:
        """What the handler has recorded, with the results of its steps; secret ones have none."""
        engine = await self._fabric.start()
        entries: list[JournalEntry] = []
        while True:
            page = await engine.read_journal(
                execution_id=self.id,
                after=entries[-1].position if entries else None,
                limit=limits.PAGE_MAX,
                values=True,
            )
            entries += page.entries
            if not page.has_more:
                return tuple(entries)

    @overload
    async def retry(
        self, reason: str = "", *, cascade: bool = False, fresh: bool = False
    ) -> None: ...
    @overload
    async def retry(
        self, reason: str = "", *, input: Mapping[str, Any], key: str | None = None
    ) -> Run[R]: ...

    async def retry(
        self,
        reason: str = "",
        *,
        cascade: bool = False,
        fresh: bool = False,
        input: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Run[R] | None:
        """Run it again after its end, as a new attempt; its history stays. Steps that are recorded
        are not run again, unless it starts `fresh`.

            again = await run.retry(input={"topic": "wind"})

        `cascade`: members of its flow that were skipped because of it live again too. One that has
        not ended raises `ExecutionNotTerminal`. With `input`, other arguments by their names, it
        is a new run, which knows this one as `retried_from`; a repeated `key` answers the same.
        """
        engine = await self._fabric.start()
        if input is None:
            if key is not None:
                raise InvalidInput("key: is for a retry with another input", field="key")
            await engine.replay_execution(
                execution_id=self.id, reason=reason, cascade=cascade, fresh=fresh
            )
            return None
        if cascade or fresh:
            name = "cascade" if cascade else "fresh"
            raise InvalidInput(f"{name}: has no use with another input", field=name)
        retried = await engine.retry_with_input(
            execution_id=self.id,
            arguments=_encoded(input, "input"),
            reason=reason,
            idempotency_key=key,
        )
        return Run(self._fabric, retried.execution_id, self.task, is_new=retried.is_new)

    async def retries(self) -> list[Run[R]]:
        """The runs that are retries of this one with another input, oldest first."""
        engine = await self._fabric.start()
        found = await every_item(
            lambda cursor: engine.list_retries(execution_id=self.id, cursor=cursor)
        )
        return [Run(self._fabric, each.execution_id, self.task) for each in found]

    async def fork(
        self,
        before: str,
        *,
        set: Mapping[str, Any] | None = None,
        input: Mapping[str, Any] | None = None,
    ) -> Run[R]:
        """A new run that goes on from a copy of this one's journal: all that it recorded before the
        first entry with the key `before`. This one stays as it is, whatever its state.

            again = await run.fork(before="charge", set={"quote": 7})

        `set`: other results of recorded steps, by their keys. `input`: other arguments, by their
        names. What comes after the cut is done again, for real.
        """
        engine = await self._fabric.start()
        forked = await engine.fork_execution(
            execution_id=self.id,
            before=before,
            results=_encoded(set, "set"),
            arguments=_encoded(input, "input"),
        )
        return Run(self._fabric, forked.execution_id, self.task)

    def _not_found(self) -> NotFound:
        return NotFound(f"execution {self.id}", entity="execution")


def encoded_message(value: object) -> bytes:
    """A message as JSON."""
    try:
        return codec.encode(value)
    except codec.EncodeErrors as error:
        raise InvalidInput(f"value: cannot be written as JSON: {error}", field="value") from None


async def _send(
    engine: EngineBackend,
    execution_id: str,
    mailbox: str,
    payload: bytes,
    by: str,
    key: str | None,
    *,
    wants_reply: bool,
) -> Sent:
    sent: Sent = await engine.send_message(
        execution_id=execution_id,
        mailbox=mailbox,
        payload=payload,
        sender=by,
        wants_reply=wants_reply,
        idempotency_key=key,
    )
    return sent


async def _ask(
    engine: EngineBackend,
    execution_id: str,
    mailbox: str,
    payload: bytes,
    by: str,
    wait_ms: int | None,
    key: str | None,
) -> Any:
    sent = await _send(engine, execution_id, mailbox, payload, by, key, wants_reply=True)
    answer = await engine.wait_for_reply(
        execution_id=execution_id,
        mailbox=mailbox,
        number=sent.number,
        message_id=sent.message_id,
        wait_ms=wait_ms,
    )
    return _PLAIN.decode(answer.payload)


def _encoded(values: object, field: str) -> dict[str, bytes]:
    """Values as JSON, by their names."""
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        detail = f"{field}: expected values by names, got {type(values).__name__}"
        raise InvalidInput(detail, field=field)
    try:
        return {name: codec.encode(value) for name, value in values.items()}
    except codec.EncodeErrors as error:
        detail = f"{field}: cannot be written as JSON: {error}"
        raise InvalidInput(detail, field=field) from None


def _check_task(task: object) -> None:
    """A task or None. The name of one would not say which type the result has."""
    if task is not None and not isinstance(task, Task):
        raise InvalidInput(f"task: {shown(task, 80)} is not a task", field="task")


async def explained(
    engine: EngineBackend, execution_id: str, error: WaitTimeout, about: str = ""
) -> WaitTimeout:
    """The timeout error, and why the execution, which the text names by `about`, has not ended
    yet."""
    try:
        found = await engine.explain(execution_id=execution_id)
    except FlowFabricError:
        return error  # the wait is over, whatever else is wrong
    told = "; ".join((f"{about}{found.summary}", *found.hints))
    fields = {"explanation": f"{about}{found.summary}", "hints": list(found.hints)}
    return WaitTimeout(f"{error.detail}: {told}", **error.fields, **fields)


def read_result(task: Task[..., R] | None, execution_id: str, result: bytes | None) -> R:
    """A stored result as the type its task is annotated with."""
    decoder: Any = task.signature.result_decoder if task else _PLAIN
    try:
        value: R = decoder.decode(b"null" if result is None else result)
    except codec.DecodeErrors as error:
        detail = f"{execution_id}: {error}"
        raise ResultMismatch(detail, execution_id=execution_id, result=result) from None
    return value


def error_of(ended: ExecutionSnapshot) -> RunError:
    """The error a run ended with."""
    reason = ended.cancellation_reason or ended.failure_reason or ended.public_state.value
    headline = reason.strip().splitlines()[0] if reason.strip() else ended.public_state.value
    return _ENDS.get(ended.public_state, RunError)(
        f"{ended.execution_kind}: {headline}",
        execution_id=ended.execution_id,
        reason=reason,
        category=ended.failure_category,
        attempts=ended.total_attempt_count,
    )
