"""Is there an order of these overlapping calls that explains every answer?

The search of Wing and Gong, per object. The specification is a function: from a state and a call,
every state that may follow in which the call gets the answer it got.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

S = TypeVar("S")


class Call(NamedTuple):
    """One call as its client saw it: between these two ticks of a common counter."""

    called: int
    returned: int
    what: Any
    answer: Any
    moments: tuple[int, ...]  # what the store's clock showed while the call was under way


Follows = Callable[[S, Call], Iterable[S]]


def explained(
    calls: Sequence[Call], start: S, follows: Follows[S], key: Callable[[S], Hashable]
) -> bool:
    """Whether some order explains the answers; a call that returned first comes first."""
    ordered = sorted(calls)
    everything = (1 << len(ordered)) - 1
    stack: list[tuple[int, S]] = [(0, start)]
    seen: set[tuple[int, Hashable]] = set()
    while stack:
        done, state = stack.pop()
        if done == everything:
            return True
        if (done, key(state)) in seen:
            continue
        seen.add((done, key(state)))
        open_calls = [n for n in range(len(ordered)) if not done >> n & 1]
        first_return = min(ordered[n].returned for n in open_calls)
        for n in open_calls:
            if ordered[n].called > first_return:
                break
            stack.extend((done | 1 << n, after) for after in follows(state, ordered[n]))
    return False
