"""Failures: by what they are alike, and how entries add to the groups and hours they tell of."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from flowfabric import limits
from flowfabric.model.execution import Execution
from flowfabric.model.failure import (
    Failing,
    FailureCount,
    FailureEntry,
    FailureGroup,
    FailureGroupRow,
    FailureHourRow,
    FailureOrigin,
)
from flowfabric.model.record import replace
from flowfabric.model.statistic import HOUR_MS, MINUTE_MS, Step

GroupKey = tuple[str, str]
HourKey = tuple[str, str, int]
_MINUTES: Final = HOUR_MS // MINUTE_MS
_NONE: Final = (0,) * _MINUTES
_DIGEST: Final = 16
# What differs between messages that say the same: quoted texts, ids, numbers.
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_VARYING: Final = re.compile(r"\b[0-9a-fA-F-]*\d[0-9a-fA-F-]*\b|\d+")


def shape_of(message: str) -> str:
    """A message without what differs from one time to the next.

    >>> shape_of("order 17 of 'ada' failed after 2.5s: 0190-ab")
    'order # of # failed after #.#s: #'
    """
    return _VARYING.sub("#", _QUOTED.sub("#", message))


def headline(reason: str) -> str:
    """The first line of a reason that says something."""
    text = reason.strip().partition("\n")[0].rstrip()
    return text.encode()[: limits.FAILURE_MESSAGE_BYTES].decode(errors="ignore")


def fingerprint_of(category: str, origin: FailureOrigin | None, message: str) -> str:
    """The same for failures that are alike: by class and frame or, where no worker tells them, by
    the shape of the message."""
    parts: tuple[str, ...]
    if origin is None:
        parts = ("message", category, shape_of(message))
    else:
        frame = shape_of(message) if origin.frame is None else origin.frame
        parts = ("origin", category, origin.exception, frame)
    digest = hashlib.sha256("\0".join(parts).encode(errors="replace"))
    return digest.hexdigest()[:_DIGEST]


def failure_entry(
    execution: Execution,
    now: int,
    *,
    category: str,
    reason: str,
    origin: FailureOrigin | None,
    is_final: bool,
) -> FailureEntry:
    """What is told of one failure."""
    message = headline(reason) or category
    return FailureEntry(
        execution.execution_id,
        execution.attempt_index,
        execution.namespace,
        execution.lane_id,
        execution.execution_kind,
        fingerprint_of(category, origin, message),
        category,
        message,
        Failing.FAILED if is_final else Failing.RETRIED,
        now,
        *((None,) * 4 if origin is None else _told(origin)),
    )


def _told(origin: FailureOrigin) -> tuple[str, str | None, int | None, str | None]:
    return origin.exception, origin.frame, origin.line, origin.version


# --- rolled up -----------------------------------------------------------------------------------


def is_timely(entry: FailureEntry) -> bool:
    """Whether an instant is one that a clock tells."""
    return 0 <= entry.occurred_at <= limits.INSTANT_MS_MAX - limits.STATISTIC_RETENTION_MS


def by_group(entries: Iterable[FailureEntry]) -> dict[GroupKey, list[FailureEntry]]:
    """Entries by their groups, in order."""
    found: defaultdict[GroupKey, list[FailureEntry]] = defaultdict(list)
    for each in entries:
        found[each.namespace, each.fingerprint].append(each)
    return dict(sorted(found.items()))


def by_hour(entries: Iterable[FailureEntry]) -> dict[HourKey, list[FailureEntry]]:
    """Entries by group and hour, in order."""
    found: defaultdict[HourKey, list[FailureEntry]] = defaultdict(list)
    for each in entries:
        hour_at = each.occurred_at - each.occurred_at % HOUR_MS
        found[each.namespace, each.fingerprint, hour_at].append(each)
    return dict(sorted(found.items()))


def grown(row: FailureGroupRow | None, entries: Sequence[FailureEntry]) -> FailureGroupRow:
    """The row of a group with what it gains. The latest entry says what is shown."""
    last = max(entries, key=lambda each: each.occurred_at)
    final = sum(each.is_final for each in entries)
    seen = (*(() if row is None else (row.last_seen_at,)), last.occurred_at)
    first = min(each.occurred_at for each in entries)
    kinds = (each.execution_kind for each in entries)
    versions = (each.version for each in entries if each.version is not None)
    made = FailureGroupRow(
        last.namespace,
        last.fingerprint,
        last.category,
        last.message,
        last.exception,
        last.frame,
        last.line,
        _latest(() if row is None else row.execution_kinds, kinds),
        _latest(() if row is None else row.versions, versions),
        (0 if row is None else row.failed) + final,
        (0 if row is None else row.retried) + len(entries) - final,
        first if row is None else min(row.first_seen_at, first),
        max(seen),
        max(seen) + limits.STATISTIC_RETENTION_MS,
    )
    if row is None:
        return made
    return replace(
        made, known_until=row.known_until, known_by=row.known_by, known_reason=row.known_reason
    )


def _latest(known: Sequence[str], more: Iterable[str]) -> tuple[str, ...]:
    """The words seen last, the latest at the end."""
    words = dict.fromkeys(known)
    for each in more:
        words.pop(each, None)
        words[each] = None
    return tuple(words)[-limits.FAILURE_WORDS :]


def hour_row(
    row: FailureHourRow | None, key: HourKey, entries: Iterable[FailureEntry]
) -> FailureHourRow:
    """The row of an hour with what it gains."""
    failed = list(_NONE if row is None else row.failed)
    retried = list(_NONE if row is None else row.retried)
    for each in entries:
        minute = (each.occurred_at - key[2]) // MINUTE_MS
        (failed if each.is_final else retried)[minute] += 1
    expires_at = key[2] + HOUR_MS + limits.FAILURE_WINDOW_MS
    return FailureHourRow(*key, tuple(failed), tuple(retried), expires_at)


# --- shown ---------------------------------------------------------------------------------------


def shown_group(
    row: FailureGroupRow, hours: Iterable[FailureHourRow], *, since: int, step: Step, now: int
) -> FailureGroup:
    """A group as it is shown, with what happened from the minute of `since` on."""
    counts: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
    for hour in hours:
        for at, (failed, retried) in enumerate(zip(hour.failed, hour.retried, strict=True)):
            minute_at = hour.hour_at + at * MINUTE_MS
            if (failed or retried) and minute_at >= since:
                begins_at = minute_at if step is Step.MINUTE else hour.hour_at
                counts[begins_at][0] += failed
                counts[begins_at][1] += retried
    is_known = row.known_until is not None and row.known_until > now
    return FailureGroup(
        namespace=row.namespace,
        fingerprint=row.fingerprint,
        category=row.category,
        message=row.message,
        exception=row.exception,
        frame=row.frame,
        line=row.line,
        execution_kinds=row.execution_kinds,
        versions=row.versions,
        failed=sum(failed for failed, _ in counts.values()),
        retried=sum(retried for _, retried in counts.values()),
        first_seen_at=row.first_seen_at,
        last_seen_at=row.last_seen_at,
        counts=() if step is Step.TOTAL else _counts(counts),
        known_until=row.known_until if is_known else None,
        known_by=row.known_by if is_known else "",
        known_reason=row.known_reason if is_known else "",
    )


def _counts(found: Mapping[int, list[int]]) -> tuple[FailureCount, ...]:
    return tuple(FailureCount(at, *found[at]) for at in sorted(found))
