"""The waits of suspended executions, and the signals that ended waits. Only the read of a token
shows one."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric import limits
from flowfabric.api import waits as api
from flowfabric.api.executions import ListExecutions
from flowfabric.api.page import Page, at_instant, at_name
from flowfabric.api.waits import WaitInfo
from flowfabric.engine.acts import act_now, settle
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.audit import note_act
from flowfabric.engine.operations.execution_lists import find_page
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers
from flowfabric.engine.operations.signals import check_token
from flowfabric.engine.unit.corrupt import readable
from flowfabric.engine.unit.records import Rows
from flowfabric.engine.unit.waits import EVERY_SECRET
from flowfabric.errors import InvalidInput, InvalidToken, KeyringEmpty, NotFound
from flowfabric.kernel.execution.transition import operator_event
from flowfabric.kernel.explain.waits import WaitLook, in_words, lines_of, progress_of
from flowfabric.kernel.wait.condition import names_for
from flowfabric.kernel.wait.episode import resume_signal, signals_of
from flowfabric.kernel.wait.token import current, fingerprint, mint, verifies
from flowfabric.model.checks import check_flag, check_list, check_name
from flowfabric.model.event import OperatorEventType
from flowfabric.model.execution import Execution
from flowfabric.model.handle import Handle
from flowfabric.model.limit_checks import check_word
from flowfabric.model.links import source_of
from flowfabric.model.record import fields_of, replace
from flowfabric.model.state import SUSPENSION_REASONS, BlockingReason, PublicState
from flowfabric.model.suspension import (
    ResumeCause,
    ResumeInfo,
    ResumeSignal,
    SignalRow,
    SuspendedInfo,
    SuspensionInfo,
    SuspensionRow,
    Token,
    WaitpointInfo,
    WaitpointRow,
    WaitpointShown,
    WaitpointState,
)
from flowfabric.stores.base import Changes, Corrupt, Reader, Transaction
from flowfabric.stores.indexes import WAITPOINTS_OF, Search
from flowfabric.stores.tables import SIGNALS, SUSPENSIONS, WAITPOINTS, Key

_WAITPOINTS = Listing("list_pending_waitpoints", at_name)
_WAITS = Listing("list_waits", at_instant)
_EPISODES = Listing("list_suspensions", at_instant)
_SUSPENDED = Listing("list_suspended", at_instant)

# --- ended waits ----------------------------------------------------------------------------------


@answers(api.ObserveSignals)
async def observe_signals(
    machine: Machine, request: api.ObserveSignals
) -> tuple[ResumeSignal, ...]:
    """For a wait that no signal ended, only the engine's own signal."""
    found = await _last_wait(machine, request.handle)
    if found is None or found.cause is ResumeCause.SIGNAL:
        return () if found is None else found.signals
    return tuple(each for each in found.signals if each.source_type == "system")


@answers(api.ReadResumeInfo)
async def resume_info(machine: Machine, request: api.ReadResumeInfo) -> ResumeInfo | None:
    """The last wait of this attempt."""
    return await _last_wait(machine, request.handle)


async def _last_wait(machine: Machine, handle: Handle) -> ResumeInfo | None:
    checked = machine.check_handle(handle)

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

    return await machine.read(work)


async def outcomes_of(
    reader: Reader, execution_id: str, suspension_ids: Sequence[str]
) -> dict[str, ResumeInfo]:
    """How waits of an execution ended, by their suspensions; one that did not end is left out, and
    so is one that was cut off by the end of the execution."""
    keys: list[Key] = [(execution_id, each) for each in suspension_ids]
    rows = await reader.peek_rows(SUSPENSIONS, keys)
    over = [row for row in rows.values() if row.cause is not None]
    return await _infos(reader, execution_id, over)


@answers(api.ReadSignals)
async def read_signals(
    machine: Machine, request: api.ReadSignals
) -> dict[str, tuple[ResumeSignal, ...]]:
    """At waitpoints of the handle's execution; others are left out."""
    handle = machine.check_handle(request.handle)
    several = check_list(request.waitpoint_ids, field="waitpoint_ids")
    if len(several) > limits.CREATE_MAX:
        detail = f"waitpoint_ids: more than {limits.CREATE_MAX}"
        raise InvalidInput(detail, field="waitpoint_ids")
    keys: list[Key] = [(check_name(each, field="waitpoint_ids"),) for each in several]

    async def work(reader: Reader) -> dict[str, tuple[ResumeSignal, ...]]:
        rows = await reader.peek_rows(WAITPOINTS, keys)
        own = [each for each in rows.values() if each.execution_id == handle.execution_id]
        signals = await reader.peek_rows(SIGNALS, [(each.waitpoint_id,) for each in own])
        return {
            each.waitpoint_id: tuple(
                resume_signal(signal, each.waitpoint_key)
                for key, signal in sorted(signals.items())
                if key[0] == each.waitpoint_id
            )
            for each in own
        }

    return await machine.read(work)


async def _resume_info(reader: Reader, row: SuspensionRow) -> ResumeInfo:
    return (await _infos(reader, row.execution_id, [row]))[row.suspension_id]


async def _infos(
    reader: Reader, execution_id: str, rows: Sequence[SuspensionRow]
) -> dict[str, ResumeInfo]:
    """Each with the signals that counted, read together."""
    wanted = {row.suspension_id for row in rows}
    waitpoints = [
        each
        for each in await reader.search(Search(WAITPOINTS_OF, ((execution_id,),)))
        if each.suspension_id in wanted
    ]
    keys = [(each.waitpoint_id,) for each in waitpoints]
    signals = list((await reader.peek_rows(SIGNALS, keys)).values()) if keys else []
    return {
        row.suspension_id: ResumeInfo(
            row.cause or ResumeCause.OPERATOR,
            row.actor or "",
            signals_of(
                row,
                [each for each in waitpoints if each.suspension_id == row.suspension_id],
                signals,
            ),
            row.continuation_metadata_pointer,
            row.closed_at or 0,
        )
        for row in rows
    }


# --- episodes and waitpoints of one execution ----------------------------------------------------


@answers(api.ListPendingWaitpoints)
async def list_pending_waitpoints(
    machine: Machine, request: api.ListPendingWaitpoints
) -> Page[WaitpointInfo]:
    """By id."""
    checked = machine.check_id(request.execution_id)
    limit, after = check_limit(request.limit), _WAITPOINTS.place(request.cursor)

    async def work(reader: Reader) -> Page[WaitpointInfo]:
        if checked not in await reader.get((checked,)):
            raise NotFound(f"execution {checked}", entity="execution")
        rows = await reader.search(Search(WAITPOINTS_OF, ((checked,),)))
        found = sorted(
            (row for row in rows if row.state is not WaitpointState.CLOSED),
            key=lambda row: row.waitpoint_id,
        )
        wanted = [row for row in found if after is None or row.waitpoint_id > after[0]]
        secrets = {s.kid: s for s in await reader.search(EVERY_SECRET)}
        episodes = await reader.peek_rows(SUSPENSIONS, [(checked,)])

        def show(row: WaitpointRow) -> WaitpointInfo:
            episode = episodes.get((checked, row.suspension_id or ""))
            names = names_for(episode.condition, row.waitpoint_key) if episode else ()
            return waitpoint_info(row, names, fingerprint(row, secrets.get(row.token_kid)))

        return _WAITPOINTS.page(wanted, limit, place_of=lambda row: (row.waitpoint_id,), show=show)

    return await machine.read(work)


@answers(api.ListWaits)
async def list_waits(machine: Machine, request: api.ListWaits) -> Page[WaitInfo]:
    """A page of suspended executions, with the waits of each."""
    suspended = ListExecutions(
        namespace=request.namespace,
        states=(PublicState.SUSPENDED.value,),
        lane_id=request.lane_id,
        execution_kind=request.execution_kind,
        limit=request.limit,
    )
    found, following = await find_page(
        machine,
        suspended,
        _WAITS.place(request.cursor),
        reason=check_reason(request.reason),
        is_oldest_first=check_flag(request.oldest_first, field="oldest_first"),
    )
    keys = [(each.execution_id, each.suspension_id or "") for each in found]
    rows = await machine.read(lambda reader: reader.peek_rows(SUSPENSIONS, keys)) if keys else {}
    infos = (
        _wait_info(each, row)
        for each, key in zip(found, keys, strict=True)
        if (row := rows.get(key)) is not None and row.is_open
    )
    return Page(tuple(infos), _WAITS.cursor(following))


def check_reason(value: object) -> BlockingReason | None:
    """What suspended executions may wait for."""
    if value is None:
        return None
    reason = check_word(value, BlockingReason, field="reason")
    if reason not in SUSPENSION_REASONS:
        known = ", ".join(SUSPENSION_REASONS)
        raise InvalidInput(f"reason: no suspension waits so; expected {known}", field="reason")
    return reason


@answers(api.FindWaitpoint)
async def find_waitpoint(machine: Machine, request: api.FindWaitpoint) -> WaitpointRow | None:
    """The newest with the key."""
    checked = machine.check_id(request.execution_id)
    key = check_name(request.waitpoint_key, field="waitpoint_key")
    rows = await machine.read(lambda reader: reader.search(Search(WAITPOINTS_OF, ((checked,),))))
    return newest_with_key(rows, key)


def newest_with_key(rows: Sequence[WaitpointRow], key: str) -> WaitpointRow | None:
    """One that is waited on, a pending one, else the last."""
    known = [row for row in rows if row.waitpoint_key == key]
    return max(known, key=_freshness, default=None)


def _freshness(row: WaitpointRow) -> tuple[int, int, str]:
    rank = (WaitpointState.CLOSED, WaitpointState.PENDING, WaitpointState.ACTIVE)
    return rank.index(row.state), row.created_at, row.waitpoint_id


def waitpoint_info(row: WaitpointRow, names: tuple[str, ...], mark: str) -> WaitpointInfo:
    """A waitpoint without its token, with the token's fingerprint."""
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


@answers(api.ListSuspensions)
async def list_suspensions(machine: Machine, request: api.ListSuspensions) -> Page[SuspensionInfo]:
    """Open and closed ones."""
    checked = machine.check_id(request.execution_id)
    limit, after = check_limit(request.limit), _EPISODES.place(request.cursor)
    rows = await machine.read(lambda reader: reader.peek_rows(SUSPENSIONS, [(checked,)]))
    ordered = sorted(rows.values(), key=_began)
    wanted = [row for row in ordered if after is None or _began(row) > after]
    return _EPISODES.page(wanted, limit, place_of=_began, show=_suspension)


def _began(row: SuspensionRow) -> tuple[int, str]:
    return row.created_at, row.suspension_id


def _suspension(row: SuspensionRow) -> SuspensionInfo:
    return SuspensionInfo(**fields_of(row), waited_for=in_words(row.condition, row.progress))


# --- tokens --------------------------------------------------------------------------------------


@answers(api.ReadWaitpointToken)
async def read_waitpoint_token(machine: Machine, request: api.ReadWaitpointToken) -> Token | None:
    """Signed with the current key."""
    checked = machine.check_id(request.execution_id)
    key = (check_name(request.waitpoint_id, field="waitpoint_id"),)
    row = (await machine.read(lambda reader: reader.peek_rows(WAITPOINTS, [key]))).get(key)
    if row is None or row.execution_id != checked or row.state is WaitpointState.CLOSED:
        return None
    recipient = request.recipient
    if recipient is not None:
        recipient = check_name(recipient, field="recipient")
    token = await token_of(machine, row, recipient)
    await _note_read(machine, row, machine.actor(request.actor))
    return token


async def _note_read(machine: Machine, waitpoint: WaitpointRow, actor: str) -> None:
    """Written before the token is handed out; the token itself is nowhere in it."""
    key, act = waitpoint.execution_id, act_now()

    async def work(tx: Transaction) -> None:
        await tx.catalog()  # with the clock
        found = (await tx.get((key,))).get(key)
        if isinstance(found, Execution):
            kind, name = OperatorEventType.TOKEN_READ, waitpoint.waitpoint_id
            event = operator_event(found, kind, tx.now, waitpoint_id=name)
            event, changes, rows = replace(event, actor=actor), Changes(), Rows()
            note_act(machine, rows, act, event, tx.now)
            changes.rows = rows.changes()
            changes.log(event)
            await tx.save(changes)

    await machine.transact(work)
    settle(act)


async def token_of(
    machine: Machine, waitpoint: WaitpointRow, recipient: str | None = None
) -> Token:
    """A waitpoint's token under the current key."""
    secrets = await machine.read(lambda reader: reader.search(EVERY_SECRET))
    if (key := current(secrets)) is None:
        raise KeyringEmpty
    return mint(waitpoint, key, recipient)


@answers(api.ShowWaitpoint)
async def show_waitpoint(machine: Machine, request: api.ShowWaitpoint) -> WaitpointShown:
    """To the holder of its token; to no other anything at all."""
    checked = machine.check_id(request.execution_id)
    key = (check_name(request.waitpoint_id, field="waitpoint_id"),)
    presented = check_token(request.token)

    async def work(reader: Reader) -> WaitpointShown:
        secrets = await reader.search(EVERY_SECRET)
        waitpoint = (await reader.peek_rows(WAITPOINTS, [key])).get(key)
        if waitpoint is not None and waitpoint.execution_id != checked:
            waitpoint = None
        execution = (await reader.get((checked,))).get(checked)
        is_known = verifies(presented, waitpoint, secrets, reader.now)
        if not is_known or waitpoint is None or not isinstance(execution, Execution):
            raise InvalidToken
        episode: SuspensionRow | None = None
        if waitpoint.suspension_id is not None:
            place: Key = (checked, waitpoint.suspension_id)
            episode = (await reader.peek_rows(SUSPENSIONS, [place])).get(place)
        signals = (await reader.peek_rows(SIGNALS, [key])).values()
        return _to_holder(execution, waitpoint, episode, list(signals), presented)

    return await machine.read(work)


def _to_holder(
    execution: Execution,
    waitpoint: WaitpointRow,
    episode: SuspensionRow | None,
    signals: Sequence[SignalRow],
    presented: str,
) -> WaitpointShown:
    source = source_of(presented)
    own = [each for each in signals if (each.source_type, each.source_identity) == source]
    own.sort(key=lambda each: each.sequence)
    names = () if episode is None else names_for(episode.condition, waitpoint.waitpoint_key)
    return WaitpointShown(
        waitpoint_key=waitpoint.waitpoint_key,
        state=waitpoint.state,
        execution_kind=execution.execution_kind,
        waits_for="" if episode is None else in_words(episode.condition, episode.progress),
        signal_names=tuple(sorted(names)),
        payload_type=waitpoint.payload_type,
        timeout_at=None if episode is None else episode.timeout_at,
        source=source[1],
        decided=own[0].signal_name if own else None,
        lines=() if episode is None else lines_of(episode.condition, episode.progress),
        at_timeout=None if episode is None else episode.timeout_behavior,
        cause=None if episode is None else episode.cause,
        ended_at=None if episode is None else episode.closed_at,
    )


# --- waits of many -------------------------------------------------------------------------------


@answers(api.ListSuspended)
async def list_suspended(machine: Machine, request: api.ListSuspended) -> Page[SuspendedInfo]:
    """Newest first."""
    suspended = ListExecutions(states=(PublicState.SUSPENDED.value,), limit=request.limit)
    found, following = await find_page(machine, suspended, _SUSPENDED.place(request.cursor))
    keys = [(each.execution_id, each.suspension_id or "") for each in found]

    async def work(reader: Reader) -> dict[Key, SuspensionRow]:
        rows, _ = await readable(reader.peek_rows, SUSPENSIONS, keys)
        return rows  # doctor reports the others

    rows = await machine.read(work)
    infos = (_suspended_info(row) for key in keys if (row := rows.get(key)) is not None)
    return Page(tuple(infos), _SUSPENDED.cursor(following))


def _suspended_info(row: SuspensionRow) -> SuspendedInfo:
    return SuspendedInfo(
        row.execution_id, row.suspension_id, row.created_at, row.reason_code, row.timeout_at
    )


@answers(api.DescribeWaits)
async def describe_waits(machine: Machine, request: api.DescribeWaits) -> dict[str, WaitInfo]:
    """By execution; those that do not wait are left out."""
    several = check_list(request.execution_ids, field="execution_ids")
    checked = [machine.check_id(each) for each in several]

    async def work(reader: Reader) -> dict[str, WaitInfo]:
        found = await reader.get(checked)
        waiting = [
            each
            for each in found.values()
            if not isinstance(each, Corrupt) and each.suspension_id is not None
        ]
        keys = [(each.execution_id, each.suspension_id) for each in waiting]
        rows = await reader.peek_rows(SUSPENSIONS, keys) if keys else {}
        return {
            each.execution_id: _wait_info(each, row)
            for each, key in zip(waiting, keys, strict=True)
            if (row := rows.get(key)) is not None
        }

    return await machine.read(work)


def _wait_info(execution: Execution, row: SuspensionRow) -> WaitInfo:
    have, need = progress_of(row)
    return WaitInfo(
        execution.execution_id,
        execution.execution_kind,
        execution.lane_id,
        execution.namespace,
        row.suspension_id,
        row.reason_code,
        row.created_at,
        row.timeout_at,
        row.timeout_behavior,
        in_words(row.condition, row.progress),
        have,
        need,
        lines_of(row.condition, row.progress),
        row.progress,
        execution.progress_message,
    )


async def look_at_wait(execution: Execution, reader: Reader) -> WaitLook | None:
    """The open episode of an execution, if it is suspended."""
    if execution.suspension_id is None:
        return None
    key = (execution.execution_id, execution.suspension_id)
    row = (await reader.peek_rows(SUSPENSIONS, [key])).get(key)
    return None if row is None else WaitLook(row)
