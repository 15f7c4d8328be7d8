"""The list of runs: its rows, its filter, how many there are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlencode

from flowfabric.model.record import Record
from flowfabric.model.results import ExecutionSnapshot
from flowfabric.model.state import TERMINAL_STATES
from flowfabric.model.telling import note
from flowfabric.server.routes.values import path_id
from flowfabric.server.ui.views.filters import (
    STATES,
    WORDS,
    Filter,
    Word,
    instead_of,
    without,
)

PATH: Final = "/ui/runs"
PAGE_ROWS: Final = 50
COLUMNS: Final = ("id", "lane", "priority", "attempts", "age", "took", "note", "tags")
NEW_MAX: Final = 1_000
COUNT_MAX: Final = 10_000  # more are told as "or more"


class Row(Record, frozen=True, kw_only=True):
    """One run. `took_ms`: until its end, or until now."""

    execution_id: str
    path_id: str
    state: str
    kind: str
    lane: str
    attempts: int
    created_at: int
    started_at: int | None
    took_ms: int | None
    is_over: bool
    note: str
    tags: tuple[tuple[str, str], ...]
    priority: int


class Runs(Record, frozen=True, kw_only=True):
    """The page. `count`: how many fit, counted up to `count_max`; None where that is not told.
    `without`: each word that could be left out, and the address then."""

    title: str = "Runs"
    text: str
    filter: Filter
    rows: tuple[Row, ...]
    count: int | None
    count_max: int
    next: str | None
    first: str | None
    new: int = 0
    new_max: int = NEW_MAX
    without: tuple[tuple[str, str], ...] = ()
    corrections: tuple[tuple[Word, str], ...] = ()
    lanes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    states: tuple[str, ...] = STATES
    words: tuple[str, ...] = WORDS
    columns: tuple[str, ...] = COLUMNS

    @property
    def sentence(self) -> str:
        """How many there are, in words."""
        if self.count is None:
            return f"{len(self.rows)} on this page"
        if self.count >= self.count_max:
            return f"{self.count_max:,}+ match".replace(",", "\u202f")
        return f"{self.count:,} match".replace(",", "\u202f")


def row_of(snapshot: ExecutionSnapshot, now: int) -> Row:
    """One run as the list shows it."""
    end = snapshot.completed_at
    started = snapshot.started_at
    return Row(
        execution_id=snapshot.execution_id,
        path_id=path_id(snapshot.execution_id),
        state=snapshot.public_state.value,
        kind=snapshot.execution_kind,
        lane=snapshot.lane_id,
        attempts=snapshot.total_attempt_count,
        created_at=snapshot.created_at,
        started_at=started,
        took_ms=None if started is None else max(0, (end or now) - started),
        is_over=snapshot.public_state in TERMINAL_STATES,
        note=note(snapshot, now),
        tags=tuple(snapshot.tags.items())[:4],
        priority=snapshot.priority,
    )


def runs_of(
    snapshots: Iterable[ExecutionSnapshot],
    filter: Filter,
    *,
    text: str,
    now: int,
    count: int | None,
    next_cursor: str | None,
    is_first: bool,
    new: int = 0,
    lanes: tuple[str, ...] = (),
    kinds: tuple[str, ...] = (),
) -> Runs:
    """The page of a filter."""
    corrected = [(word, _address(instead_of(text, word))) for word in filter.problems]
    return Runs(
        text=text,
        filter=filter,
        rows=tuple(row_of(each, now) for each in snapshots),
        count=count,
        new=new,
        count_max=COUNT_MAX,
        next=_address(text, cursor=next_cursor) if next_cursor else None,
        first=None if is_first else _address(text),
        without=tuple((word.text, _address(without(text, word))) for word in filter.words),
        corrections=tuple((word, address if word.instead else "") for word, address in corrected),
        lanes=lanes,
        kinds=kinds,
    )


def _address(text: str, **more: str | None) -> str:
    pairs = {"q": text, **more}
    query = urlencode({name: value for name, value in pairs.items() if value})
    return f"{PATH}?{query}" if query else PATH
