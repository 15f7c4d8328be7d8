"""Idempotency keys: one rule for executions and for whole graphs."""

from __future__ import annotations

import pytest

from flowfabric.errors import IdempotencyConflict
from flowfabric.kernel.decision import Moment, Refused
from flowfabric.kernel.execution.keys import created_before
from flowfabric.model.execution import IdempotencyRecord

KNOWN = IdempotencyRecord("default", "k", "first", b"same", 100)


@pytest.mark.parametrize(("now", "expected"), [(99, "first"), (100, None), (101, None)])
def test_a_key_answers_with_the_first_id_until_its_window_ends(
    now: int, expected: str | None
) -> None:
    assert created_before(KNOWN, b"same", Moment(now)) == expected


def test_a_key_that_was_never_used_is_free() -> None:
    assert created_before(None, b"same", Moment(1)) is None


def test_other_content_under_a_key_is_refused_while_the_window_lasts() -> None:
    reply = created_before(KNOWN, b"other", Moment(99))
    assert isinstance(reply, Refused)
    assert reply.error is IdempotencyConflict
    assert reply.fields == {"field": "idempotency_key", "execution_id": "first"}
    assert created_before(KNOWN, b"other", Moment(100)) is None
