"""What operators do with lines: let them go on, and set them right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowfabric.errors import LineNotHeld, NotFound
from flowfabric.kernel.command import Command
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.order.line import RETRY_MS
from flowfabric.kernel.repair import differs, repair_events
from flowfabric.model.event import OperatorEvent, OperatorEventType
from flowfabric.model.execution import Execution
from flowfabric.model.line import LineReleased, LineRow, PlaceRow
from flowfabric.model.record import replace
from flowfabric.model.repair import Correction


class ReleaseLine(Command[LineReleased], frozen=True, kw_only=True):
    """A line goes on past a failed head."""

    namespace: str
    serial_key: str

    @property
    def key(self) -> tuple[str, str]:
        """The line."""
        return (self.namespace, self.serial_key)


class RecountLine(Command[tuple[Correction, ...]], frozen=True, kw_only=True):
    """A line is compared with its executions."""

    namespace: str
    serial_key: str

    @property
    def key(self) -> tuple[str, str]:
        """The line."""
        return (self.namespace, self.serial_key)


def refuse_release(line: LineRow | None, command: ReleaseLine) -> Refused | None:
    """Only a line that is held up can be let go on."""
    if line is None:
        return Refused(NotFound, f"line {command.serial_key}", {"entity": "line"})
    if line.held_at is None:
        return Refused(LineNotHeld, f"line {command.serial_key}: its head has not failed")
    return None


def released(line: LineRow, at: Moment) -> OperatorEvent:
    """The release, as audited."""
    details = {"serial_key": line.serial_key, "passed": line.head_id}
    kind = OperatorEventType.LINE_RELEASED
    return OperatorEvent(line.head_id, kind, details, line.namespace, {}, at.now)


# --- counting again ------------------------------------------------------------------------------


def subject_of(line: LineRow) -> str:
    """A line, as doctor names it."""
    return f"line {line.namespace}/{line.serial_key}"


def is_stale(place: PlaceRow, execution: Execution | None) -> bool:
    """Whether nothing waits at a place."""
    if execution is None or execution.is_terminal:
        return True
    return execution.line_place != place.number


def is_over(line: LineRow, head: Execution | None) -> bool:
    """Whether the head has lost the turn without passing it on; one that failed may keep it."""
    return line.held_at is None and (head is None or head.is_terminal)


def waits_in_vain(line: LineRow, head: Execution | None) -> bool:
    """Whether the head does not know that it has the turn, and nothing will tell it."""
    behind = head is not None and not head.is_terminal and head.is_behind
    return behind and line.due_at is None


def line_corrections(
    line: LineRow,
    head: Execution | None,
    places: Sequence[PlaceRow],
    executions: Mapping[str, Execution | None],
) -> tuple[Correction, ...]:
    """What is wrong with a line. Executions that cannot be read are left as they are."""
    subject = subject_of(line)
    stale = [
        each
        for each in places
        if each.execution_id in executions and is_stale(each, executions[each.execution_id])
    ]
    found = [
        Correction(subject, f"place {each.number}", each.execution_id, "none") for each in stale
    ]
    found += differs(subject, "waiting", line.waiting, len(places) - len(stale))
    if is_over(line, head):
        found.append(Correction(subject, "head", line.head_id, "the next in line"))
    elif waits_in_vain(line, head):
        found.append(Correction(subject, "turn", "untold", "told"))
    return tuple(found)


def set_right(
    line: LineRow,
    head: Execution | None,
    places: Sequence[PlaceRow],
    executions: Mapping[str, Execution | None],
    at: Moment,
) -> Decision[tuple[Correction, ...]]:
    """Close what is stale, count the rest; the loop passes or tells the turn at once."""
    found = line_corrections(line, head, places, executions)
    if not found:
        return Decision(found)
    stale = [
        each
        for each in places
        if each.execution_id in executions and is_stale(each, executions[each.execution_id])
    ]
    fixed = replace(line, waiting=len(places) - len(stale))
    if is_over(line, head) or waits_in_vain(line, head):
        fixed = replace(fixed, due_at=at.now + RETRY_MS)
    events = repair_events(subject_of(line), found, at, namespace=line.namespace)
    return Decision(found, events=events, saves=(fixed,), drops=tuple(stale))
