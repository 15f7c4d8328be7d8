"""Words for tests of rules: what a decision writes."""

from __future__ import annotations

from typing import Any, TypeVar

from flowfabric.kernel.decision import Decision
from flowfabric.model.record import Record

T = TypeVar("T", bound=Record)


def saved(decision: Decision[Any], kind: type[T]) -> tuple[T, ...]:
    """The records of one kind that it saves."""
    return tuple(each for each in decision.saves if isinstance(each, kind))


def dropped(decision: Decision[Any], kind: type[T]) -> tuple[T, ...]:
    """The records of one kind that it drops."""
    return tuple(each for each in decision.drops if isinstance(each, kind))


def the(decision: Decision[Any], kind: type[T]) -> T:
    """The only record of its kind that a decision saves."""
    (found,) = saved(decision, kind)
    return found
