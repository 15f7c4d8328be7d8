"""Steps that begin at most once in a life of their execution.

That one begins is durable before it does. A run that finds it begun, and no end of it, cannot know
whether it happened: the handler is told so, or people are asked.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

from flowfabric.kernel.journal.lookup import Asked
from flowfabric.model.journal import EntryError, EntryKind, EntryState
from flowfabric.model.suspension import ReasonCode, ResumeCause, ResumeInfo
from flowfabric.sdk import codec
from flowfabric.sdk.context.conditions import ANYTHING, REJECTED
from flowfabric.sdk.context.conditions import signal as signal_at
from flowfabric.sdk.context.received import received
from flowfabric.sdk.context.waiting import wait_on
from flowfabric.sdk.errors import StepFailed, StepInterrupted
from flowfabric.sdk.journal.journal import Journal
from flowfabric.sdk.journal.plan import Plan
from flowfabric.sdk.journal.scopes import Scope

_QUESTION: Final = "asked"  # the name of the wait for an answer
_LOOK_S: Final = 0.02  # between looks for other calls to end
_KEY_LENGTH: Final = 100  # characters of a step's key that a question repeats
_NAMES: Final = (StepInterrupted.__name__, StepFailed.__name__)


def is_begun(asked: Asked) -> bool:
    """Whether an earlier run has begun it, and has not recorded how it ended."""
    entry = asked.entry
    return entry is not None and entry.kind is EntryKind.STARTED


def note_start(journal: Journal, key: str, asked: Asked, digest: bytes | None) -> None:
    """It is about to begin: durable with everything before it."""
    kind, state = EntryKind.STARTED, EntryState.OPEN
    journal.add(key, asked.number, kind=kind, state=state, digest=digest)


def interrupted(why: str) -> EntryError:
    """How it is recorded that the end of a step is not known."""
    return EntryError(StepInterrupted.__name__, why, _NAMES, None, is_permanent=True)


def question_of(journal: Journal, key: str) -> str:
    """The key of the wait for an answer about a step."""
    return f"{_path(journal, key)}/{_QUESTION}"


async def outcome(journal: Journal, scope: Scope, key: str, plan: Plan) -> bytes | EntryError:
    """How a step that was begun ended: what people say that it returned, or that it is unknown."""
    if not plan.asks:
        return interrupted("it was begun, and how it ended is not known")
    found = await _answer(journal, scope, key, plan)
    if found.cause is not ResumeCause.SIGNAL or not found.signals:
        return interrupted(f"{found.actor or 'an operator'} gave no answer whether it happened")
    came = received(found.signals)[-1]
    if came.name == REJECTED:
        return interrupted(f"{came.source or 'an answer'} says that it did not happen")
    data = came.raw or b"null"
    try:
        plan.decoder.decode(data)
    except codec.DecodeErrors as error:
        return interrupted(f"the answer of {came.source} is not of the annotated type: {error}")
    return data


async def _answer(journal: Journal, scope: Scope, key: str, plan: Plan) -> ResumeInfo:
    """Wait, without a worker, until it is known. Other calls that are under way end first."""
    hint = plan.result_type
    kind = ANYTHING if hint is Any else hint
    wait = replace(
        signal_at(_text(journal, key), expect=kind), reason=ReasonCode.WAITING_FOR_APPROVAL
    )
    journal.performing -= 1
    try:
        while journal.performing:  # noqa: ASYNC110 - their ends set no event
            await asyncio.sleep(_LOOK_S)
        # A scope of its own: later runs find the recorded result, and ask nothing.
        own = Scope(journal, _path(journal, key), scope.owner)
        _, found = await wait_on(journal.owner, own, _QUESTION, wait, None)
        return found
    finally:
        journal.performing += 1


def _text(journal: Journal, key: str) -> str:
    """The question, which is also the address of the answer."""
    if len(key) > _KEY_LENGTH:
        key = f"{key[:_KEY_LENGTH]}… {journal.idempotency_key(key)[:8]}"
    return f"did {key} happen?"


def _path(journal: Journal, key: str) -> str:
    """A key with brackets cannot be a part of another one."""
    is_plain = "[" not in key and len(key) <= _KEY_LENGTH
    return f"ask:{key if is_plain else journal.idempotency_key(key)}"
