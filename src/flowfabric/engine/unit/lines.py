"""The lines of serial keys that one transaction touches: executions join, leave, and take their
turn.

The row of a line is locked after executions and flows. The execution that gets the turn is loaded
only if no other transaction has locked it, so nothing waits against that order; the loop tells it
later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flowfabric.engine.unit.corrupt import readable
from flowfabric.engine.unit.overlay import Overlay
from flowfabric.engine.unit.view import View
from flowfabric.errors import Corruption
from flowfabric.kernel.order.line import (
    RETRY_MS,
    RETRY_SPOILED_MS,
    advance,
    join,
    leave,
    line_key,
    place_key,
    put_off,
    settled,
    take_turn,
)
from flowfabric.model.execution import Execution
from flowfabric.model.line import LineRow, PlaceRow
from flowfabric.stores.base import Corrupt, Transaction
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import LINE_ROWS, PLACES, Key

LineKey = tuple[str, str]


class Lines:
    """Lines as one transaction sees and changes them."""

    def __init__(self, tx: Transaction, view: View, overlay: Overlay) -> None:
        self._tx = tx
        self._view = view
        self._overlay = overlay
        self._locked: set[Key] = set()
        self._spoiled: dict[Key, str] = {}

    async def lock(self, keys: Iterable[Key]) -> None:
        """Lock lines, in the order of their keys."""
        new = sorted({*keys} - self._locked)
        if new:
            self._locked.update(new)
            found, spoiled = await readable(self._tx.rows, LINE_ROWS, new)
            self._view.rows.take(LINE_ROWS, found)
            self._spoiled.update(spoiled)

    def line(self, key: Key) -> LineRow | None:
        """A locked line, as it stands."""
        return self._view.rows.get(LINE_ROWS, key)

    async def follow_up(self, execution_ids: Iterable[str]) -> None:
        """Executions that were created, released by their flow, ended or replayed take or leave
        their places."""
        view = self._view
        moved = [each for each in map(view.execution, execution_ids) if each is not None]
        keys = {each.execution_id: line_key(each) or ("", "") for each in moved}
        await self.lock(keys.values())
        passed: dict[Key, None] = {}
        for each in moved:
            key = keys[each.execution_id]
            line = self.line(key)
            if not each.is_terminal:
                if key in self._spoiled:
                    raise Corruption(self._spoiled[key])
                view.apply(each, join(line, each, view.at))
            elif line is not None and view.apply(each, leave(line, each, view.at)) is True:
                passed[key] = None
        await self.pass_turns(list(passed))

    async def pass_turns(self, keys: Sequence[Key]) -> None:
        """Give the turns of locked lines to what is first behind their heads."""
        view = self._view
        while keys:
            lines = [line for line in map(self.line, keys) if line is not None]
            following = await self._following(lines)
            heads: list[LineRow] = []
            for line in lines:
                key = LINE_ROWS.key_of(line)
                if key not in following:  # what is next cannot be read
                    view.apply(None, put_off(line, RETRY_SPOILED_MS, view.at))
                    continue
                view.apply(None, advance(line, following[key]))
                if (moved := self.line(key)) is not None:
                    heads.append(moved)
            keys = await self._tell(heads)

    async def _following(self, lines: Sequence[LineRow]) -> dict[Key, PlaceRow | None]:
        """The first place behind each head; without those that cannot be read. As a rule it has the
        next number; only where some have left is it searched for."""
        pending = self._view.rows.pending(PLACES)
        known = {} if pending is None else pending[0]
        guessed = {place_key(each, each.head_number + 1): each for each in lines}
        asked = [key for key, line in guessed.items() if key not in known and line.waiting]
        found, _ = await readable(self._tx.peek_rows, PLACES, asked)
        self._view.rows.take(PLACES, found)
        following: dict[Key, PlaceRow | None] = {}
        for key, line in guessed.items():
            place = found.get(key) or known.get(key)
            if place is None and (line.waiting or known):
                try:
                    place = await self._first(key[:2])
                except Corruption:
                    continue
            following[key[:2]] = place
        return following

    async def _first(self, key: Key) -> PlaceRow | None:
        """The first place behind the head of a line."""
        found = await self._overlay.search(Search(by_key(PLACES), (key,), limit=1))
        self._view.rows.take(PLACES, {PLACES.key_of(each): each for each in found})
        return found[0] if found else None

    async def _tell(self, lines: Sequence[LineRow]) -> list[Key]:
        """Tell heads that they have the turn; the lines with a head that has ended."""
        view = self._view
        missing = sorted({each.head_id for each in lines} - view.executions.keys())
        if missing:
            view.executions.update(await self._tx.load_free(missing))
        over: list[Key] = []
        for line in lines:
            head = view.executions.get(line.head_id)
            if isinstance(head, Execution):
                if head.is_terminal:
                    over.append(LINE_ROWS.key_of(line))
                    continue
                if head.is_behind:
                    view.apply(head, take_turn(head, view.at))
                if line.due_at is not None:
                    view.apply(None, settled(line))
            else:
                pause = RETRY_SPOILED_MS if isinstance(head, Corrupt) else RETRY_MS
                view.apply(None, put_off(line, pause, view.at))
        return over

    # --- what is due -----------------------------------------------------------------------------

    async def move_due(self, keys: Sequence[Key]) -> int:
        """Tell heads that were locked when they got the turn; how many lines were looked at."""
        if not keys:
            return 0
        found = await self._tx.rows(LINE_ROWS, sorted(keys))
        self._view.rows.take(LINE_ROWS, found)
        self._locked.update(keys)
        now = self._view.at.now
        due = [
            line
            for key in sorted(found)
            if (line := self.line(key)) is not None and line.due_at is not None
            if line.due_at <= now
        ]
        over = await self._tell(due)
        over += await self._without_head(due)
        await self.pass_turns(list(dict.fromkeys(over)))
        return len(due)

    async def _without_head(self, lines: Sequence[LineRow]) -> list[Key]:
        """The lines with a head that no longer exists."""
        here = self._view.executions
        missing = [each for each in lines if each.head_id not in here]
        there = await self._tx.get([each.head_id for each in missing]) if missing else {}
        return [LINE_ROWS.key_of(each) for each in missing if each.head_id not in there]
