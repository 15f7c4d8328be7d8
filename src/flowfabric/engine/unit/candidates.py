"""Candidates: waiting executions that a search found for claims, locked and not leased yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from flowfabric.engine.unit.limits import Candidate, line_of
from flowfabric.engine.unit.view import View
from flowfabric.kernel.execution.routing import Offer
from flowfabric.kernel.limit.fairness import Credits, Line, Share, credits_after

_ABSENT: Final = object()


class Candidates:
    """What a search proposes for a claim: candidates, best first, and how many of each line."""

    def __init__(
        self,
        shares: Sequence[Share],
        credits: Credits,
        found: list[Candidate],
        owed: dict[Line, int],
        parts: dict[Line, int],
    ) -> None:
        self.found = found
        self.parts = parts
        self._shares = shares
        self._credits = credits
        self._owed = owed

    def first(self) -> list[Candidate]:
        """Each line's part, where nothing limits it."""
        if len(self.found) <= sum(self.parts.values()):
            return self.found
        left = dict(self.parts)
        chosen = []
        for candidate in self.found:
            line = line_of(candidate[0])
            if left[line] > 0:
                left[line] -= 1
                chosen.append(candidate)
        return chosen

    def settle(self, admitted: Sequence[Candidate]) -> None:
        """Remember what the lines are owed after this."""
        if len(self._shares) > 1:
            taken = Counter(line_of(execution) for execution, _ in admitted)
            self._credits.update(credits_after(self._shares, self._credits, self._owed, taken))


class Pool:
    """What one search found for several equal claims of a batch, best first.

    A claim behind another one gets what its own search would find: the next ones. That holds as
    long as nothing in between made other work ready, moved one of these, or changed a lane.
    """

    def __init__(
        self, offer: Offer, lane_id: str, found: Sequence[Candidate], *, is_all: bool, view: View
    ) -> None:
        self.offer = offer
        self.lane_id = lane_id
        self._found = list(reversed(found))
        self._is_all = is_all  # there is no more such work
        self._catalog = view.catalog
        self._woken = dict(view.effects.woken)

    def __len__(self) -> int:
        return len(self._found)

    def take(self, limit: int, view: View) -> list[Candidate] | None:
        """The next ones; None where a search might find others."""
        if len(self._found) < limit and not self._is_all:
            return None
        if view.catalog is not self._catalog or view.effects.woken != self._woken:
            return None
        count = min(limit, len(self._found))
        chosen = [self._found[-1 - at] for at in range(count)]
        for execution, _ in chosen:
            known = view.executions.get(execution.execution_id, _ABSENT)
            if known is not _ABSENT and known != execution:
                return None
        del self._found[len(self._found) - count :]
        return chosen
