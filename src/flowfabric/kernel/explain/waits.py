"""The condition of a suspended execution, in words and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowfabric.kernel.explain.limits import ask_hints, asks_in_words
from flowfabric.kernel.wait.condition import is_met, tokens_of
from flowfabric.model.ask import AskRow
from flowfabric.model.mailbox import mailbox_at
from flowfabric.model.record import Record
from flowfabric.model.results import WaitLine
from flowfabric.model.suspension import (
    AllOf,
    AnyOf,
    Contribution,
    Count,
    CountKind,
    OperatorOnly,
    ReasonCode,
    ResumeCondition,
    Single,
    SuspensionRow,
    TimeoutOnly,
)
from flowfabric.model.words import AT_TIMEOUT

_COUNTED: Final = {
    CountKind.DISTINCT_WAITPOINTS: "waitpoints",
    CountKind.DISTINCT_SIGNALS: "signals",
    CountKind.DISTINCT_SOURCES: "different sources",
}


class WaitLook(Record, frozen=True):
    """The current open episode of an execution."""

    row: SuspensionRow
    asks: tuple[AskRow, ...] = ()  # the questions of budgets whose answers it waits for


def lines_of(condition: ResumeCondition, progress: Sequence[Contribution]) -> tuple[WaitLine, ...]:
    """One line per leaf of the condition: its waitpoint, its names, and its progress."""
    match condition:
        case Single():
            return (_line((condition.waitpoint_key,), condition, "signal", 1, progress),)
        case Count():
            what = _COUNTED[condition.count_kind]
            return (_line(condition.waitpoints, condition, what, condition.n, progress),)
        case AllOf() | AnyOf():
            return tuple(line for each in condition.members for line in lines_of(each, progress))
        case OperatorOnly():
            return (WaitLine((), None, "operator", 0, 1),)
        case TimeoutOnly():
            return (WaitLine((), None, "timeout", 0, 1),)


def _line(
    keys: tuple[str, ...],
    leaf: Single | Count,
    what: str,
    needed: int,
    progress: Sequence[Contribution],
) -> WaitLine:
    counted = {token for each in progress for token in tokens_of(leaf, each)}
    return WaitLine(keys, leaf.signal_name, what, min(len(counted), needed), needed)


def in_words(condition: ResumeCondition, progress: Sequence[Contribution]) -> str:
    """The whole condition on one line.

    >>> in_words(Count(2, CountKind.DISTINCT_SOURCES, ("deploy",), "approved"), ())
    'approved from 2 different sources on deploy (0/2)'
    """
    match condition:
        case AllOf() | AnyOf():
            joint = " and " if isinstance(condition, AllOf) else " or "
            return joint.join(_member(each, progress) for each in condition.members)
        case OperatorOnly():
            return "an operator"
        case TimeoutOnly():
            return "its timeout"
        case _:
            (line,) = lines_of(condition, progress)
            return _leaf_in_words(condition, line)


def _member(condition: ResumeCondition, progress: Sequence[Contribution]) -> str:
    text = in_words(condition, progress)
    nested = isinstance(condition, AllOf | AnyOf) and len(condition.members) > 1
    return f"({text})" if nested else text


def _leaf_in_words(condition: Single | Count, line: WaitLine) -> str:
    where, name = ", ".join(line.waitpoint_keys), line.signal_name
    if isinstance(condition, Single):
        if (mailbox := mailbox_at(condition.waitpoint_key)) is not None:
            return f"a message in {mailbox}"
        text = f"signal {name} on {where}" if name else f"a signal on {where}"
        return f"{text} (came)" if line.have else text
    return f"{_counted_in_words(condition, where)} ({line.have}/{line.need})"


def _counted_in_words(count: Count, where: str) -> str:
    name = count.signal_name
    match count.count_kind:
        case CountKind.DISTINCT_WAITPOINTS:
            return f"{name or 'signals'} on {count.n} of {where}"
        case CountKind.DISTINCT_SIGNALS:
            return f"{count.n} signals{f' {name}' if name else ''} on {where}"
        case CountKind.DISTINCT_SOURCES:
            return f"{name or 'signals'} from {count.n} different sources on {where}"


def progress_of(row: SuspensionRow) -> tuple[int, int]:
    """The progress of a wait: `1/2` in listings."""
    return _steps(row.condition, row.progress)


def _steps(condition: ResumeCondition, progress: Sequence[Contribution]) -> tuple[int, int]:
    match condition:
        case AllOf():
            parts = [_steps(each, progress) for each in condition.members]
            return sum(have for have, _ in parts), sum(need for _, need in parts)
        case AnyOf():  # the member with the most progress, the first of equals
            parts = [_steps(each, progress) for each in condition.members]
            return max(parts, key=lambda part: part[0] / part[1])
        case _:
            (line,) = lines_of(condition, progress)
            return line.have, line.need


def summary_of(look: WaitLook) -> str:
    """The condition, and the effect of its timeout."""
    row = look.row
    if row.is_held_by_policy:
        return f"held: {row.continuation_metadata_pointer}"
    if look.asks:
        return asks_in_words(look.asks)
    what = in_words(row.condition, row.progress)
    reason = row.reason_code.value.replace("_", " ")
    plain = row.reason_code is ReasonCode.WAITING_FOR_SIGNAL
    text = f"waits for {what}" if plain else f"{reason}: {what}"
    if row.timeout_at is None:
        return text
    return f"{text}; when its time is over, {AT_TIMEOUT[row.timeout_behavior]}"


def hints_for(look: WaitLook) -> tuple[str, ...]:
    """Advice for an operator."""
    row = look.row
    if row.is_held_by_policy:
        held = row.execution_id
        return (
            f"ff journal {held}",
            f"ff release {held}, when workers have code that fits (ctx.patched, was=)",
            f"ff fork {held} --from KEY, to go on from there as a new run",
            f"ff cancel {held} and ff retry {held} --fresh, to start from the top",
        )
    hints = [*ask_hints(look.asks), f"ff waits show {row.execution_id}"]
    if look.asks:
        return tuple(hints)
    lines = lines_of(row.condition, row.progress)
    missing = next((line for line in lines if line.have < line.need), None)
    if missing is None:
        return tuple(hints)
    if not missing.waitpoint_keys:
        return (*hints, f"ff waits resume {row.execution_id} --by NAME")
    key = next((each for each in missing.waitpoint_keys if not _has_come(row, each)), None)
    key = key or missing.waitpoint_keys[0]
    if (mailbox := mailbox_at(key)) is not None:
        return (*hints, f"ff send {row.execution_id} {mailbox}")
    verb = "approve" if missing.signal_name == "approved" else "signal"
    name = f" --name {missing.signal_name}" if missing.signal_name and verb == "signal" else ""
    return (*hints, f"ff waits {verb} {row.execution_id} {key}{name} --by NAME")


def _has_come(row: SuspensionRow, key: str) -> bool:
    return is_met(Single(key), row.progress)
