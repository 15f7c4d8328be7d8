"""What the tabs of a run show."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

from flowfabric.model.budget import Spent
from flowfabric.model.feed import TimelineEntry
from flowfabric.model.journal import EntryKind, EntryState, JournalPage
from flowfabric.model.log_lines import LogLine
from flowfabric.model.record import Record
from flowfabric.model.results import Outcome
from flowfabric.model.stream import StreamPage
from flowfabric.server.ui.showing import without_colours
from flowfabric.server.ui.views.jsontree import Node, Payload, payload_of

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# What can be made again by a fork: the call that is named, and all after it.
_CALLS: Final = (
    *(EntryKind.STEP, EntryKind.VALUE, EntryKind.WAIT, EntryKind.SPAWN, EntryKind.SUBMIT),
    *(EntryKind.MESSAGE, EntryKind.STARTED),
)


class Line(Record, frozen=True, kw_only=True):
    """One line of a log."""

    at: int
    level: str
    logger: str
    message: str
    attempt: int
    number: int


class Log(Record, frozen=True, kw_only=True):
    """The log. `skipped`: lines before the first that is shown; `hidden`: those that the filter
    leaves out; `dropped`: those that were never kept."""

    lines: tuple[Line, ...]
    level: str
    text: str
    skipped: int
    hidden: int
    dropped: int
    next_cursor: str | None


def log_of(
    lines: Iterable[LogLine],
    *,
    level: str,
    text: str,
    skipped: int,
    next_cursor: str | None,
    dropped: int,
) -> Log:
    """Lines that are severe enough and have the text in them."""
    several = list(lines)
    least, wanted = LEVELS.get(level, 0), text.lower()
    kept = [
        Line(
            at=each.at,
            level=each.level_name,
            logger=each.logger,
            message=without_colours(each.message),
            attempt=each.attempt_index,
            number=each.number,
        )
        for each in several
        if each.level >= least and (not wanted or wanted in each.message.lower())
    ]
    return Log(
        lines=tuple(kept),
        level=level if level in LEVELS else "",
        text=text,
        skipped=skipped,
        hidden=len(several) - len(kept),
        dropped=dropped,
        next_cursor=next_cursor,
    )


class Data(Record, frozen=True, kw_only=True):
    """What went in and what came out, and the runs that were made of it with another input."""

    given: Payload | None
    result: Payload | None
    retries: tuple[str, ...]


class FrameShown(Record, frozen=True, kw_only=True):
    """One frame of a stream: text as text, JSON as a tree."""

    id: str
    attempt: int
    type: str
    at: int
    text: str
    tree: Node | None


class Stream(Record, frozen=True, kw_only=True):
    """What the handler has shown. `text`: what was appended as text, in one piece."""

    frames: tuple[FrameShown, ...]
    text: str
    left_out: int
    next_cursor: str | None
    is_closed: bool
    closed_reason: str


def stream_of(page: StreamPage, *, most: int, shown: int) -> Stream:
    """A page of frames: as one text if all are text, else the latest of them."""
    frames, texts = [], []
    for each in page.frames:
        payload = payload_of(each.payload)
        tree = payload.tree if payload is not None else None
        text = payload.text if payload is not None else ""
        if tree is not None and tree.kind == "string":
            text, tree = str(json.loads(each.payload)), None
        if tree is None:
            texts.append(text)
        frames.append(
            FrameShown(
                id=each.id,
                attempt=each.attempt_index,
                type=each.frame_type,
                at=each.appended_at,
                text=text,
                tree=tree,
            )
        )
    return Stream(
        frames=tuple(frames[-shown:]),
        left_out=max(0, len(frames) - shown),
        text="".join(texts) if len(texts) == len(frames) else "",
        next_cursor=page.next_cursor if len(page.frames) >= most else None,
        is_closed=page.closed_at is not None,
        closed_reason=page.closed_reason.value if page.closed_reason is not None else "",
    )


class Step(Record, frozen=True, kw_only=True):
    """One entry of a journal."""

    position: int
    key: str
    kind: str
    state: str
    tries: int
    took_ms: int
    at: int
    attempt: int
    size: int
    error: str
    value: Payload | None
    arguments: Payload | None
    is_secret: bool
    can_fork: bool


class Steps(Record, frozen=True, kw_only=True):
    """What the handler has done, call by call."""

    steps: tuple[Step, ...]
    journal_index: int
    chapter_index: int
    next_after: int | None
    total_ms: int


def steps_of(page: JournalPage) -> Steps:
    """A page of a journal."""
    steps = tuple(
        Step(
            position=each.position,
            key=each.key,
            kind=each.kind.value,
            state=_WORDS.get(each.state, each.state.value),
            tries=each.tries,
            took_ms=each.took_ms,
            at=each.recorded_at,
            attempt=each.attempt_index,
            size=each.size,
            error=each.error.reason if each.error is not None else "",
            value=payload_of(each.value),
            arguments=payload_of(each.arguments),
            is_secret=each.is_secret,
            can_fork=each.kind in _CALLS,
        )
        for each in page.entries
    )
    return Steps(
        steps=steps,
        journal_index=page.journal_index,
        chapter_index=page.chapter_index,
        next_after=steps[-1].position if page.has_more and steps else None,
        total_ms=sum(each.took_ms for each in steps),
    )


_WORDS: Final = {EntryState.OK: "ok", EntryState.FAILED: "failed"}


class Spend(Record, frozen=True, kw_only=True):
    """What it has spent itself, and what its flow has with all members."""

    own: tuple[Spent, ...]
    flow: tuple[Spent, ...]


class Child(Record, frozen=True, kw_only=True):
    """A run that was made by this one, and the call that made it."""

    execution_id: str
    state: str
    key: str


_ID: Final = re.compile(r"\{fp:\d{1,9}\}:[0-9a-f-]{36}")


def made_by(page: JournalPage, *, most: int) -> dict[str, str]:
    """The ids of what the calls of a handler have made, each with the key of its call."""
    found: dict[str, str] = {}
    for each in page.entries:
        if each.kind in (EntryKind.SPAWN, EntryKind.SUBMIT) and each.value is not None:
            for match in _ID.findall(each.value.decode("utf-8", "replace")):
                found.setdefault(match, each.key)
    return dict(list(found.items())[-most:])


def children_of(made: Mapping[str, str], outcomes: Mapping[str, Outcome]) -> tuple[Child, ...]:
    """All of them; of those that have ended, how."""
    return tuple(
        Child(
            execution_id=execution_id,
            state=_state(outcomes.get(execution_id)),
            key=key,
        )
        for execution_id, key in made.items()
    )


def _state(outcome: Outcome | None) -> str:
    return "unfinished" if outcome is None else outcome.ended.public_state.value


class Events(Record, frozen=True, kw_only=True):
    """What happened, in order, the latest at the end."""

    entries: tuple[TimelineEntry, ...]
    left_out: int
    is_whole: bool
