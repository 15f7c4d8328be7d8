"""Conditions of a wait, in short words: `signal`, `approval`, `count`, `all_of`, `any_of`.

A *place* is where signals are sent: a key of your choice, or a waitpoint made before the suspension
with `ctx.waitpoint`. A key gets a new waitpoint when the execution suspends. Given nodes of a flow,
`all_of` and `any_of` say how another node waits for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, overload

from flowfabric.errors import InvalidInput
from flowfabric.model.suspension import (
    AllOf,
    AnyOf,
    Count,
    CountKind,
    ReasonCode,
    ResumeCondition,
    Single,
)
from flowfabric.sdk.context.received import Waitpoint
from flowfabric.sdk.flow.joins import Join, Node, all_of_nodes, any_of_nodes

APPROVED: Final = "approved"
REJECTED: Final = "rejected"


class Anything:
    """No payload type was declared."""

    def __repr__(self) -> str:
        return "anything"


ANYTHING: Final = Anything()


@dataclass(frozen=True, slots=True)
class Wait:
    """A condition and the places it refers to. Made by the functions of this module."""

    condition: ResumeCondition
    places: tuple[tuple[str, Waitpoint | Any], ...]  # a key with its waitpoint or payload type
    reason: ReasonCode = ReasonCode.WAITING_FOR_SIGNAL


Place = str | Waitpoint
Waitable = Wait | Place


def signal(place: Place, name: str | None = None, *, expect: Any = ANYTHING) -> Wait:
    """A signal sent to a place; with `name`, only one of that name.

    >>> signal("publish").condition
    Single(waitpoint_key='publish', signal_name=None)
    """
    key, target = _placed(place, expect)
    return Wait(Single(key, name), ((key, target),))


def approval(place: Place, of: int = 1, *, expect: Any = ANYTHING) -> Wait:
    """`of` different people approve, or one rejects: see `ff.approve` and `ff.reject`.

    The handler looks at the names of its signals: `approved` or `rejected`.
    """
    key, target = _placed(place, expect)
    yes = Count(of, CountKind.DISTINCT_SOURCES, (key,), APPROVED)
    return Wait(
        AnyOf((yes, Single(key, REJECTED))),
        ((key, target),),
        reason=ReasonCode.WAITING_FOR_APPROVAL,
    )


def count(
    n: int,
    *places: Place,
    name: str | None = None,
    sources: bool = False,
    signals: bool = False,
    expect: Any = ANYTHING,
) -> Wait:
    """Signals at `n` of the places; or of `n` different sources, or simply `n` signals.

    >>> count(2, "deploy", sources=True).condition.count_kind.value
    'distinct_sources'
    """
    if sources and signals:
        raise InvalidInput("count: of sources or of signals, not both", field="count")
    kind = CountKind.DISTINCT_WAITPOINTS
    if sources:
        kind = CountKind.DISTINCT_SOURCES
    elif signals:
        kind = CountKind.DISTINCT_SIGNALS
    placed = tuple(_placed(place, expect) for place in places)
    return Wait(Count(n, kind, tuple(key for key, _ in placed), name), _merged(placed))


@overload
def all_of(*waits: Waitable) -> Wait: ...
@overload
def all_of(*waits: Node[Any]) -> Join: ...


def all_of(*waits: Any) -> Wait | Join:
    """Every one of them, in any order: `all_of("legal", approval("budget", of=2))`.

    Of nodes in a flow: every one must succeed.
    """
    if any(isinstance(each, Node) for each in waits):
        return all_of_nodes(waits)
    members = [as_wait(each) for each in waits]
    condition = AllOf(tuple(each.condition for each in members))
    return Wait(condition, _merged(_places(members)), _reason(members))


@overload
def any_of(*waits: Waitable) -> Wait: ...
@overload
def any_of(*waits: Node[Any], losers: str | None = None, spare_shared: bool = False) -> Join: ...


def any_of(*waits: Any, losers: str | None = None, spare_shared: bool = False) -> Wait | Join:
    """The first of them: `any_of("done", signal("job", "failed"))`.

    Of nodes in a flow: one success is enough; see `quorum` for `losers` and `spare_shared`.
    """
    if any(isinstance(each, Node) for each in waits):
        return any_of_nodes(waits, losers, spare_shared)
    if losers is not None or spare_shared:
        raise InvalidInput("losers: only nodes of a flow lose", field="losers")
    members = [as_wait(each) for each in waits]
    condition = AnyOf(tuple(each.condition for each in members))
    return Wait(condition, _merged(_places(members)), _reason(members))


def as_wait(wait: object) -> Wait:
    """A bare place waits for any signal there."""
    if isinstance(wait, Wait):
        return wait
    if isinstance(wait, str | Waitpoint):
        return signal(wait)
    detail = (
        "wait: expected a key, a waitpoint, or signal(), approval(), count(), all_of(), any_of()"
    )
    raise InvalidInput(f"{detail}; got {type(wait).__name__}", field="wait")


def _placed(place: object, expect: Any) -> tuple[str, Any]:
    if isinstance(place, Waitpoint):
        if expect is not ANYTHING:
            detail = "expect: a waitpoint has its type already; give it to ctx.waitpoint"
            raise InvalidInput(detail, field="expect")
        return place.key, place
    if not isinstance(place, str):
        detail = f"wait: expected a key or a waitpoint, got {type(place).__name__}"
        raise InvalidInput(detail, field="wait")
    return place, expect


def _reason(waits: Iterable[Wait]) -> ReasonCode:
    """That of an approval, if one is among them: people are to see it."""
    found = ReasonCode.WAITING_FOR_APPROVAL
    return found if any(each.reason is found for each in waits) else ReasonCode.WAITING_FOR_SIGNAL


def _places(waits: Iterable[Wait]) -> list[tuple[str, Any]]:
    return [place for wait in waits for place in wait.places]


def _merged(places: Iterable[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """Each key once; a key may appear in several conditions, but with one meaning."""
    found: dict[str, Any] = {}
    for key, target in places:
        known = found.get(key, ANYTHING)
        if known is not ANYTHING and target is not ANYTHING and known is not target:
            detail = f"wait: the key {key!r} stands for two waitpoints or payload types"
            raise InvalidInput(detail, field="wait")
        found[key] = target if known is ANYTHING else known
    return tuple(found.items())
