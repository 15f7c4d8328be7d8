"""Failures that are alike: what is broken, since when, and how much of it."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote, urlencode

from flowfabric.model.dead import DeadLetter
from flowfabric.model.failure import FailureGroup
from flowfabric.model.record import Record
from flowfabric.model.statistic import HOUR_MS
from flowfabric.model.telling import headline
from flowfabric.server.routes.values import path_id

PATH = "/ui/failures"
HOURS = 24


class GroupLine(Record, frozen=True, kw_only=True):
    """One group. `title`: the class of the exception, else the category; `hours`: how many failed
    in each hour of a day."""

    fingerprint: str
    namespace: str
    href: str
    path: str  # of its forms
    title: str
    message: str
    where: str
    kinds: tuple[str, ...]
    versions: tuple[str, ...]
    failed: int
    retried: int
    hours: tuple[int, ...]
    first_seen_at: int
    last_seen_at: int
    known_until: int | None
    known_by: str
    known_reason: str


class Failures(Record, frozen=True, kw_only=True):
    """The list of groups."""

    title: str = "Failures"
    rows: tuple[GroupLine, ...]
    with_known: bool
    next: str | None

    @property
    def sentence(self) -> str:
        """Whether it is one thing."""
        many = len(self.rows)
        if not many:
            return "No failures in the last 24 hours"
        failed = sum(each.failed for each in self.rows)
        groups = "1 kind of failure" if many == 1 else f"{many} kinds of failure"
        runs = f"{failed} run{'s' * (failed != 1)}"
        return f"{groups}, {runs} in the last 24 hours"


class Letter(Record, frozen=True, kw_only=True):
    """One run of a group."""

    execution_id: str
    path_id: str
    state: str
    kind: str
    ended_at: int
    reason: str
    attempts: int


class Failure(Record, frozen=True, kw_only=True):
    """The page of one group. `open`: how many of its runs could be run again."""

    title: str
    line: GroupLine
    letters: tuple[Letter, ...]
    open: int
    now: int
    operation_id: str
    next: str | None


def line_of(group: FailureGroup, now: int) -> GroupLine:
    """One group as the list shows it."""
    name = quote(group.fingerprint, safe="")
    where = group.frame or ""
    if where and group.line is not None:
        where = f"{where}, line {group.line}"
    return GroupLine(
        fingerprint=group.fingerprint,
        namespace=group.namespace,
        href=f"{PATH}/{name}?{urlencode({'namespace': group.namespace})}",
        path=f"{PATH}/{name}",
        title=group.exception or group.category,
        message=headline(group.message),
        where=where,
        kinds=group.execution_kinds,
        versions=group.versions,
        failed=group.failed,
        retried=group.retried,
        hours=_hours(group, now),
        first_seen_at=group.first_seen_at,
        last_seen_at=group.last_seen_at,
        known_until=group.known_until,
        known_by=group.known_by,
        known_reason=group.known_reason,
    )


def _hours(group: FailureGroup, now: int) -> tuple[int, ...]:
    first = now // HOUR_MS * HOUR_MS - (HOURS - 1) * HOUR_MS
    found = [0] * HOURS
    for each in group.counts:
        at = (each.begins_at - first) // HOUR_MS
        if 0 <= at < HOURS:
            found[at] += each.failed + each.retried
    return tuple(found)


def failures_of(
    groups: Iterable[FailureGroup],
    *,
    now: int,
    with_known: bool,
    next_page: str | None,
) -> Failures:
    """The list, the group that fails most first."""
    rows = sorted((line_of(each, now) for each in groups), key=lambda row: -row.failed)
    return Failures(rows=tuple(rows), with_known=with_known, next=next_page)


def failure_of(
    group: FailureGroup,
    letters: Iterable[DeadLetter],
    *,
    open_letters: int,
    now: int,
    operation_id: str,
    next_page: str | None,
) -> Failure:
    """The page of one group."""
    line = line_of(group, now)
    return Failure(
        title=line.title,
        line=line,
        letters=tuple(map(_letter, letters)),
        open=open_letters,
        now=now,
        operation_id=operation_id,
        next=next_page,
    )


def _letter(letter: DeadLetter) -> Letter:
    return Letter(
        execution_id=letter.execution_id,
        path_id=path_id(letter.execution_id),
        state=letter.public_state.value,
        kind=letter.execution_kind,
        ended_at=letter.ended_at,
        reason=headline(letter.reason),
        attempts=letter.attempts,
    )
