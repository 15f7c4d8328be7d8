"""Operations that only look."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import partial
from typing import cast

from flowfabric import limits
from flowfabric.api.hints import end_topic, wait_event
from flowfabric.clock import monotonic
from flowfabric.engine.bounds import look_at_bounds
from flowfabric.engine.core_fields import CURRENT_WAITPOINT, core_fields, current_waitpoint
from flowfabric.engine.flow_reading import look_at_dependencies
from flowfabric.engine.wait_reading import WaitInfo, WaitPage, WaitReading, look_at_wait
from flowfabric.errors import Corruption, InvalidInput, NotFound, WaitTimeout
from flowfabric.kernel.explain import explain
from flowfabric.model.attempt import Attempt, AttemptOutcome, AttemptType
from flowfabric.model.checks import (
    check_instant,
    check_integer,
    check_lane,
    check_list,
    check_name,
    check_tag,
    check_tag_key,
    check_text,
)
from flowfabric.model.execution import Execution
from flowfabric.model.limit_checks import check_word
from flowfabric.model.record import replace
from flowfabric.model.results import (
    AttemptInfo,
    ExecutionContext,
    ExecutionPage,
    ExecutionSnapshot,
    ExpiredLease,
    ExpiredLeasePage,
    Explanation,
    Outcome,
    snapshot_of,
)
from flowfabric.model.route import Catalog, Route
from flowfabric.model.state import PublicState, TerminalOutcome
from flowfabric.stores.base import Corrupt, ListFilter, Reader
from flowfabric.stores.indexes import uuid_of


class Reading(WaitReading):
    """Reads are not part of any transaction; each answers with committed state."""

    async def _find(self, execution_id: str) -> Execution | None:
        checked = self.check_id(execution_id)
        return _readable((await self.read(lambda reader: reader.get((checked,)))).get(checked))

    async def _require(self, execution_id: str) -> Execution:
        execution = await self._find(execution_id)
        if execution is None:
            raise NotFound(f"execution {execution_id}", entity="execution")
        return execution

    async def describe_execution(self, *, execution_id: str) -> ExecutionSnapshot | None:
        """Everything about one execution but its secrets and payloads."""
        execution = await self._find(execution_id)
        return None if execution is None else snapshot_of(execution)

    async def read_execution_info(self, *, execution_id: str) -> ExecutionSnapshot | None:
        """The seeds' name for `describe_execution`."""
        return await self.describe_execution(execution_id=execution_id)

    async def read_execution_state(self, *, execution_id: str) -> PublicState | None:
        """The public state."""
        execution = await self._find(execution_id)
        return None if execution is None else execution.public_state

    async def read_execution_context(self, *, execution_id: str) -> ExecutionContext:
        """The input and its labels."""
        execution = await self._require(execution_id)
        bodies = await self.read(lambda reader: reader.bodies((execution.execution_id,)))
        body = bodies[execution.execution_id]
        return ExecutionContext(
            body.payload, body.payload_encoding, execution.execution_kind, execution.tags
        )

    async def read_current_attempt_index(self, *, execution_id: str) -> int:
        """The index of the attempt that holds or last held the lease; 0 before the first."""
        return (await self._require(execution_id)).attempt_index or 0

    async def read_total_attempt_count(self, *, execution_id: str) -> int:
        """How many attempts were ever started: the index the next one gets."""
        return (await self._require(execution_id)).total_attempt_count

    async def get_execution_tag(self, *, execution_id: str, key: str) -> str | None:
        """One tag, or None."""
        check_tag_key(key)
        execution = await self._find(execution_id)
        return None if execution is None else execution.tags.get(key)

    async def get_execution_namespace(self, *, execution_id: str) -> str | None:
        """The tenant, or None."""
        execution = await self._find(execution_id)
        return None if execution is None else execution.namespace

    async def read_exec_core_fields(
        self, *, execution_id: str, names: Sequence[str]
    ) -> dict[str, str | None]:
        """Named fields as text, as the seeds name them; None for what is unknown, secret or unset,
        and for every field of an execution that does not exist."""
        asked = [check_name(name, field="names") for name in check_list(names, field="names")]
        checked = self.check_id(execution_id)

        async def work(reader: Reader) -> dict[str, str | None]:
            execution = _readable((await reader.get((checked,))).get(checked))
            if execution is None:
                return {}
            values = core_fields(execution)
            if CURRENT_WAITPOINT in asked:
                values[CURRENT_WAITPOINT] = await current_waitpoint(reader, execution)
            return values

        values = await self.read(work) if asked else {}
        return {name: values.get(name) for name in asked}

    async def get_execution_result(self, *, execution_id: str) -> bytes | None:
        """The result of a success; None when there is none (yet)."""
        found = await self.read_result(execution_id=execution_id)
        return None if found is None else found.result

    async def read_result(self, *, execution_id: str) -> Attempt | None:
        """The successful attempt with its result and encoding."""
        execution = await self._find(execution_id)
        if execution is None or execution.state.terminal_outcome is not TerminalOutcome.SUCCESS:
            return None
        index = execution.attempt_index or 0
        return await self.read(lambda reader: reader.result(execution.execution_id, index))

    async def wait_for_result(
        self, *, execution_id: str, timeout_ms: int | None = None
    ) -> ExecutionSnapshot:
        """The snapshot once the execution has ended; WaitTimeout when that takes too long."""
        return (await self.wait_for_outcome(execution_id=execution_id, timeout_ms=timeout_ms)).ended

    async def wait_for_outcome(
        self, *, execution_id: str, timeout_ms: int | None = None, look_after_ms: int = 0
    ) -> Outcome:
        """As `wait_for_result`, with the result of a success read in the same look.

        `look_after_ms`: how long to wait for a hint before the first look, for a caller who knows
        that the execution has hardly begun.
        """
        checked = self.check_id(execution_id)
        most = limits.DURATION_MS_MAX
        check_integer(look_after_ms, field="look_after_ms", least=0, most=most)
        if timeout_ms is not None:
            check_integer(timeout_ms, field="timeout_ms", least=0, most=most)
        until = None if timeout_ms is None else monotonic() + timeout_ms / 1000
        with self.wakeups.listening((end_topic(checked),)) as woken:
            if look_after_ms and timeout_ms != 0:
                await wait_event(woken, min(look_after_ms, timeout_ms or look_after_ms) / 1000)
            while True:
                if woken.told is not None:
                    return cast("Outcome", woken.told)
                execution, result = await self.read(partial(_look_at, checked))
                if execution is None:
                    raise NotFound(f"execution {checked}", entity="execution")
                if execution.is_terminal:
                    return Outcome(snapshot_of(execution), result)
                pause = self.config.poll_interval_ms / 1000
                if until is not None:
                    pause = min(pause, until - monotonic())
                    if pause <= 0:
                        state = execution.public_state.value
                        raise WaitTimeout(
                            f"execution {checked} is still {state} after {timeout_ms} ms",
                            public_state=state,
                        )
                await wait_event(woken, pause)

    async def read_outcomes(self, *, execution_ids: Sequence[str]) -> dict[str, Outcome]:
        """How executions ended, with the results of successes; those that have not are left out."""
        keys = [self.check_id(each) for each in check_list(execution_ids, field="execution_ids")]

        async def work(reader: Reader) -> dict[str, Outcome]:
            found = (await reader.get(keys)).items()
            ended = {k: e for k, e in found if isinstance(e, Execution) and e.is_terminal}
            attempts = await reader.results(list(ended))
            return {
                key: Outcome(
                    snapshot_of(execution), attempts[key].result if key in attempts else None
                )
                for key, execution in ended.items()
            }

        return await self.read(work)

    async def list_attempts(self, *, execution_id: str) -> tuple[AttemptInfo, ...]:
        """Every attempt, oldest first; the live one is last."""
        execution = await self._require(execution_id)
        ended = await self.read(lambda reader: reader.attempts(execution.execution_id))
        attempts = [_ended_info(attempt) for attempt in ended]
        known = {attempt.attempt_index for attempt in ended}
        if execution.attempt_index is not None and execution.attempt_index not in known:
            attempts.append(_live_info(execution))
        return tuple(attempts)

    # --- listings ------------------------------------------------------------------------------

    async def list_executions(
        self,
        *,
        namespace: str | None = None,
        states: Sequence[str] = (),
        lane_id: str | None = None,
        execution_kind: str | None = None,
        tag: tuple[str, str] | None = None,
        created_after: int | None = None,
        created_before: int | None = None,
        text: str | None = None,
        partition: int | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> ExecutionPage:
        """Executions, newest first. The cursor is opaque and stable while work goes on.

        `text` looks for words in the kind, id, tags and reasons. A page of a text search may be
        short or empty although a next cursor is given: it bounds how many rows one call looks at.
        """
        check_integer(limit, field="limit", least=0, most=limits.PAGE_MAX)
        wanted = replace(
            _list_filter(states, tag, created_after, created_before),
            partition=self._partition(partition),
            before=_decode_cursor(cursor),
        )
        _check_route(namespace, lane_id, execution_kind)
        words = None
        if text is not None:
            words = check_text(text, field="text", max_bytes=limits.REASON_BYTES).lower()
        if limit == 0:
            return ExecutionPage((), None)

        async def work(reader: Reader) -> ExecutionPage:
            catalog = await reader.catalog()
            routes = _routes(catalog, namespace, lane_id, execution_kind)
            return await _page(reader, wanted, routes, words, limit)

        return await self.read(work)

    async def count_listed(
        self,
        *,
        namespace: str | None = None,
        states: Sequence[str] = (),
        lane_id: str | None = None,
        execution_kind: str | None = None,
        tag: tuple[str, str] | None = None,
        created_after: int | None = None,
        created_before: int | None = None,
    ) -> int:
        """How many executions a listing with these filters has."""
        wanted = _list_filter(states, tag, created_after, created_before)
        _check_route(namespace, lane_id, execution_kind)

        async def work(reader: Reader) -> int:
            routes = _routes(await reader.catalog(), namespace, lane_id, execution_kind)
            if routes == ():
                return 0
            return await reader.count_listed(replace(wanted, routes=routes))

        return await self.read(work)

    async def list_waits(
        self,
        *,
        namespace: str | None = None,
        lane_id: str | None = None,
        execution_kind: str | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_DEFAULT,
    ) -> WaitPage:
        """Suspended executions and what they wait for, newest first."""
        page = await self.list_executions(
            namespace=namespace,
            states=(PublicState.SUSPENDED.value,),
            lane_id=lane_id,
            execution_kind=execution_kind,
            cursor=cursor,
            limit=limit,
        )
        shown = [each.execution_id for each in page.executions]
        found: dict[str, WaitInfo] = await self.describe_waits(execution_ids=shown)
        waits = tuple(found[each] for each in shown if each in found)
        return WaitPage(waits, page.next_cursor)

    def _partition(self, partition: int | None) -> int | None:
        if partition is None:
            return None
        most = self.store.partitions - 1
        return check_integer(partition, field="partition", least=0, most=most)

    async def count_executions(self, *, namespace: str | None = None) -> dict[str, dict[str, int]]:
        """How many executions each lane has in each state."""
        if namespace is not None:
            check_name(namespace, field="namespace")
        counted: dict[str, dict[str, int]] = {}
        for route, state, number in await self.read(lambda reader: reader.count()):
            if namespace is None or route.namespace == namespace:
                lane = counted.setdefault(route.lane_id, {})
                lane[state] = lane.get(state, 0) + number
        return counted

    async def list_expired_leases(
        self,
        *,
        as_of: int | None = None,
        cursor: str | None = None,
        limit: int = limits.PAGE_MAX,
        namespace: str | None = None,
    ) -> ExpiredLeasePage:
        """Leases past their time that nobody has dealt with yet, earliest first."""
        check_integer(limit, field="limit", least=1, most=limits.EXPIRED_LEASES_PAGE_MAX)
        if namespace is not None:
            check_name(namespace, field="namespace")
        after = _decode_cursor(cursor)
        if as_of is not None:
            check_instant(as_of, field="as_of")

        async def work(reader: Reader) -> list[Execution]:
            known = (await reader.catalog()).routes  # which also reads the store's clock
            until = reader.now if as_of is None else as_of
            routes = None
            if namespace is not None:
                routes = [route for route in known if route.namespace == namespace]
            return await reader.expired_leases(routes, until, after, limit)

        found = await self.read(work)
        entries = tuple(map(_expired, found))
        last = found[-1] if len(found) == limit else None
        following = None
        if last is not None:
            following = _encode_cursor(last.lease_expires_at or 0, last.execution_id)
        return ExpiredLeasePage(entries, following)

    async def explain(self, *, execution_id: str) -> Explanation:
        """Why is it not running? State, since when, waiting for what, who could, when due."""
        execution = await self._require(execution_id)

        async def work(reader: Reader) -> Explanation:
            catalog = await reader.catalog()
            workers = await reader.workers(execution.namespace)
            lane_state = catalog.lane_state(execution.lane_id)
            fault = catalog.lane_fault(execution.lane_id)
            bounds = await look_at_bounds(execution, reader)
            wait = await look_at_wait(execution, reader)
            others = await look_at_dependencies(execution, reader)
            return explain(execution, lane_state, workers, bounds, reader.now, wait, others, fault)

        return await self.read(work)


async def _look_at(execution_id: str, reader: Reader) -> tuple[Execution | None, bytes | None]:
    """An execution and, if it succeeded, its result."""
    execution = _readable((await reader.get((execution_id,))).get(execution_id))
    if execution is None or execution.state.terminal_outcome is not TerminalOutcome.SUCCESS:
        return execution, None
    attempt = await reader.result(execution_id, execution.attempt_index or 0)
    return execution, None if attempt is None else attempt.result


def _readable(found: Execution | Corrupt | None) -> Execution | None:
    if isinstance(found, Corrupt):
        raise Corruption(f"execution {found.execution_id}: {found.detail}")
    return found


def _list_filter(
    states: Sequence[str],
    tag: tuple[str, str] | None,
    created_after: int | None,
    created_before: int | None,
) -> ListFilter:
    """What a listing shows, checked; its routes are found later, in the catalog."""
    return ListFilter(
        states=tuple(sorted({_state(state) for state in check_list(states, field="states")})),
        tag=None if tag is None else check_tag(tag),
        created_after=_instant(created_after, "created_after"),
        created_before=_instant(created_before, "created_before"),
    )


def _check_route(namespace: str | None, lane_id: str | None, kind: str | None) -> None:
    if namespace is not None:
        check_name(namespace, field="namespace")
    if lane_id is not None:
        check_lane(lane_id)
    if kind is not None:
        check_name(kind, field="execution_kind")


def _routes(
    catalog: Catalog, namespace: str | None, lane_id: str | None, kind: str | None
) -> tuple[Route, ...] | None:
    if namespace is None and lane_id is None and kind is None:
        return None
    return tuple(
        route
        for route in catalog.routes
        if (namespace is None or route.namespace == namespace)
        and (lane_id is None or route.lane_id == lane_id)
        and (kind is None or route.execution_kind == kind)
    )


async def _page(
    reader: Reader,
    wanted: ListFilter,
    routes: tuple[Route, ...] | None,
    words: str | None,
    limit: int,
) -> ExecutionPage:
    if routes == ():
        return ExecutionPage((), None)
    wanted = replace(wanted, routes=routes)
    shown: list[ExecutionSnapshot] = []
    looked = 0
    while looked < limits.TEXT_SCAN_ROWS:
        size = limit + 1 if words is None else limits.PAGE_MAX
        rows = await reader.list_executions(wanted, size)
        looked += len(rows)
        for row in rows:
            if len(shown) == limit:
                last = shown[-1]
                return ExecutionPage(
                    tuple(shown), _encode_cursor(last.created_at, last.execution_id)
                )
            if isinstance(row, Execution) and (words is None or words in _searchable(row)):
                shown.append(snapshot_of(row))
        readable = [row for row in rows if isinstance(row, Execution)]
        if len(rows) < size or not readable:
            return ExecutionPage(tuple(shown), None)
        end = readable[-1]
        wanted = replace(wanted, before=(end.created_at, uuid_of(end.execution_id)))
    before = wanted.before or (0, "")
    return ExecutionPage(tuple(shown), _encode_cursor(before[0], before[1]))


def _searchable(execution: Execution) -> str:
    parts = (
        execution.execution_id,
        execution.execution_kind,
        execution.failure_reason or "",
        execution.cancellation_reason or "",
        execution.progress_message or "",
        *(f"{key}={value}" for key, value in execution.tags.items()),
    )
    return "\n".join(parts).lower()


def _state(state: str) -> str:
    return check_word(state, PublicState, field="states").value


def _encode_cursor(when: int, execution_id: str) -> str:
    return base64.urlsafe_b64encode(f"{when}:{uuid_of(execution_id)}".encode()).decode()


def _decode_cursor(cursor: str | None) -> tuple[int, str] | None:
    if cursor is None:
        return None
    try:
        check_text(cursor, field="cursor", max_bytes=limits.NAME_BYTES)
        when, _, uuid = base64.urlsafe_b64decode(cursor.encode()).decode().partition(":")
        if len(uuid) != 36:
            raise ValueError(cursor)
        return int(when), uuid
    except ValueError:
        raise InvalidInput("cursor: not one of ours", field="cursor") from None


def _instant(value: int | None, field: str) -> int | None:
    return None if value is None else check_instant(value, field=field)


def _expired(execution: Execution) -> ExpiredLease:
    return ExpiredLease(
        execution.execution_id,
        execution.lease_epoch,
        execution.worker_id or "",
        execution.worker_instance_id or "",
        execution.lease_expires_at or 0,
        execution.attempt_index or 0,
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
