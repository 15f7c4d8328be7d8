"""What a journal keeps of the answers to submits, so that another run of the handler gets them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from flowfabric.errors import Corruption
from flowfabric.model.flow_results import FlowDuplicate, FlowSubmitted
from flowfabric.model.record import to_json
from flowfabric.model.results import (
    Batched,
    Created,
    CreateResult,
    Debounced,
    Duplicate,
    Existing,
)
from flowfabric.model.state import PublicState

SubmitResult = CreateResult | FlowSubmitted | FlowDuplicate
_Kept = str | Created | Duplicate | Existing | Debounced | Batched | FlowSubmitted | FlowDuplicate
_KEPT: Final[msgspec.json.Decoder[list[_Kept]]] = msgspec.json.Decoder(list[_Kept])


def kept_answers(answers: Sequence[SubmitResult]) -> bytes:
    """Answers as the value of an entry. Of a new execution that waits, which is the usual one, the
    id is enough."""
    return to_json([_kept(each) for each in answers])


def answers_kept(value: bytes) -> list[SubmitResult]:
    """The inverse.

    >>> answers_kept(kept_answers([Created("a", PublicState.WAITING)]))[0].execution_id
    'a'
    """
    try:
        kept = _KEPT.decode(value)
    except msgspec.MsgspecError as error:
        raise Corruption(f"what was submitted cannot be read: {error}") from None
    return [Created(each, PublicState.WAITING) if isinstance(each, str) else each for each in kept]


def _kept(answer: SubmitResult) -> _Kept:
    is_plain = isinstance(answer, Created) and answer == Created(
        answer.execution_id, PublicState.WAITING
    )
    return answer.execution_id if isinstance(answer, Created) and is_plain else answer
