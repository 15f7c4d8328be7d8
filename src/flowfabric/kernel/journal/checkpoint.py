"""Checkpoint: the owner of a lease adds entries to the journal of its execution."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flowfabric import limits
from flowfabric.errors import Corruption, IdempotencyConflict, JournalFull
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.execution.fence import not_found, refuse_unless_owner
from flowfabric.kernel.limit.reservation import Settle
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.journal import (
    Checkpointed,
    EntryKind,
    EntryRow,
    NewEntry,
    PublishedRow,
    Settlement,
)
from flowfabric.model.record import replace, to_json


class Checkpoint(ExecutionCommand[Checkpointed], frozen=True, kw_only=True):
    """Add entries, all or none. The execution is held and not written, unless reservations end
    with them.

    `is_joined`: in a transaction of the caller's own. Entries that are there were committed with
    its rows by the same call, sent before: these must not be written again.
    """

    fence: Fence
    entries: tuple[NewEntry, ...]
    next_key: str | None = None
    is_joined: bool = False

    @property
    def recorded(self) -> tuple[NewEntry, ...]:
        """The entries that become rows of the journal."""
        return self.entries if self.published is None else self.entries[:-1]

    @property
    def published(self) -> bytes | None:
        """What the run publishes with them: the last one says it."""
        last = self.entries[-1]
        return (last.value or b"null") if last.kind is EntryKind.STATE else None

    @property
    def is_plain(self) -> bool:
        """Whether entries are all that it writes."""
        return self.published is None and not any(entry.settles for entry in self.entries)

    @property
    def settlements(self) -> list[tuple[int, Settle]]:
        """The reservations that end with entries, and the positions of these."""
        return [
            (entry.position, self._settle(each)) for entry in self.entries for each in entry.settles
        ]

    def _settle(self, settlement: Settlement) -> Settle:
        return Settle(
            execution_id=self.execution_id,
            fence=self.fence,
            budget_id=settlement.budget_id,
            hold_id=settlement.hold_id,
            amounts=settlement.amounts,
            is_carried=True,
        )

    def needs(self, need: Needs) -> None:
        """The execution, and what the reservations need."""
        need.executions.add(self.execution_id)
        if self.published is not None:
            need.published.add((self.execution_id,))
        for _, settle in self.settlements:
            settle.needs(need)


def checkpoint(
    execution: Execution | None,
    known: Mapping[int, EntryRow],
    command: Checkpoint,
    at: Moment,
    refers_to: str | None = None,
) -> Decision[Checkpointed]:
    """New rows. Only one owner at a time counts positions, so an entry that is there was written by
    this very command, sent before; any other one is damage.

    `known`: entries at the positions of the command. `refers_to`: the suspension with which they
    come; the last one tells of it.
    """
    refusal = refuse_unless_owner(execution, command.execution_id, command.fence, at.now)
    if refusal is not None or execution is None:
        return Decision(refusal or not_found(command.execution_id))
    entries = command.recorded
    last = entries[-1].position if entries else command.entries[0].position - 1
    if last >= limits.JOURNAL_ENTRIES_MAX:
        return Decision(journal_full(limits.JOURNAL_ENTRIES_MAX, "entries"))
    rows = [_row(execution, entry, at.now) for entry in entries]
    if rows and command.next_key is not None:
        rows[-1] = replace(rows[-1], next_key=command.next_key)
    if rows and refers_to is not None:
        rows[-1] = replace(rows[-1], refers_to=refers_to)
    fresh = list[EntryRow]()
    for row in rows:
        before = known.get(row.position)
        if before is None:
            fresh.append(row)
        elif not before.repeats(row):
            return Decision(_occupied(before, row))
        elif command.is_joined:
            return Decision(_committed(before))
    if fresh or not rows:  # a repeated command has published already
        return Decision(Checkpointed(last), saves=(*fresh, *_published(execution, command, at.now)))
    return Decision(Checkpointed(last))


def _published(execution: Execution, command: Checkpoint, now: int) -> tuple[PublishedRow, ...]:
    """What the run shows from now on."""
    if (value := command.published) is None:
        return ()
    return (PublishedRow(execution.execution_id, value, now, execution.attempt_index or 0),)


def with_answers(
    command: Checkpoint,
    kind: EntryKind,
    answers: Sequence[Any],
    written: Callable[[Sequence[Any]], bytes] = to_json,
) -> Checkpoint:
    """Entries of one kind, each with the answers of its own as its value, which says before how
    many they are: the ids of spawned children, what became of submits."""
    left = list(answers)
    entries = []
    for entry in command.entries:
        if entry.kind is kind:
            count = answers_wanted(entry)
            own, left = left[:count], left[count:]
            entry = replace(entry, value=written(own))  # noqa: PLW2901 - the same, filled in
        entries.append(entry)
    return replace(command, entries=tuple(entries))


def answers_wanted(entry: NewEntry) -> int:
    """How many answers an entry to be filled in is about."""
    value = entry.value or b""
    return int(value) if value.isdigit() else 0


def journal_full(limit: int, what: str) -> Refused:
    """No more fits into this chapter."""
    detail = (
        f"the journal has {limit:,} {what}, which is all it may have: go on in another chapter "
        "by ctx.continue_as_new, split the work among children, or let each step do more"
    )
    return Refused(JournalFull, detail, {"limit": limit})


def _occupied(before: EntryRow, row: EntryRow) -> Refused:
    detail = (
        f"execution {row.execution_id}: entry {row.position} of its journal is {before.key!r} and "
        f"was to be {row.key!r}"
    )
    return Refused(Corruption, detail)


def _committed(before: EntryRow) -> Refused:
    detail = (
        f"execution {before.execution_id}: entry {before.position} of its journal, {before.key!r}, "
        "was committed before, with the rows that belong to it; roll back"
    )
    return Refused(IdempotencyConflict, detail, {"field": "entries"})


def _row(execution: Execution, entry: NewEntry, now: int) -> EntryRow:
    return EntryRow(
        execution.execution_id,
        execution.journal_index,
        execution.chapter_index,
        entry.position,
        entry.asked,
        entry.key,
        entry.kind,
        entry.state,
        entry.tries,
        entry.began_at,
        entry.took_ms,
        now,
        execution.attempt_index or 0,
        execution.lease_epoch,
        int(entry.is_secret),
        entry.value,
        entry.digest,
        entry.error,
        entry.code,
        arguments=entry.arguments,
    )
