"""Fork: a new execution goes on from a copy of another one's journal."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from flowfabric.errors import InvalidInput
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.model.execution import Execution
from flowfabric.model.journal import (
    EntryKind,
    EntryRow,
    EntryState,
    Forked,
    outcome_value,
)
from flowfabric.model.record import replace
from flowfabric.model.shown import shown
from flowfabric.model.suspension import ResumeInfo

_SETTABLE: Final = (EntryKind.STEP, EntryKind.VALUE, EntryKind.RETRYING)
_NEAREST: Final = 3


class Fork(ExecutionCommand[Forked], frozen=True, kw_only=True):
    """A new execution with a journal. `execution_id`: of the one it is copied from."""

    create: CreateExecution
    entries: tuple[EntryRow, ...]
    before: str

    def needs(self, need: Needs) -> None:
        """What a create needs, and the execution: it must still be there."""
        need.executions.update((self.execution_id, self.create.execution_id))
        self.create.needs(need)


def cut(
    entries: Sequence[EntryRow], before: str, execution: Execution
) -> Sequence[EntryRow] | Refused:
    """The entries before the first one with a key."""
    for at, entry in enumerate(entries):
        if entry.key == before and entry.kind is not EntryKind.CHAPTER:
            return entries[:at]
    if not entries:
        detail = f"before: execution {execution.execution_id} has no journal"
        return Refused(InvalidInput, detail, {"field": "before"})
    return _unknown("before", before, _keys(entries), execution.chapter_index)


def copied(
    entries: Iterable[EntryRow], execution_id: str, outcomes: Mapping[str, ResumeInfo]
) -> list[EntryRow]:
    """The same entries of another execution. What happened stays as it was; how a wait ended comes
    as a value, since its suspension is not copied."""
    found = []
    for entry in entries:
        state, value = entry.state, entry.value
        if entry.refers_to is not None and (outcome := outcomes.get(entry.refers_to)) is not None:
            state, value = EntryState.OK, outcome_value(outcome)
        row = replace(
            entry,
            execution_id=execution_id,
            journal_index=0,
            chapter_index=0,
            state=state,
            value=value,
            attempt_index=0,
            lease_epoch=0,
            next_key=None,
            refers_to=None,
        )
        found.append(row)
    return found


def with_results(
    entries: Sequence[EntryRow], results: Mapping[str, bytes]
) -> Sequence[EntryRow] | Refused:
    """The entries with other results."""
    rows = list(entries)
    last = {entry.key: at for at, entry in enumerate(rows)}
    for key, value in results.items():
        at = last.get(key)
        if at is None:
            return _unknown("results", key, _keys(entries), 0)
        if rows[at].kind not in _SETTABLE:
            detail = f"results: {shown(key, 80)} is of the kind {rows[at].kind.value}, not a result"
            return Refused(InvalidInput, detail, {"field": "results"})
        rows[at] = replace(
            rows[at], kind=_result_kind(rows[at]), state=EntryState.OK, value=value, error=None
        )
    return rows


def _result_kind(entry: EntryRow) -> EntryKind:
    """A step that is tried again has a result now."""
    return EntryKind.STEP if entry.kind is EntryKind.RETRYING else entry.kind


def _keys(entries: Iterable[EntryRow]) -> list[str]:
    kinds = (EntryKind.CHAPTER, EntryKind.PATCH)
    return list(dict.fromkeys(each.key for each in entries if each.kind not in kinds))


def _unknown(field: str, key: str, known: Sequence[str], chapter: int) -> Refused:
    """No entry has this key, or none before the cut."""
    near = difflib.get_close_matches(key, known, n=_NEAREST, cutoff=0.3) or known[:_NEAREST]
    where = "recorded" if field == "before" else "recorded before the cut"
    detail = f"{field}: {shown(key, 80)} is not {where}"
    if near:
        detail += f"; the nearest keys are {', '.join(near)}"
    if chapter:
        detail += f" (of chapter {chapter}; earlier ones cannot be gone back to)"
    return Refused(InvalidInput, detail, {"field": field, "nearest": list(near)})
