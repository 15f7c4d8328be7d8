"""Operations that suspend, resume and look at what waits."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from flowfabric import ids, limits
from flowfabric.engine.core import EngineCore
from flowfabric.engine.episode_book import SECRETS_MAX, signals_of
from flowfabric.engine.operations.leases import check_fence
from flowfabric.engine.spoiled import readable
from flowfabric.errors import FenceRequired, InvalidInput, KeyringEmpty, NotFound
from flowfabric.kernel.condition import check_condition, keys_of, names_for
from flowfabric.kernel.resume import (
    ExpireSuspension,
    ResumeExecution,
)
from flowfabric.kernel.schema import check_schema
from flowfabric.kernel.suspend import (
    Binding,
    CloseWaitpoint,
    CreateWaitpoint,
    SuspendExecution,
)
from flowfabric.kernel.token import current, fingerprint, mint
from flowfabric.model.checks import check_instant, check_integer, check_name, check_text, check_uuid
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.handle import Handle
from flowfabric.model.limit_checks import check_word
from flowfabric.model.record import Record, to_json
from flowfabric.model.results import Moved
from flowfabric.model.suspension import (
    AlreadyMet,
    ReasonCode,
    RequestedBy,
    ResumeCause,
    ResumeCondition,
    Resumed,
    ResumeSignal,
    Single,
    Suspended,
    SuspendedInfo,
    SuspensionRow,
    TimeoutOnly,
    Token,
    WaitpointDetails,
    WaitpointInfo,
    WaitpointRow,
    WaitpointState,
)
from flowfabric.model.words import TimeoutBehavior
from flowfabric.stores.base import ListFilter, Reader
from flowfabric.stores.indexes import newest_first
from flowfabric.stores.tables import SECRETS, SIGNALS, SUSPENSIONS, WAITPOINTS


class Fresh(Record, frozen=True):
    """A new waitpoint; its key is how the condition refers to it."""

    waitpoint_key: str
    payload_type: str | None = None  # a JSON schema that signals must fit


class UsePending(Record, frozen=True):
    """A waitpoint made by `create_waitpoint`."""

    waitpoint_id: str
    waitpoint_key: str


class SuspendRequest(Record, frozen=True, kw_only=True):
    """What to wait for, and what happens if it does not come."""

    resume_condition: ResumeCondition
    waitpoints: tuple[Fresh | UsePending, ...] = ()  # none: one new waitpoint per key referred to
    reason_code: ReasonCode | str = ReasonCode.WAITING_FOR_SIGNAL
    requested_by: RequestedBy | str = RequestedBy.WORKER
    timeout_at: int | None = None
    timeout_behavior: TimeoutBehavior | str = TimeoutBehavior.FAIL
    resume_delay_ms: int = 0
    continuation_metadata_pointer: str | None = None
    idempotency_key: str | None = None


class ResumeInfo(Record, frozen=True):
    """What ended the wait of a resumed attempt, and the signals that counted until then."""

    cause: ResumeCause
    actor: str
    signals: tuple[ResumeSignal, ...]
    continuation_metadata_pointer: str | None


class WaitpointPage(Record, frozen=True):
    """One page of waitpoints that may still be signalled."""

    entries: tuple[WaitpointInfo, ...]
    next_cursor: str | None


class Suspending(EngineCore):
    """An execution waits outside any worker; see docs/guides/suspension.md."""

    async def suspend(self, handle: Handle, request: SuspendRequest) -> Suspended | AlreadyMet:
        """Release the lease and wait for signals.

        AlreadyMet when signals that came early meet the condition: the lease stays.
        """
        checked = self.check_handle(handle)
        return await self._suspend(checked.execution_id, checked.fence, request)

    async def suspend_by_triple(
        self, *, execution_id: str, fence: Fence, request: SuspendRequest
    ) -> Suspended | AlreadyMet:
        """As `suspend`, by the lease's fence."""
        checked = check_fence(fence)
        if checked is None:
            raise FenceRequired("suspend needs the lease's fence", field="fence")
        return await self._suspend(self.check_id(execution_id), checked, request)

    async def _suspend(
        self, execution_id: str, fence: Fence, request: SuspendRequest
    ) -> Suspended | AlreadyMet:
        command = _command(execution_id, fence, request)
        reply: Suspended | AlreadyMet = await self.execute(command)
        return reply

    async def create_waitpoint(
        self,
        handle: Handle,
        *,
        waitpoint_key: str,
        expires_in_ms: int,
        payload_type: str | None = None,
    ) -> WaitpointDetails:
        """An address with its token, before the suspension: early signals are kept for it."""
        checked = self.check_handle(handle)
        command = CreateWaitpoint(
            checked.execution_id,
            checked.fence,
            ids.new_secret_id(),
            _waitpoint_key(waitpoint_key),
            "",
            check_integer(
                expires_in_ms, field="expires_in_ms", least=1, most=limits.DURATION_MS_MAX
            ),
            check_schema(payload_type),
        )
        made: WaitpointRow = await self.execute(command)
        return WaitpointDetails(made.waitpoint_id, made.waitpoint_key, await self._token(made))

    async def resume_execution(
        self, *, execution_id: str, actor: str = "operator", resume_delay_ms: int = 0
    ) -> Resumed:
        """End the wait whatever its condition says."""
        command = ResumeExecution(
            self.check_id(execution_id), check_name(actor, field="actor"), _delay(resume_delay_ms)
        )
        reply: Resumed = await self.execute(command)
        return reply

    async def expire_suspension(self, *, execution_id: str) -> Moved:
        """Apply the suspension's timeout, if it is due."""
        command = ExpireSuspension(self.check_id(execution_id), ids.new_secret_id())
        reply: Moved = await self.execute(command)
        return reply

    async def close_waitpoint(
        self, *, execution_id: str, waitpoint_id: str, reason: str = "proactive_close"
    ) -> WaitpointInfo:
        """Take no more signals on a waitpoint nobody waits on yet; twice is harmless."""
        command = CloseWaitpoint(
            self.check_id(execution_id),
            check_name(waitpoint_id, field="waitpoint_id"),
            check_text(reason, field="reason", max_bytes=limits.REASON_BYTES),
        )
        row: WaitpointRow = await self.execute(command)
        return _info(row, (), "")

    # --- reading -------------------------------------------------------------------------------

    async def observe_signals(self, handle: Handle) -> tuple[ResumeSignal, ...]:
        """The signals that ended the last wait of this attempt; none for a fresh one."""
        found = await self.resume_info(handle)
        if found is None or found.cause is ResumeCause.SIGNAL:
            return () if found is None else found.signals
        return tuple(each for each in found.signals if each.source_type == "system")

    async def resume_info(self, handle: Handle) -> ResumeInfo | None:
        """What ended the last wait of this attempt; nothing for a fresh one."""
        checked = self.check_handle(handle)

        async def work(reader: Reader) -> ResumeInfo | None:
            rows = await reader.peek_rows(SUSPENSIONS, [(checked.execution_id,)])
            closed = [
                row
                for row in rows.values()
                if not row.is_open and row.attempt_index == checked.attempt_index
            ]
            if not closed:
                return None
            last = max(closed, key=lambda row: (row.closed_at or 0, row.suspension_id))
            return await _resume_info(reader, last)

        return await self.read(work)

    async def list_pending_waitpoints(
        self, *, execution_id: str, after: str | None = None, limit: int = limits.PAGE_DEFAULT
    ) -> WaitpointPage:
        """Waitpoints of an execution that may still be signalled, by id; no tokens."""
        checked = self.check_id(execution_id)
        check_integer(limit, field="limit", least=1, most=limits.PAGE_MAX)
        if after is not None:
            check_name(after, field="after")

        async def work(reader: Reader) -> WaitpointPage:
            if checked not in await reader.get((checked,)):
                raise NotFound(f"execution {checked}", entity="execution")
            rows = await reader.rows_of(WAITPOINTS, [checked])
            found = sorted(
                (row for row in rows if row.state is not WaitpointState.CLOSED),
                key=lambda row: row.waitpoint_id,
            )
            wanted = [row for row in found if after is None or row.waitpoint_id > after]
            secrets = {s.kid: s for s in await reader.list_rows(SECRETS, None, SECRETS_MAX)}
            episodes = await reader.peek_rows(SUSPENSIONS, [(checked,)])
            entries = []
            for row in wanted[:limit]:
                episode = episodes.get((checked, row.suspension_id or ""))
                names = names_for(episode.condition, row.waitpoint_key) if episode else ()
                entries.append(_info(row, names, fingerprint(row, secrets.get(row.token_kid))))
            more = len(wanted) > limit
            return WaitpointPage(tuple(entries), entries[-1].waitpoint_id if more else None)

        return await self.read(work)

    async def list_suspensions(self, *, execution_id: str) -> list[SuspensionRow]:
        """Every episode of an execution, oldest first."""
        checked = self.check_id(execution_id)
        rows = await self.read(lambda reader: reader.peek_rows(SUSPENSIONS, [(checked,)]))
        return sorted(rows.values(), key=lambda row: (row.created_at, row.suspension_id))

    async def read_waitpoint_token(self, *, execution_id: str, waitpoint_id: str) -> Token | None:
        """A waitpoint's token, for an operator; none when it is closed or unknown.

        It is signed with the current key. After a rotation it is another one than that which was
        handed out first; both are good, each as long as its key.
        """
        checked = self.check_id(execution_id)
        key = (check_name(waitpoint_id, field="waitpoint_id"),)
        row = (await self.read(lambda reader: reader.peek_rows(WAITPOINTS, [key]))).get(key)
        if row is None or row.execution_id != checked or row.state is WaitpointState.CLOSED:
            return None
        return await self._token(row)

    async def _token(self, waitpoint: WaitpointRow) -> Token:
        secrets = await self.read(lambda reader: reader.list_rows(SECRETS, None, SECRETS_MAX))
        if (key := current(secrets)) is None:
            raise KeyringEmpty
        return mint(waitpoint, key)

    async def list_suspended(
        self, *, before: tuple[int, str] | None = None, limit: int = limits.PAGE_DEFAULT
    ) -> list[SuspendedInfo]:
        """Suspended executions, newest first; `before` is (created_at, uuid) of the last shown."""
        check_integer(limit, field="limit", least=1, most=limits.PAGE_MAX)
        _check_cursor(before)

        async def work(reader: Reader) -> list[SuspendedInfo]:
            wanted = ListFilter(states=("suspended",), before=before)
            found = [
                each
                for each in await reader.list_executions(wanted, limit)
                if isinstance(each, Execution) and each.suspension_id is not None
            ]
            keys = [(each.execution_id, each.suspension_id) for each in found]
            rows, _ = await readable(
                reader.peek_rows, SUSPENSIONS, keys
            )  # the doctor tells of the others
            return [
                SuspendedInfo(
                    row.execution_id,
                    row.suspension_id,
                    row.created_at,
                    row.reason_code,
                    row.timeout_at,
                    newest_first(each),
                )
                for each, key in zip(found, keys, strict=True)
                if (row := rows.get(key)) is not None
            ]

        return await self.read(work)

    async def server_time_ms(self) -> int:
        """The store's clock."""

        async def work(reader: Reader) -> int:
            await reader.catalog()
            return reader.now

        return await self.read(work)


async def _resume_info(reader: Reader, row: SuspensionRow) -> ResumeInfo:
    waitpoints = [
        each
        for each in await reader.rows_of(WAITPOINTS, [row.execution_id])
        if each.suspension_id == row.suspension_id
    ]
    keys = [(each.waitpoint_id,) for each in waitpoints]
    signals = await reader.peek_rows(SIGNALS, keys) if keys else {}
    return ResumeInfo(
        row.cause or ResumeCause.OPERATOR,
        row.actor or "",
        signals_of(row, waitpoints, list(signals.values())),
        row.continuation_metadata_pointer,
    )


def _info(row: WaitpointRow, names: tuple[str, ...], mark: str) -> WaitpointInfo:
    return WaitpointInfo(
        row.waitpoint_id,
        row.waitpoint_key,
        row.state,
        row.execution_id,
        names,
        row.created_at,
        row.activated_at,
        row.expires_at,
        row.token_kid,
        mark,
    )


def _check_cursor(value: object) -> None:
    if value is None:
        return
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InvalidInput("before: expected the cursor of the last shown", field="before")
    check_instant(value[0], field="before")
    check_uuid(value[1], field="before")  # it is compared with one


def _delay(value: int) -> int:
    return check_integer(value, field="resume_delay_ms", least=0, most=limits.DURATION_MS_MAX)


def _waitpoint_key(value: object) -> str:
    return check_name(value, field="waitpoint_key")


def _command(execution_id: str, fence: Fence, request: object) -> SuspendExecution:
    """A checked SuspendExecution; every problem names its field, before anything is touched."""
    if not isinstance(request, SuspendRequest):
        raise InvalidInput("request: expected a SuspendRequest", field="request")
    condition = check_condition(request.resume_condition)
    timeout_at = request.timeout_at
    if timeout_at is not None:
        timeout_at = check_instant(timeout_at, field="timeout_at")
    elif isinstance(condition, TimeoutOnly):
        raise InvalidInput("timeout_at: timeout_only_without_deadline", field="timeout_at")
    pointer = request.continuation_metadata_pointer
    if pointer is not None:
        field = "continuation_metadata_pointer"
        pointer = check_text(pointer, field=field, max_bytes=limits.REASON_BYTES)
    key = None if request.idempotency_key == "" else request.idempotency_key
    if key is not None:
        key = check_text(key, field="idempotency_key", max_bytes=limits.IDEMPOTENCY_KEY_BYTES)
    bindings = _bindings(request.waitpoints, condition)
    return SuspendExecution(
        execution_id,
        fence,
        ids.new_uuid7s(1)[0],  # episodes of one instant sort in their order
        bindings,
        condition,
        check_word(request.reason_code, ReasonCode, field="reason_code"),
        check_word(request.requested_by, RequestedBy, field="requested_by"),
        timeout_at,
        check_word(request.timeout_behavior, TimeoutBehavior, field="timeout_behavior"),
        _delay(request.resume_delay_ms),
        pointer,
        "",
        key,
        limits.SUSPEND_KEY_TTL_MS,
        hashlib.sha256(to_json(request)).hexdigest(),
    )


def _bindings(
    asked: Sequence[Fresh | UsePending], condition: ResumeCondition
) -> tuple[Binding, ...]:
    """Waitpoints and the keys a condition refers to must be the same set."""
    if not isinstance(asked, tuple | list):
        raise InvalidInput("waitpoints: expected a tuple", field="waitpoints")
    wanted = keys_of(condition)
    bindings = [_binding(each, index) for index, each in enumerate(asked)]
    if max(len(bindings), len(wanted)) > limits.WAITPOINTS_MAX:
        most = limits.WAITPOINTS_MAX
        raise InvalidInput(f"waitpoints: more than {most}", field="waitpoints")
    if not bindings:
        keys = wanted or ["wait"]
        return tuple(Binding(ids.new_secret_id(), key) for key in keys)
    given = [each.waitpoint_key for each in bindings]
    if len(set(given)) != len(given):
        raise InvalidInput("waitpoints: a key stands twice", field="waitpoints")
    if isinstance(condition, Single) and condition.waitpoint_key != given[0]:
        raise InvalidInput("waitpoints: waitpoint_key_mismatch", field="waitpoints")
    for key in wanted:
        if key not in given:
            detail = f"waitpoints: referenced_waitpoint_key_missing_binding: {key}"
            raise InvalidInput(detail, field="waitpoints")
    for key in given:
        if wanted and key not in wanted:
            detail = f"waitpoints: extra_binding_not_referenced_by_condition: {key}"
            raise InvalidInput(detail, field="waitpoints")
    return tuple(
        sorted(bindings, key=lambda each: wanted.index(each.waitpoint_key) if wanted else 0)
    )


def _binding(asked: Any, index: int) -> Binding:
    match asked:
        case Fresh():
            return Binding(
                ids.new_secret_id(),
                _waitpoint_key(asked.waitpoint_key),
                False,
                check_schema(asked.payload_type),
            )
        case UsePending():
            name = check_name(asked.waitpoint_id, field=f"waitpoints[{index}].waitpoint_id")
            return Binding(name, _waitpoint_key(asked.waitpoint_key), True)
        case _:
            field = f"waitpoints[{index}]"
            raise InvalidInput(f"{field}: expected Fresh or UsePending", field=field)
