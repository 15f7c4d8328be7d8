"""The chain that a flow's length came from, and what has made a member be skipped."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from flowfabric.model.record import Record

K = TypeVar("K", bound=Hashable)


class Span(Record, frozen=True):
    """When something could begin, and when it ended; None: it has not. `is_lost`: it was skipped
    or cancelled, so nothing that went on had waited for it."""

    created_at: int
    ended_at: int | None
    is_lost: bool = False


def critical_chain(spans: Mapping[K, Span], wires: Iterable[tuple[K, K]]) -> list[K]:
    """From the first to the last: each is the one that the next has waited for longest.

    It leads to what ended last; of a flow that goes on, to what waits for nothing else and has most
    behind it.

    >>> spans = {"a": Span(0, 5), "b": Span(0, 9), "c": Span(0, 12)}
    >>> critical_chain(spans, [("a", "c"), ("b", "c")])
    ['b', 'c']
    """
    above: defaultdict[K, list[K]] = defaultdict(list)
    below: defaultdict[K, list[K]] = defaultdict(list)
    for up, down in wires:
        if up in spans and down in spans and up != down:
            above[down].append(up)
            below[up].append(down)
    at = _last(spans, above, below)
    chain: list[K] = []
    seen: set[K] = set()
    while at is not None and at not in seen:
        seen.add(at)
        chain.append(at)
        before = [each for each in above[at] if not spans[each].is_lost]
        at = max(before, key=lambda each: _end(spans[each]), default=None)
    return chain[::-1] if len(chain) > 1 else []


def _end(span: Span) -> float:
    return float("inf") if span.ended_at is None else span.ended_at


def _last(
    spans: Mapping[K, Span], above: Mapping[K, Sequence[K]], below: Mapping[K, Sequence[K]]
) -> K | None:
    live = [key for key, span in spans.items() if span.ended_at is None]
    if live:
        open_ones = set(live)
        free = [
            key for key in live if not any(each in open_ones for each in above.get(key, ()))
        ] or live
        return max(free, key=lambda key: (_reach(key, below), -spans[key].created_at))
    ended = [key for key, span in spans.items() if not span.is_lost]
    return max(ended, key=lambda key: _end(spans[key]), default=None)


def _reach(start: K, below: Mapping[K, Sequence[K]]) -> int:
    """How many come after it."""
    seen, left = {start}, deque((start,))
    while left:
        for each in below.get(left.popleft(), ()):
            if each not in seen:
                seen.add(each)
                left.append(each)
    return len(seen)


def cause_of(start: K, above: Mapping[K, Sequence[K]], lost: frozenset[K]) -> K | None:
    """The nearest of those that are lost, upwards from a member that was skipped.

    >>> cause_of("d", {"d": ["c"], "c": ["a", "b"]}, frozenset("b"))
    'b'
    """
    seen, left = {start}, deque((start,))
    while left:
        for each in above.get(left.popleft(), ()):
            if each in lost:
                return each
            if each not in seen:
                seen.add(each)
                left.append(each)
    return None
