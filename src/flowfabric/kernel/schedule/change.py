"""Schedules are made, changed, paused and deleted. Each change is an operator event that has both
versions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from flowfabric import limits
from flowfabric.errors import InvalidSchedule, NotFound, ScheduleConflict
from flowfabric.kernel.command import Command, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.schedule.fate import FAILED_OFTEN, Kept
from flowfabric.model.checks import clip_text
from flowfabric.model.event import OperatorEvent, OperatorEventType
from flowfabric.model.record import Record, from_json, replace
from flowfabric.model.schedule import (
    Backfilled,
    Declared,
    DeclaredAs,
    Overlap,
    ScheduleRow,
    SchedulesDeclared,
    Source,
    Triggered,
)

R = TypeVar("R")


class Content(Record, frozen=True):
    """What a schedule does: checked, and encoded as it is stored."""

    definition: str
    start: bytes
    kind: str


class Changed(Record, frozen=True):
    """A schedule after a change, and its version before."""

    row: ScheduleRow
    version_before: int


class ScheduleCommand(Command[R], Generic[R], frozen=True, kw_only=True):
    """A command about one schedule."""

    namespace: str
    schedule_id: str

    def needs(self, need: Needs) -> None:
        """The lanes: a change may start what is due."""
        need.catalog = True


class CreateSchedule(ScheduleCommand[Changed], frozen=True, kw_only=True):
    """A schedule that is stored."""

    content: Content


class UpdateSchedule(ScheduleCommand[Changed], frozen=True, kw_only=True):
    """Other content; None: as before. `version`: only if it is still this one."""

    definition: str | None
    start: tuple[bytes, str] | None  # with its kind
    version: int | None = None


class PauseSchedule(ScheduleCommand[Changed], frozen=True, kw_only=True):
    """Its ticks are missed from now on."""

    reason: str


class ResumeSchedule(ScheduleCommand[Changed], frozen=True, kw_only=True):
    """Its ticks run again, from the next one on."""


class DeleteSchedule(ScheduleCommand[Changed], frozen=True, kw_only=True):
    """It is gone; its runs are not. `only_undeclared`: or it is left."""

    only_undeclared: bool = False


class TriggerSchedule(ScheduleCommand[Triggered], frozen=True, kw_only=True):
    """One run beside the calendar."""


class BackfillSchedule(ScheduleCommand[Backfilled], frozen=True, kw_only=True):
    """Runs for ticks of a range that have none, as many as one transaction takes."""

    begin: int
    end: int
    overlap: Overlap
    again: bool
    is_dry_run: bool


class Declaration(Record, frozen=True):
    """A schedule as a program declares it."""

    schedule_id: str
    content: Content
    digest: str
    origin: str


class DeclareSchedules(Command[SchedulesDeclared], frozen=True, kw_only=True):
    """All that a program declares. `origins`: the parts of programs that it speaks for."""

    namespace: str
    declarations: tuple[Declaration, ...]
    origins: tuple[str, ...]

    def needs(self, need: Needs) -> None:
        """The lanes."""
        need.catalog = True


# --- rules ---------------------------------------------------------------------------------------


def schedule_not_found(schedule_id: str) -> Refused:
    """There is none of this name."""
    return Refused(NotFound, f"schedule {schedule_id}", {"entity": "schedule", "id": schedule_id})


def refuse_past(field: str) -> Refused:
    """A calendar without a tick to come."""
    detail = f"{field}: no tick is to come"
    return Refused(InvalidSchedule, detail, {"field": field})


def not_understood(row: ScheduleRow, problem: str) -> Refused:
    """This process is older than the schedule, or lacks its time zone."""
    return Refused(InvalidSchedule, f"schedule {row.schedule_id}: {problem}", {"field": "timing"})


def refuse_backfill(
    row: ScheduleRow, command: BackfillSchedule, ticks: Sequence[int], kept: Kept, at: Moment
) -> Refused | None:
    """Too many ticks at once, or some of which no row tells whether they ran."""
    most = limits.BACKFILL_MAX
    if len(ticks) > most:
        count = f"{len(ticks)} ticks" if len(ticks) < 10 * most else f"{len(ticks)} ticks or more"
        detail = f"end: the range has {count}; at most {most} are backfilled at once"
        return Refused(InvalidSchedule, detail, {"field": "end", "count": len(ticks)})
    if ticks and not command.again and ticks[0] < at.now - kept.ran_ms:
        detail = "begin: runs of ticks that old are not remembered; with again they may run twice"
        return Refused(InvalidSchedule, detail, {"field": "begin"})
    return None


def new_schedule(
    known: ScheduleRow | None, command: CreateSchedule, at: Moment
) -> Decision[Changed]:
    """The same again changes nothing."""
    if known is not None:
        if content_of(known) == command.content:
            return Decision(Changed(known, known.version))
        detail = f"schedule_id: there is a schedule {command.schedule_id} already"
        return Decision(Refused(ScheduleConflict, detail, {"field": "schedule_id"}))
    row = _new(command.namespace, command.schedule_id, Source.STORED, command.content, at)
    event = _event(OperatorEventType.SCHEDULE_CREATED, row, at, after=told(row))
    return Decision(Changed(row, 0), saves=(row,), events=(event,))


def _new(namespace: str, name: str, source: Source, content: Content, at: Moment) -> ScheduleRow:
    return ScheduleRow(
        namespace,
        name,
        source,
        1,
        content.definition,
        content.start,
        content.kind,
        created_at=at.now,
        changed_at=at.now,
        done_until=at.now,
        next_at=None,
        next_tick=None,
    )


def draft(namespace: str, schedule_id: str, content: Content) -> ScheduleRow:
    """A schedule that is only looked at."""
    return _new(namespace, schedule_id, Source.STORED, content, Moment(0))


def digest_of(content: Content) -> str:
    """Tells whether a declaration has changed."""
    digest = hashlib.sha256(content.definition.encode())
    digest.update(b"\x00" + content.kind.encode() + b"\x00" + content.start)
    return digest.hexdigest()[:32]


def content_of(row: ScheduleRow) -> Content:
    """What it does."""
    return Content(row.definition, row.start, row.kind)


def refuse_version(row: ScheduleRow, version: int | None) -> Refused | None:
    """It was changed since its caller has read it."""
    if version is None or version == row.version:
        return None
    detail = f"expected_version: {version}, but schedule {row.schedule_id} has {row.version}"
    return Refused(ScheduleConflict, detail, {"field": "expected_version", "version": row.version})


def updated_schedule(row: ScheduleRow, content: Content, at: Moment) -> Decision[Changed]:
    """Other content, in another version; its pause and its history stay."""
    before = row.version
    if content_of(row) == content:
        return Decision(Changed(row, before))
    after = with_content(row, content, at)
    event = _event(
        OperatorEventType.SCHEDULE_CHANGED, after, at, before=told(row), after=told(after)
    )
    return Decision(Changed(after, before), saves=(after,), events=(event,))


def with_content(row: ScheduleRow, content: Content, at: Moment) -> ScheduleRow:
    """The next version. Ticks of another calendar are those from now on."""
    return replace(
        row,
        version=row.version + 1,
        definition=content.definition,
        start=content.start,
        kind=content.kind,
        changed_at=at.now,
        done_until=max(row.done_until, at.now)
        if content.definition != row.definition
        else row.done_until,
    )


def paused_schedule(row: ScheduleRow, reason: str, by: str, at: Moment) -> Decision[Changed]:
    """A paused one stays as it is paused."""
    before = row.version
    if row.is_paused:
        return Decision(Changed(row, before))
    after = replace(
        row,
        version=before + 1,
        changed_at=at.now,
        paused_at=at.now,
        paused_by=by,
        pause_reason=reason,
    )
    event = _event(
        OperatorEventType.SCHEDULE_PAUSED, after, at, before=told(row), after=told(after)
    )
    return Decision(Changed(after, before), saves=(after,), events=(event,))


def paused_by_failures(row: ScheduleRow, at: Moment) -> Decision[Changed]:
    """It pauses itself."""
    return paused_schedule(row, f"{row.failures} failures in a row", FAILED_OFTEN, at)


def resumed_schedule(row: ScheduleRow, at: Moment) -> Decision[Changed]:
    """Failures are counted anew."""
    before = row.version
    if not row.is_paused:
        return Decision(Changed(row, before))
    after = replace(
        row,
        version=before + 1,
        changed_at=at.now,
        paused_at=None,
        paused_by="",
        pause_reason="",
        failures=0,
    )
    event = _event(
        OperatorEventType.SCHEDULE_RESUMED, after, at, before=told(row), after=told(after)
    )
    return Decision(Changed(after, before), saves=(after,), events=(event,))


def deleted_schedule(row: ScheduleRow, at: Moment) -> Decision[Changed]:
    """Its ticks stay as long as they are kept."""
    event = _event(OperatorEventType.SCHEDULE_DELETED, row, at, before=told(row))
    return Decision(Changed(row, row.version), drops=(row,), events=(event,))


def triggered_schedule(row: ScheduleRow, reply: Triggered, at: Moment) -> OperatorEvent:
    """An operator has started a run."""
    return _event(
        OperatorEventType.SCHEDULE_TRIGGERED, row, at, run=reply.run_id, number=reply.number
    )


def backfilled_schedule(
    row: ScheduleRow, command: BackfillSchedule, reply: Backfilled, at: Moment
) -> OperatorEvent:
    """An operator has started runs for ticks of the past."""
    return _event(
        OperatorEventType.SCHEDULE_BACKFILLED,
        row,
        at,
        begin=command.begin,
        end=command.end,
        started=len(reply.started),
        refused=len(reply.refused),
    )


# --- declarations --------------------------------------------------------------------------------


class Declaring(Record, frozen=True):
    """What comes of a declaration: the next image of its row, unless nothing changes."""

    outcome: Declared
    row: ScheduleRow | None = None
    event: OperatorEvent | None = None
    is_rescheduled: bool = False


def declare(
    known: ScheduleRow | None, wanted: Declaration, namespace: str, at: Moment
) -> Declaring:
    """A declaration is written only if it changed. What operators did to the schedule since stays,
    its pause above all."""
    name = wanted.schedule_id
    if known is None:
        new = _new(namespace, name, Source.DECLARED, wanted.content, at)
        row = replace(new, origin=wanted.origin, digest=wanted.digest)
        event = _event(OperatorEventType.SCHEDULE_CREATED, row, at, after=told(row))
        return Declaring(Declared(name, DeclaredAs.CREATED), row, event, True)
    if known.source is not Source.DECLARED or known.origin != wanted.origin:
        detail = "it was made by a call"
        if known.source is Source.DECLARED:
            detail = f"{known.origin} declares one of this name"
        return Declaring(Declared(name, DeclaredAs.CONFLICT, detail))
    if known.digest == wanted.digest:
        if known.undeclared_at is None:
            return Declaring(Declared(name, DeclaredAs.UNCHANGED, flaps=known.flaps))
        return Declaring(
            Declared(name, DeclaredAs.UNCHANGED, flaps=known.flaps),
            replace(known, undeclared_at=None),
        )
    # Two versions of the code that both start workers take turns: the later start wins.
    flaps = known.flaps + 1 if wanted.digest == known.digest_before else 0
    after = replace(
        with_content(known, wanted.content, at),
        digest=wanted.digest,
        digest_before=known.digest,
        flaps=flaps,
        undeclared_at=None,
    )
    event = _event(
        OperatorEventType.SCHEDULE_CHANGED, after, at, before=told(known), after=told(after)
    )
    detail = differing(known, after)
    return Declaring(Declared(name, DeclaredAs.CHANGED, detail, flaps), after, event, True)


def differing(before: ScheduleRow, after: ScheduleRow) -> str:
    """What is different in another version, in words."""
    first, second = _parts(before), _parts(after)
    changes = [
        f"{name} {_word(first.get(name))} → {_word(second.get(name))}"
        for name in sorted(first.keys() | second.keys())
        if first.get(name) != second.get(name)
    ]
    if (before.kind, before.start) != (after.kind, after.start):
        changes.append("what it starts")
    words = f"version {before.version} → {after.version}: {', '.join(changes)}"
    return clip_text(words, limits.REASON_BYTES, field="detail")


def _parts(row: ScheduleRow) -> dict[str, Any]:
    definition = from_json(row.definition, dict[str, Any], field="definition")
    return {**definition.get("timing", {}), **definition.get("policy", {})}


def _word(value: object) -> str:
    if value is None:
        return "as usual"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def undeclared(
    known: Sequence[ScheduleRow], declared: frozenset[str], at: Moment
) -> list[tuple[ScheduleRow, OperatorEvent]]:
    """Those that their program declares no more. They go on; people see it."""
    return [
        (
            replace(row, undeclared_at=at.now),
            _event(OperatorEventType.SCHEDULE_UNDECLARED, row, at, before=told(row)),
        )
        for row in known
        if row.schedule_id not in declared and row.undeclared_at is None
    ]


# --- events --------------------------------------------------------------------------------------


def told(row: ScheduleRow) -> dict[str, Any]:
    """A version of a schedule, for its event."""
    return {
        "version": row.version,
        "kind": row.kind,
        "definition": from_json(row.definition, dict[str, Any], field="definition"),
        "paused": row.is_paused,
    }


def _event(
    kind: OperatorEventType, row: ScheduleRow, at: Moment, **details: object
) -> OperatorEvent:
    said: Mapping[str, Any] = details
    return OperatorEvent(row.schedule_id, kind, said, row.namespace, {}, at.now)
