"""Schedules as this process understands them: their calendar, their policy, and what they start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import FlowNode, NewFlow, SubmitFlow
from flowfabric.api.schedules import ScheduledStart
from flowfabric.calendar import Calendar, jitter_of
from flowfabric.config import EngineConfig
from flowfabric.engine.operations.flow_requests import to_submit
from flowfabric.engine.operations.requests import flow_hooks, to_create
from flowfabric.engine.operations.ties import refuse_unique
from flowfabric.errors import FlowFabricError, InvalidSchedule
from flowfabric.ids import new_execution_id, new_uuid7s
from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.kernel.flow.submit import SubmitFlow as SubmitGraph
from flowfabric.kernel.schedule.fate import Kept
from flowfabric.model.checks import check_tags
from flowfabric.model.record import from_json, from_msgpack, replace, to_json, to_msgpack
from flowfabric.model.schedule import (
    CAUGHT_UP_TAG,
    ID_TAG,
    NUMBER_TAG,
    TICK_TAG,
    Definition,
    ScheduleRow,
)

_KNOWN_MAX: Final = 20_000
_TAGS_ADDED: Final = {ID_TAG: "", TICK_TAG: "", NUMBER_TAG: "", CAUGHT_UP_TAG: ""}

Start = CreateExecution | SubmitGraph


class Plan:
    """One schedule, decoded."""

    def __init__(self, definition: Definition, start: ScheduledStart) -> None:
        self.timing = definition.timing
        self.policy = definition.policy
        self.start = start
        self.calendar = Calendar(definition.timing)
        self.weight = 1 if start.flow is None else max(1, len(start.flow.nodes))

    def fires_at(self, row: ScheduleRow, tick: int) -> int:
        """When a tick fires."""
        name = f"{row.namespace}\x1f{row.schedule_id}"
        return tick + jitter_of(self.timing.jitter_ms, name, tick)


class Plans:
    """The schedules of this process, each decoded once."""

    def __init__(self, config: EngineConfig, partitions: Callable[[], int]) -> None:
        self._config = config
        self._partitions = partitions
        self._known: dict[tuple[str, bytes], Plan | str] = {}
        self.kept = Kept(config.tick_retention_ms, config.missed_tick_retention_ms)
        # Rows that were due and are left to others: why, and when they were due.
        self.left: dict[tuple[str, str], tuple[str, int]] = {}

    def of(self, row: ScheduleRow) -> Plan | str:
        """A schedule's plan, or why this process does not understand it."""
        key = (row.definition, row.start)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            known = self._known[key] = _decoded(row)
        return known

    def command(
        self, plan: Plan, row: ScheduleRow, tick: int, number: int, *, caught_up: bool
    ) -> Start:
        """What starts a run; raises an error if its request is refused by now."""
        added = {ID_TAG: row.schedule_id, TICK_TAG: instant_text(tick), NUMBER_TAG: str(number)}
        if caught_up:
            added[CAUGHT_UP_TAG] = "true"
        if plan.start.flow is not None:
            return self._flow(plan.start.flow, row, added)
        execution_id = new_execution_id(self._partitions())
        request = _execution(plan.start.execution, row, added)
        refuse_unique(request, "schedules")
        return to_create(request, self._config, execution_id)

    def check(self, row: ScheduleRow) -> Start:
        """A schedule as it would start now; raises an error that names what is wrong with it."""
        plan = self.of(row)
        if isinstance(plan, str):
            raise InvalidSchedule(plan, field="timing")
        return self.command(plan, row, 0, 0, caught_up=True)

    def _flow(self, flow: SubmitFlow, row: ScheduleRow, added: Mapping[str, str]) -> SubmitGraph:
        new = NewFlow(
            flow_id=new_uuid7s(1)[0],
            flow_kind=flow.flow_kind,
            namespace=row.namespace,
            tags=check_tags({**(flow.tags or {}), **added}),
            retention_ms=flow.retention_ms,
            hooks=flow_hooks(flow, row.namespace, self._config),
        )
        nodes = [
            FlowNode(
                name=node.name, execution=_execution(node.execution, row, added), join=node.join
            )
            for node in flow.nodes
        ]
        return to_submit(new, nodes, flow.edges, self._config, self._partitions())


def _decoded(row: ScheduleRow) -> Plan | str:
    try:
        definition = from_json(row.definition, Definition, field="definition")
        start = from_msgpack(row.start, ScheduledStart, field="start")
        return Plan(definition, start)
    except FlowFabricError as error:
        return error.detail


def definition_text(definition: Definition) -> str:
    """As it is stored."""
    return to_json(definition).decode()


def start_bytes(start: ScheduledStart) -> bytes:
    """As it is stored."""
    return to_msgpack(start)


def instant_text(instant: int) -> str:
    """An instant as the tags of runs have it.

    >>> instant_text(1_774_746_000_000)
    '2026-03-29T01:00:00Z'
    """
    when = datetime.fromtimestamp(instant / 1000, UTC)
    precision = "milliseconds" if instant % 1000 else "seconds"
    return when.isoformat(timespec=precision).replace("+00:00", "Z")


def _execution(
    request: NewExecution | None, row: ScheduleRow, added: Mapping[str, str]
) -> NewExecution:
    if request is None:
        raise InvalidSchedule("start: give an execution or a flow", field="start")
    creator = request.creator_identity or f"schedule {row.schedule_id}"
    return replace(
        request,
        namespace=row.namespace,
        tags={**request.tags, **added},
        creator_identity=creator[:200],
    )
