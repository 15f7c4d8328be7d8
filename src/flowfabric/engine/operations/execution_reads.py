"""The state of one execution, outcomes of executions, and waiting for them.

Reads are not part of any transaction; each returns committed state.
"""

from __future__ import annotations

from functools import partial
from typing import cast

from flowfabric import limits
from flowfabric.api import executions as api
from flowfabric.api.hints import end_topic, wait_event
from flowfabric.api.page import Page, at_number
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.asks import asks_of
from flowfabric.engine.operations.core_fields import (
    CURRENT_WAITPOINT,
    core_fields,
    current_waitpoint,
)
from flowfabric.engine.operations.flow_looks import look_at_dependencies
from flowfabric.engine.operations.journal import last_told
from flowfabric.engine.operations.limit_looks import look_at_bounds
from flowfabric.engine.operations.line_looks import fair_ahead, look_at_line
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers
from flowfabric.engine.operations.wait_reads import look_at_wait
from flowfabric.engine.operations.waiting import left_s, wait_until
from flowfabric.engine.operations.workers import live_workers
from flowfabric.engine.unit.successors import successors_told
from flowfabric.errors import Corruption, NotFound, WaitTimeout
from flowfabric.kernel.explain.execution import explain as explanation_of
from flowfabric.model.attempt import Attempt, AttemptOutcome, AttemptType
from flowfabric.model.checks import check_integer, check_list, check_name, check_tag_key
from flowfabric.model.code import pinned_version
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace
from flowfabric.model.results import (
    AttemptInfo,
    ExecutionContext,
    ExecutionSnapshot,
    Explanation,
    Outcome,
    snapshot_of,
)
from flowfabric.model.schedule import RunOf, run_of
from flowfabric.model.state import PublicState, TerminalOutcome
from flowfabric.model.ties import UNTIED
from flowfabric.stores.base import Corrupt, ListFilter, Reader
from flowfabric.stores.tables import TICKS

_ATTEMPTS = Listing("list_attempts", at_number)


async def _find(machine: Machine, execution_id: str) -> Execution | None:
    checked = machine.check_id(execution_id)
    return _readable((await machine.read(lambda reader: reader.get((checked,)))).get(checked))


async def _require(machine: Machine, execution_id: str) -> Execution:
    execution = await _find(machine, execution_id)
    if execution is None:
        raise NotFound(f"execution {execution_id}", entity="execution")
    return execution


def _readable(found: Execution | Corrupt | None) -> Execution | None:
    if isinstance(found, Corrupt):
        raise Corruption(f"execution {found.execution_id}: {found.detail}")
    return found


# --- one execution -------------------------------------------------------------------------------


@answers(api.DescribeExecution)
async def describe_execution(
    machine: Machine, request: api.DescribeExecution
) -> ExecutionSnapshot | None:
    """The execution without secrets and payloads."""
    return await _snapshot(machine, request.execution_id)


@answers(api.ReadExecutionInfo)
async def read_execution_info(
    machine: Machine, request: api.ReadExecutionInfo
) -> ExecutionSnapshot | None:
    """The same under the seeds' name."""
    return await _snapshot(machine, request.execution_id)


async def _snapshot(machine: Machine, execution_id: str) -> ExecutionSnapshot | None:
    execution = await _find(machine, execution_id)
    if execution is None:
        return None
    snapshot = snapshot_of(execution)
    if execution.ties is UNTIED and execution.undos is None:
        return snapshot
    return replace(snapshot, successors=successors_told(execution))


@answers(api.ReadExecutionState)
async def read_execution_state(
    machine: Machine, request: api.ReadExecutionState
) -> PublicState | None:
    """The public state."""
    execution = await _find(machine, request.execution_id)
    return None if execution is None else execution.public_state


@answers(api.ReadExecutionContext)
async def read_execution_context(
    machine: Machine, request: api.ReadExecutionContext
) -> ExecutionContext:
    """The input and its labels."""
    execution = await _require(machine, request.execution_id)
    bodies = await machine.read(lambda reader: reader.bodies((execution.execution_id,)))
    body = bodies[execution.execution_id]
    return ExecutionContext(
        body.payload, body.payload_encoding, execution.execution_kind, execution.tags
    )


@answers(api.ReadCurrentAttemptIndex)
async def read_current_attempt_index(machine: Machine, request: api.ReadCurrentAttemptIndex) -> int:
    """0 before the first attempt."""
    return (await _require(machine, request.execution_id)).attempt_index or 0


@answers(api.ReadTotalAttemptCount)
async def read_total_attempt_count(machine: Machine, request: api.ReadTotalAttemptCount) -> int:
    """The attempts of all generations."""
    return (await _require(machine, request.execution_id)).total_attempt_count


@answers(api.GetExecutionTag)
async def get_execution_tag(machine: Machine, request: api.GetExecutionTag) -> str | None:
    """One tag."""
    check_tag_key(request.key)
    execution = await _find(machine, request.execution_id)
    return None if execution is None else execution.tags.get(request.key)


@answers(api.GetExecutionNamespace)
async def get_execution_namespace(
    machine: Machine, request: api.GetExecutionNamespace
) -> str | None:
    """The tenant."""
    execution = await _find(machine, request.execution_id)
    return None if execution is None else execution.namespace


@answers(api.ReadExecCoreFields)
async def read_exec_core_fields(
    machine: Machine, request: api.ReadExecCoreFields
) -> dict[str, str | None]:
    """Named fields as text."""
    asked = [check_name(name, field="names") for name in check_list(request.names, field="names")]
    checked = machine.check_id(request.execution_id)

    async def work(reader: Reader) -> dict[str, str | None]:
        execution = _readable((await reader.get((checked,))).get(checked))
        if execution is None:
            return {}
        values = core_fields(execution)
        if CURRENT_WAITPOINT in asked:
            values[CURRENT_WAITPOINT] = await current_waitpoint(reader, execution)
        return values

    values = await machine.read(work) if asked else {}
    return {name: values.get(name) for name in asked}


@answers(api.ListAttempts)
async def list_attempts(machine: Machine, request: api.ListAttempts) -> Page[AttemptInfo]:
    """Ended attempts are rows of their own; the live one is part of the execution."""
    limit, after = check_limit(request.limit), _ATTEMPTS.place(request.cursor)
    execution = await _require(machine, request.execution_id)
    ended = await machine.read(lambda reader: reader.attempts(execution.execution_id))
    attempts = [_ended_info(attempt) for attempt in ended]
    known = {attempt.attempt_index for attempt in ended}
    if execution.attempt_index is not None and execution.attempt_index not in known:
        attempts.append(_live_info(execution))
    return _ATTEMPTS.page(
        [each for each in attempts if after is None or each.attempt_index > after[0]],
        limit,
        place_of=lambda each: (each.attempt_index,),
        show=lambda each: each,
    )


def _ended_info(attempt: Attempt) -> AttemptInfo:
    return AttemptInfo(
        attempt.attempt_index,
        attempt.attempt_id,
        attempt.attempt_type,
        attempt.outcome.value,
        attempt.lease_epoch,
        attempt.worker_id,
        attempt.worker_instance_id,
        attempt.started_at,
        attempt.ended_at,
        attempt.failure_reason,
        attempt.failure_category,
    )


def _live_info(execution: Execution) -> AttemptInfo:
    outcome = AttemptOutcome.STARTED if execution.is_leased else AttemptOutcome.SUSPENDED
    return AttemptInfo(
        execution.attempt_index or 0,
        execution.attempt_id or "",
        execution.attempt_type or AttemptType.INITIAL,
        outcome.value,
        execution.lease_epoch,
        execution.worker_id,
        execution.worker_instance_id,
        execution.attempt_started_at or 0,
        None,
        None,
        None,
    )


@answers(api.Explain)
async def explain(machine: Machine, request: api.Explain) -> Explanation:
    """Every reason that can keep it from running, read together."""
    execution = await _require(machine, request.execution_id)

    async def work(reader: Reader) -> Explanation:
        catalog = await reader.catalog()
        workers = await live_workers(reader, execution.namespace)
        lane_state = catalog.lane_state(execution.lane_id)
        fault = catalog.lane_fault(execution.lane_id)
        bounds = await look_at_bounds(execution, reader)
        wait = await look_at_wait(execution, reader)
        if wait is not None:
            asks = await asks_of(reader, execution.execution_id)
            wait = replace(wait, asks=tuple(each for each in asks if each.is_open))
        others = await look_at_dependencies(execution, reader)
        last, running = await last_told(reader, execution)
        line = await look_at_line(execution, reader)
        ahead = await fair_ahead(execution, reader)
        waiting = None
        if execution.is_waiting and pinned_version(execution.route) is not None:
            # Of the same version alone: others have other routes.
            waiting = await reader.count_listed(
                ListFilter(states=(PublicState.WAITING.value,), routes=(execution.route,))
            )
        explained = explanation_of(
            *(execution, lane_state, workers, bounds, reader.now, wait, others, fault, last),
            waiting=waiting,
            running=running,
            line=line,
        )
        started_by = await _schedule_of(reader, execution)
        return replace(
            explained,
            successors=successors_told(execution),
            schedule=started_by,
            fair_key=execution.fair_key,
            fair_ahead=ahead,
        )

    return await machine.read(work)


async def _schedule_of(reader: Reader, execution: Execution) -> RunOf | None:
    """The schedule that has started it or its flow, with the fate of the tick."""
    found = run_of(execution.tags)
    if found is None:
        return None
    key = (execution.namespace, found.schedule_id, found.tick)
    row = (await reader.peek_rows(TICKS, [key])).get(key)
    if row is None or row.run_id not in (execution.execution_id, execution.flow_id):
        return found
    return replace(found, fate=row.fate)


# --- how executions ended ------------------------------------------------------------------------


@answers(api.GetExecutionResult)
async def get_execution_result(machine: Machine, request: api.GetExecutionResult) -> bytes | None:
    """The result of a success."""
    found = await _success(machine, request.execution_id)
    return None if found is None else found.result


@answers(api.ReadResult)
async def read_result(machine: Machine, request: api.ReadResult) -> Attempt | None:
    """The result with its encoding."""
    return await _success(machine, request.execution_id)


async def _success(machine: Machine, execution_id: str) -> Attempt | None:
    """The successful attempt, if there is one."""
    execution = await _find(machine, execution_id)
    if execution is None or execution.state.terminal_outcome is not TerminalOutcome.SUCCESS:
        return None
    index = execution.attempt_index or 0
    return await machine.read(lambda reader: reader.result(execution.execution_id, index))


@answers(api.ReadOutcomes)
async def read_outcomes(machine: Machine, request: api.ReadOutcomes) -> dict[str, Outcome]:
    """The outcomes of those that have ended."""
    several = check_list(request.execution_ids, field="execution_ids")
    keys = [machine.check_id(each) for each in several]

    async def work(reader: Reader) -> dict[str, Outcome]:
        found = (await reader.get(keys)).items()
        ended = {k: e for k, e in found if isinstance(e, Execution) and e.is_terminal}
        attempts = await reader.results(list(ended))
        return {
            key: Outcome(snapshot_of(execution), attempts[key].result if key in attempts else None)
            for key, execution in ended.items()
        }

    return await machine.read(work)


@answers(api.WaitForResult)
async def wait_for_result(machine: Machine, request: api.WaitForResult) -> ExecutionSnapshot:
    """The snapshot alone."""
    return (await _end(machine, request.execution_id, request.wait_ms, 0)).ended


@answers(api.WaitForOutcome)
async def wait_for_outcome(machine: Machine, request: api.WaitForOutcome) -> Outcome:
    """The snapshot and the result."""
    return await _end(machine, request.execution_id, request.wait_ms, request.look_after_ms)


async def _end(
    machine: Machine, execution_id: str, wait_ms: int | None, look_after_ms: int
) -> Outcome:
    """Read, and read again after each hint, until it ended or the time is up."""
    checked = machine.check_id(execution_id)
    most = limits.DURATION_MS_MAX
    check_integer(look_after_ms, field="look_after_ms", least=0, most=most)
    until = wait_until(wait_ms)
    with machine.wakeups.listening((end_topic(checked),)) as woken:
        if (first := min(look_after_ms / 1000, left_s(until))) > 0:
            await wait_event(woken, first)
        while True:
            if woken.told is not None:
                return cast("Outcome", woken.told)
            execution, result = await machine.read(partial(_look_at, checked))
            if execution is None:
                raise NotFound(f"execution {checked}", entity="execution")
            if execution.is_terminal:
                return Outcome(snapshot_of(execution), result)
            pause = min(left_s(until), machine.config.poll_interval_ms / 1000)
            if pause <= 0:
                state = execution.public_state.value
                detail = f"execution {checked} is still {state}"
                raise WaitTimeout(detail, public_state=state)
            await wait_event(woken, pause)


async def _look_at(execution_id: str, reader: Reader) -> tuple[Execution | None, bytes | None]:
    """An execution and, if it succeeded, its result."""
    execution = _readable((await reader.get((execution_id,))).get(execution_id))
    if execution is None or execution.state.terminal_outcome is not TerminalOutcome.SUCCESS:
        return execution, None
    attempt = await reader.result(execution_id, execution.attempt_index or 0)
    return execution, None if attempt is None else attempt.result
