"""Submits of a handler: recorded with what they create, in one transaction, so that another run of
the handler submits nothing again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec

from flowfabric import limits
from flowfabric.api.backend import EngineBackend
from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import SubmitFlow
from flowfabric.api.wire import error_of
from flowfabric.errors import Corruption, FlowFabricError, JournalFull
from flowfabric.ids import derived_uuid
from flowfabric.kernel.journal.lookup import Asked
from flowfabric.model.checks import clip_text
from flowfabric.model.flow_results import FlowDuplicate, FlowSubmitted
from flowfabric.model.journal import EntryError, EntryKind, EntryState, NewEntry
from flowfabric.model.record import replace
from flowfabric.model.results import CreateResult
from flowfabric.model.submitted import SubmitResult, answers_kept, kept_answers
from flowfabric.sdk import codec
from flowfabric.sdk.journal.failures import Failure
from flowfabric.sdk.journal.interruption import interruptible, to_its_end
from flowfabric.sdk.journal.scopes import PLACE, RUNNING, StepInfo, name_with, scope_here
from flowfabric.sdk.journal.together import Together, digest_of
from flowfabric.tracing.spans import flow_submitted_by, submitted_by
from flowfabric.trouble import Trouble, trouble

if TYPE_CHECKING:  # a journal has the submits of its handler
    from flowfabric.sdk.journal.journal import Journal

T = TypeVar("T")
_WORD: Final = "submit"
_REASON_BYTES: Final = 4_096
_KEY_LENGTH: Final = 100  # characters of a submit's own key that the key of its entry repeats
_FORBIDDEN: Final = frozenset("[]#")
_FIELDS: Final[msgspec.json.Decoder[dict[str, Any]]] = msgspec.json.Decoder(dict[str, Any])


def handler_here(engine: EngineBackend | None) -> Any:
    """The handler that runs here, if what it submits to this engine is recorded in its journal.

    The body of a step is plain code, and so is what outlives its handler.
    """
    handler = RUNNING.get()
    if handler is None or engine is None or isinstance(PLACE.get(), StepInfo):
        return None
    return handler if handler.is_served_by(engine) else None


@dataclass(slots=True, eq=False)
class Submit:
    """One submit of a handler, as it stands in the journal."""

    key: str
    asked: Asked
    digest: bytes
    requests: Sequence[NewExecution]

    def entry(self, began_at: int, count: int) -> NewEntry:
        """What is recorded of it; the store puts the answers in."""
        return NewEntry(
            position=0,
            key=self.key,
            kind=EntryKind.SUBMIT,
            asked=self.asked.number,
            value=str(count).encode(),
            digest=self.digest,
            began_at=began_at,
        )


class Submits:
    """The submits of one run of a handler."""

    __slots__ = ("_journal", "_together")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._together: Together[Submit, CreateResult] = Together(
            self._record, at_once=limits.CREATE_MAX, may_part=_is_refusal
        )

    # --- places ----------------------------------------------------------------------------------

    def place(self, requests: Sequence[NewExecution], *, key: str | None = None) -> Submit:
        """Take a place among the calls of the handler at once. `key`: of a single one; it is found
        again by that, so it may be called from anywhere. In the thread of the scope."""
        name = name_with(_WORD, requests[0].execution_kind)
        placed = self._place(name, requests, digest_of(requests), key)
        if placed.asked.answer is None:
            placed.requests = submitted_by(requests, self._journal.owner.claimed)
        return placed

    def place_flow(self, request: SubmitFlow) -> Submit:
        """The same for a flow."""
        edges = [(each.upstream, each.downstream, each.input_name) for each in request.edges]
        nodes = [each.execution for each in request.nodes]
        digest = digest_of(nodes, [each.name for each in request.nodes], edges)
        name = name_with(_WORD, request.flow_kind)
        return self._place(name, (), digest, request.idempotency_key)

    def _place(
        self, name: str, requests: Sequence[NewExecution], digest: bytes, key: str | None
    ) -> Submit:
        journal = self._journal
        scope = scope_here(_WORD, has_key=key is not None) or journal.root
        if key is not None:  # one that was used before finds what that submit made
            is_plain = len(key) <= _KEY_LENGTH and key.isprintable() and not _FORBIDDEN & set(key)
            name = f"{name}[{key if is_plain else derived_uuid(name, key)}]"
        taken = scope.key(name).now
        is_aside = not journal.numbers_submits or (key is not None and not scope.is_here)
        asked = journal.ask(scope, taken, kind=EntryKind.SUBMIT, digest=digest, is_aside=is_aside)
        return Submit(taken, asked, digest, requests)

    # --- answers ---------------------------------------------------------------------------------

    async def answers(self, submits: Sequence[Submit]) -> list[CreateResult]:
        """What became of every request: recorded now, or by an earlier run."""
        told = [
            None if each.asked.answer is not None else self._together.put(each) for each in submits
        ]
        found: list[CreateResult] = []
        for submit, answers in zip(submits, told, strict=True):
            if answers is None:
                found += cast("list[CreateResult]", self._recorded(submit))
                continue
            try:
                found += await interruptible(self._journal.owner, answers)
            except FlowFabricError as error:
                raise self._refused(submit, error) from None
        return found

    async def answer(self, submit: Submit, request: SubmitFlow) -> FlowSubmitted | FlowDuplicate:
        """What became of a flow."""
        if submit.asked.answer is None:
            request = flow_submitted_by(request, self._journal.owner.claimed)
        else:
            (found,) = self._recorded(submit)
            return cast("FlowSubmitted | FlowDuplicate", found)
        send = partial(self._ask_flow, request)
        try:
            carried = self._carry([submit.entry(self._now(), 1)], send)
            made: FlowSubmitted | FlowDuplicate = await interruptible(
                self._journal.owner, to_its_end(carried)
            )
        except FlowFabricError as error:
            raise self._refused(submit, error) from None
        self._journal.note_size(len(kept_answers([made])))
        return made

    def _recorded(self, submit: Submit) -> list[SubmitResult]:
        """The answers of an earlier run, or its refusal."""
        entry = submit.asked.answer
        if entry is None:
            return []
        if (kept := entry.error) is not None:
            fields = {} if kept.arguments is None else _FIELDS.decode(kept.arguments)
            error = error_of(kept.category, kept.reason, fields)
            self._meets(submit, kept, error)
            raise error
        return answers_kept(entry.value or b"[]")

    def _refused(self, submit: Submit, error: FlowFabricError) -> FlowFabricError:
        """A refusal is history if the handler catches it; else the next attempt submits again. What
        may pass leaves no trace."""
        if not _is_refusal(error):
            return error
        detail = clip_text(error.detail, _REASON_BYTES, field="reason") or ""
        kept = EntryError(error.code, detail, (type(error).__name__,), _as_json(error.fields))
        journal, number = self._journal, submit.asked.number
        journal.add(
            submit.key,
            number,
            kind=EntryKind.SUBMIT,
            state=EntryState.FAILED,
            digest=submit.digest,
            error=kept,
        )
        self._meets(submit, kept, error)
        return error

    def _meets(self, submit: Submit, kept: EntryError, error: FlowFabricError) -> None:
        number, digest = submit.asked.number, submit.digest
        failure = Failure(submit.key, number, digest, kept, 1, error, EntryKind.SUBMIT)
        self._journal.failed(failure)

    # --- recording -------------------------------------------------------------------------------

    def _now(self) -> int:
        return max(0, self._journal.owner.now_ms())

    async def _carry(self, entries: Sequence[NewEntry], send: Any) -> Any:
        return await self._journal.outbox.carry(entries, send)

    async def _record(self, part: Sequence[Submit]) -> Sequence[CreateResult]:
        requests = [request for each in part for request in each.requests]
        entries = [each.entry(self._now(), len(each.requests)) for each in part]
        answers: list[CreateResult] = await self._carry(entries, partial(self._ask, requests))
        self._journal.note_size(len(kept_answers(answers)))
        return answers

    async def _ask(
        self, requests: Sequence[NewExecution], entries: tuple[NewEntry, ...]
    ) -> list[CreateResult]:
        owner = self._journal.owner
        handle = owner.claimed.handle
        return await owner.ask(
            lambda e: e.create_executions(requests, handle=handle, entries=entries)
        )

    async def _ask_flow(
        self, request: SubmitFlow, entries: tuple[NewEntry, ...]
    ) -> FlowSubmitted | FlowDuplicate:
        owner = self._journal.owner
        recorded = replace(request, handle=owner.claimed.handle, entries=entries)
        return await owner.ask(lambda e: e.call(recorded))


def _is_refusal(error: BaseException) -> bool:
    """Whether what was submitted is refused, and not what is recorded of it."""
    return trouble(error) is Trouble.REFUSED and not isinstance(error, Corruption | JournalFull)


def _as_json(fields: Any) -> str | None:
    try:
        return codec.encode(dict(fields)).decode()
    except codec.EncodeErrors:
        return None
