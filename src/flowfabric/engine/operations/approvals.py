"""What people look at before and after they decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowfabric import limits
from flowfabric.api import approvals as api
from flowfabric.api.page import Page, at_number
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.execution_lists import check_route, routes_of
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers
from flowfabric.engine.operations.wait_reads import check_reason, newest_with_key
from flowfabric.kernel.explain.waits import in_words, lines_of, progress_of
from flowfabric.kernel.wait.condition import names_for
from flowfabric.kernel.wait.signal import SYSTEM
from flowfabric.model.approvals import ApprovalGiven, WaitAnswer, WaitShown
from flowfabric.model.checks import check_integer, check_name
from flowfabric.model.event import SignalEvent
from flowfabric.model.execution import Body, Execution
from flowfabric.model.state import PublicState
from flowfabric.model.suspension import SignalRow, SuspensionRow, WaitpointRow
from flowfabric.stores.base import ListFilter, Reader
from flowfabric.stores.indexes import WAITPOINTS_OF, Search, by_key
from flowfabric.stores.logs import BEFORE_ALL, LOG_OF, LogQuery, Position
from flowfabric.stores.tables import SIGNALS, SUSPENSIONS, WAITPOINTS

APPROVALS: Final = ("approved", "rejected")
START_CHARS: Final = 4_000  # of an input, or of what a signal said
_ANSWERS_MAX: Final = 100
_STEPS: Final = (250, 1_000, 4_000)  # how many events one page looks through
_GIVEN: Final = Listing("list_approvals", at_number)
_LOG: Final = LOG_OF[SignalEvent]


@answers(api.ShowWait)
async def show_wait(machine: Machine, request: api.ShowWait) -> WaitShown | None:
    """The newest with the key."""
    checked = machine.check_id(request.execution_id)
    key = check_name(request.waitpoint_key, field="waitpoint_key")

    async def work(reader: Reader) -> WaitShown | None:
        waitpoint = newest_with_key(await reader.search(Search(WAITPOINTS_OF, ((checked,),))), key)
        execution = (await reader.get((checked,))).get(checked)
        if waitpoint is None or not isinstance(execution, Execution):
            return None
        episode = await _episode(reader, waitpoint)
        signals = Search(by_key(SIGNALS), ((waitpoint.waitpoint_id,),), limit=_ANSWERS_MAX)
        body = (await reader.bodies((checked,))).get(checked)
        return _shown(execution, waitpoint, episode, await reader.search(signals), body)

    return await machine.read(work)


async def _episode(reader: Reader, waitpoint: WaitpointRow) -> SuspensionRow | None:
    if waitpoint.suspension_id is None:
        return None
    place = (waitpoint.execution_id, waitpoint.suspension_id)
    return (await reader.peek_rows(SUSPENSIONS, [place])).get(place)


def _shown(
    execution: Execution,
    waitpoint: WaitpointRow,
    episode: SuspensionRow | None,
    signals: Sequence[SignalRow],
    body: Body | None,
) -> WaitShown:
    payload = b"" if body is None else body.payload
    have, need = (0, 0) if episode is None else progress_of(episode)
    counting = set() if episode is None else {each.signal_id for each in episode.progress}
    return WaitShown(
        execution_id=execution.execution_id,
        execution_kind=execution.execution_kind,
        lane_id=execution.lane_id,
        namespace=execution.namespace,
        waitpoint_id=waitpoint.waitpoint_id,
        waitpoint_key=waitpoint.waitpoint_key,
        state=waitpoint.state,
        signal_names=()
        if episode is None
        else tuple(sorted(names_for(episode.condition, waitpoint.waitpoint_key))),
        payload_type=waitpoint.payload_type,
        reason=None if episode is None else episode.reason_code,
        since=None if episode is None else episode.created_at,
        timeout_at=None if episode is None else episode.timeout_at,
        at_timeout=None if episode is None else episode.timeout_behavior,
        waits_for="" if episode is None else in_words(episode.condition, episode.progress),
        have=have,
        need=need,
        lines=() if episode is None else lines_of(episode.condition, episode.progress),
        answers=tuple(_answer(each, each.signal_id in counting) for each in signals),
        cause=None if episode is None else episode.cause,
        actor=None if episode is None else episode.actor,
        ended_at=None if episode is None else episode.closed_at,
        progress_message=execution.progress_message,
        input_start=_start(payload),
        input_bytes=len(payload),
    )


def _answer(signal: SignalRow, counts: bool) -> WaitAnswer:
    return WaitAnswer(
        signal_name=signal.signal_name,
        source_type=signal.source_type,
        source_identity=signal.source_identity,
        accepted_at=signal.accepted_at,
        counts=counts,
        said=_start(signal.payload or b""),
    )


def _start(data: bytes) -> str:
    """The beginning of a payload as text, whatever its bytes are."""
    return data[: 4 * START_CHARS].decode("utf-8", "replace")[:START_CHARS]


@answers(api.CountWaits)
async def count_waits(machine: Machine, request: api.CountWaits) -> int:
    """By the index of states."""
    check_route(request.namespace, None, None)
    reason = check_reason(request.reason)
    most = check_integer(request.at_most, field="at_most", least=1, most=limits.COUNTED_MAX)
    wanted = (PublicState.SUSPENDED.value,)

    async def work(reader: Reader) -> int:
        routes = routes_of(await reader.catalog(), request.namespace, None, None)
        if routes == ():
            return 0
        listed = ListFilter(states=wanted, reason=reason, routes=routes, counted_to=most)
        return min(await reader.count_listed(listed), most)

    return await machine.read(work)


@answers(api.ListApprovals)
async def list_approvals(machine: Machine, request: api.ListApprovals) -> Page[ApprovalGiven]:
    """From the end of the log backwards, in ever wider steps."""
    limit, place = check_limit(request.limit), _GIVEN.place(request.cursor)
    namespace = request.namespace
    if namespace is not None:
        check_name(namespace, field="namespace")

    async def work(reader: Reader) -> Page[ApprovalGiven]:
        end = (await reader.log_ends())[_LOG] if place is None else place[0]
        found, reached = await _newest(reader, namespace, end, limit)
        if len(found) > limit:
            found = found[:limit]
            reached = found[-1][0] - 1
        items = await _given(reader, [event for _, event in found])
        return Page(items, _GIVEN.cursor(None if reached <= BEFORE_ALL else (reached,)))

    return Page(()) if limit == 0 else await machine.read(work)


async def _newest(
    reader: Reader, namespace: str | None, end: Position, limit: int
) -> tuple[list[tuple[Position, SignalEvent]], Position]:
    """The newest up to a place, and the place behind which all were looked at."""
    # What the engine itself signals, as the answer of a budget, is no approval.
    only: tuple[tuple[str, tuple[str, ...]], ...] = (("signal_name", APPROVALS),)
    if namespace is not None:
        only = (*only, ("namespace", (namespace,)))
    found: list[tuple[Position, SignalEvent]] = []
    until = end
    for step in _STEPS:
        after = max(BEFORE_ALL, until - step)
        rows = await reader.read_log(_LOG, LogQuery(after=after, until=until, only=only))
        found += (each for each in reversed(rows) if each[1].source_type != SYSTEM)
        until = after
        if len(found) > limit or until <= BEFORE_ALL:
            return found, until
    # Numbers need not begin with 1: what is swept, and another log, had some of them.
    first = await reader.read_log(_LOG, LogQuery(after=BEFORE_ALL, until=until, limit=1))
    return found, until if first else BEFORE_ALL


async def _given(reader: Reader, events: Sequence[SignalEvent]) -> tuple[ApprovalGiven, ...]:
    """Each with the kind of its execution and the key of its waitpoint."""
    if not events:
        return ()
    owners = await reader.get(sorted({each.execution_id for each in events}))
    places = await reader.peek_rows(
        WAITPOINTS, [(each,) for each in sorted({each.waitpoint_id for each in events})]
    )
    given = []
    for each in events:
        owner = owners.get(each.execution_id)
        place = places.get((each.waitpoint_id,))
        given.append(
            ApprovalGiven(
                execution_id=each.execution_id,
                execution_kind=owner.execution_kind if isinstance(owner, Execution) else None,
                waitpoint_key=None if place is None else place.waitpoint_key,
                namespace=each.namespace,
                signal_name=each.signal_name,
                source_type=each.source_type,
                source_identity=each.source_identity,
                effect=each.effect,
                occurred_at=each.occurred_at,
            )
        )
    return tuple(given)
