"""Claims: the one search for work, the same for a worker's claim and a scheduler's promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from flowfabric import ids
from flowfabric.engine.unit.candidates import Candidates, Pool
from flowfabric.engine.unit.corrupt import readable
from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.limits import Candidate
from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.claim import (
    Claim,
    GiveBack,
    NewIds,
    Recalled,
    claim,
    noted,
    recalled,
    refuse_reused,
    still_held,
)
from flowfabric.kernel.execution.fence import OPERATOR_OVERRIDE
from flowfabric.kernel.execution.grant import PromiseBest
from flowfabric.kernel.execution.own import Delay
from flowfabric.kernel.execution.routing import Offer, matching_routes
from flowfabric.kernel.limit.fairness import (
    Share,
    parts_of,
    shares_of,
)
from flowfabric.kernel.limit.holdings import slot_until
from flowfabric.limits import CLAIM_BYTES_MAX, CLAIM_MAX
from flowfabric.model.bounds import UNBOUNDED
from flowfabric.model.execution import Body, Execution
from flowfabric.model.quota import AdmissionState
from flowfabric.model.record import replace
from flowfabric.model.results import Claimed, GivenBack, GrantIssued, NoWork
from flowfabric.model.trace import trace_of
from flowfabric.model.worker import ClaimRow
from flowfabric.stores.indexes import ready_order
from flowfabric.stores.tables import CLAIMS

SEARCHES_MAX = 20  # how often a claim looks again when limits keep its candidates back
DEPTH_MAX = 500  # and how far it looks at once
REPEATS_MAX = 1_000  # counted of one claim


@handles(Claim)
async def claim_work(unit: Unit, command: Claim) -> list[Claimed] | Refused:
    """What is new, or what the same claim got before."""
    unit.claims_left[command.offer] -= command.limit
    if command.claim_id is None:
        return await _claimed(unit, command)
    row = await _noted(unit, command.worker_instance_id)
    if row is not None and row.claim_id == command.claim_id:
        return refuse_reused(row, command) or await _recalled(unit, row, command)
    claimed = await _claimed(unit, command)
    if claimed:
        unit.view.rows.put(CLAIMS, noted(command, claimed, unit.view.at))
    return claimed


@handles(GiveBack)
async def give_back(unit: Unit, command: GiveBack) -> GivenBack:
    """The leases of a claim that nobody got the answer to, unless it was repeated meanwhile."""
    row, view = await _noted(unit, command.worker_instance_id), unit.view
    if row is None or row.claim_id != command.claim_id or row.repeats:
        return GivenBack(0)
    held = await _held(unit, row)
    for execution in held:
        view.decide(
            Delay(
                execution_id=execution.execution_id,
                fence=None,
                delay_until=view.at.now,
                source=OPERATOR_OVERRIDE,
            )
        )
    view.rows.put(CLAIMS, replace(row, leases={}))
    return GivenBack(len(held))


async def _noted(unit: Unit, worker_instance_id: str) -> ClaimRow | None:
    """The last claim of a worker, locked. One that cannot be read is forgotten."""
    key = (worker_instance_id,)
    found, _ = await readable(unit.tx.rows, CLAIMS, [key])
    unit.view.rows.take(CLAIMS, found)
    return unit.view.rows.get(CLAIMS, key)


async def _held(unit: Unit, row: ClaimRow) -> list[Execution]:
    """The executions of a claim whose leases are in force."""
    await unit.load(sorted(row.leases))
    found = (unit.view.execution(key) for key in row.leases)
    return [each for each in found if each is not None and still_held(each, row, unit.view.at.now)]


async def _recalled(unit: Unit, row: ClaimRow, command: Claim) -> Recalled:
    """The answer once more. Its worker has it then: nothing is given back behind its back."""
    held = await _held(unit, row)
    bodies = await unit.overlay.bodies([each.execution_id for each in held])
    unit.view.rows.put(CLAIMS, replace(row, repeats=min(row.repeats + 1, REPEATS_MAX)))
    return Recalled(
        with_body(
            recalled(each, row, command.lease_ttl_ms, command.backend), bodies[each.execution_id]
        )
        for each in held
    )


async def _claimed(unit: Unit, command: Claim) -> list[Claimed]:
    """Matching routes, fair shares, admission, leases, bodies."""
    if (pooled := _pooled(unit, command)) is not None:
        return _leased(unit, command, pooled)
    claimed: list[Claimed] = []
    depth, room = 0, CLAIM_BYTES_MAX
    shares = _shares(unit, command.offer)
    for _ in range(SEARCHES_MAX if shares else 0):
        slots = command.limit - len(claimed)
        if len(shares) == 1 and not depth:
            await _fill_pool(unit, command, shares[0], room)
            if (pooled := _pooled(unit, command)) is not None:
                return _leased(unit, command, pooled)
        lot = await _candidates(unit, shares, command.offer, slots, depth, room)
        admitted = await _admitted(unit, lot, AdmissionState.RUNNING, None)
        claimed += _leased(unit, command, admitted)
        if len(claimed) >= command.limit or len(admitted) == len(lot.found):
            return claimed
        room -= sum(len(body.payload) for _, body in admitted)
        if room <= 0:
            return claimed
        depth = _deeper(depth)
    for share in shares:  # limits kept many back: look again soon for what stands behind them
        unit.view.effects.woken.setdefault(share.lane_id, 1)
    return claimed


@handles(PromiseBest)
async def promise_best(unit: Unit, command: PromiseBest) -> GrantIssued | NoWork | Refused:
    """Choose the best execution for a worker and promise it."""
    shares = _shares(unit, command.offer)
    until = slot_until(unit.view.at.now + command.request.grant_ttl_ms)
    depth = 0
    for _ in range(SEARCHES_MAX if shares else 0):
        lot = await _candidates(unit, shares, command.offer, 1, depth, CLAIM_BYTES_MAX)
        for execution, _ in await _admitted(unit, lot, AdmissionState.RESERVED, until):
            unit.view.take(execution)
            return unit.view.decide(replace(command.request, execution_id=execution.execution_id))
        if not lot.found:
            break
        depth = _deeper(depth)
    return NoWork()


def with_body(reply: Claimed, body: Body) -> Claimed:
    """A claim's answer with the input the worker needs."""
    return replace(
        reply,
        payload=body.payload,
        payload_encoding=body.payload_encoding,
        trace=None if body.trace is None else trace_of(body.trace),
        idempotency_key=body.idempotency_key,
    )


# --- claims that share a search ------------------------------------------------------------------


def _pooled(unit: Unit, command: Claim) -> list[Candidate] | None:
    """What an equal claim of this batch found for this one, too."""
    pool = unit.pool
    if pool is None:
        return None
    chosen = pool.take(command.limit, unit.view) if pool.offer == command.offer else None
    if chosen is None:
        unit.pool = None
        if pool:  # they are locked, so other claims have passed them over: let these look again
            unit.view.effects.woken.setdefault(pool.lane_id, len(pool))
    return chosen


async def _fill_pool(unit: Unit, command: Claim, share: Share, room: int) -> None:
    """Search once for this claim and for equal ones behind it in the batch.

    Only what no limit bounds: whether that may start depends on nothing but its order.
    """
    others = unit.claims_left[command.offer]
    if others <= 0:
        return
    count = min(command.limit + others, CLAIM_MAX)
    found = await _ready(unit, share, count, room)
    if any(execution.bounds is not UNBOUNDED for execution, _ in found):
        unit.claims_left[command.offer] = 0  # each claim of this batch searches for itself
        unit.view.effects.woken.setdefault(share.lane_id, len(found))
        return
    is_cut = sum(len(body.payload) for _, body in found) >= room
    is_all = len(found) < count and not is_cut
    unit.pool = Pool(command.offer, share.lane_id, found, is_all=is_all, view=unit.view)


# --- the search ----------------------------------------------------------------------------------


def _take_from(unused: Counter[str], lane_id: str, slots: int) -> None:
    """Use up slots, first those of one's own lane."""
    for lane in (lane_id, *sorted(unused)):
        used = min(slots, unused[lane])
        unused[lane] -= used
        slots -= used


def _deeper(depth: int) -> int:
    """Limits kept some back: look at twice as many behind them, up to a bound."""
    return min(DEPTH_MAX, 2 * depth + 1)


def _shares(unit: Unit, offer: Offer) -> list[Share]:
    return shares_of(matching_routes(offer, unit.catalog), unit.catalog)


async def _ready(unit: Unit, share: Share, count: int, room: int) -> list[Candidate]:
    """The first of a line, as many as their inputs have room for; at least one.

    Where that many of the largest would fit, none is measured.
    """
    if count * unit.view.at.payload_bytes_max <= room:
        return await unit.overlay.candidates(share.routes, count)
    found = await unit.overlay.candidates(share.routes, count, max(1, room))
    if len(found) < count and sum(len(body.payload) for _, body in found) >= room:
        unit.view.effects.woken.setdefault(share.lane_id, 1)  # for those behind: claim again
    return found


async def _candidates(
    unit: Unit, shares: Sequence[Share], offer: Offer, slots: int, depth: int, room: int
) -> Candidates:
    """The best of each line, as many as it is owed; what one has no work for others get.

    So many more as `depth` says are looked at behind them, in case limits keep these back.
    `room`: for the bytes of their inputs, of which each line has its part.
    """
    if len(shares) == 1:
        share = shares[0]
        found = await _ready(unit, share, slots + depth, room)
        return Candidates(shares, {}, found, {share.key: slots}, {share.key: slots})
    credits = unit.credits_of(offer)
    owed = parts_of(shares, credits, slots)
    lines = {
        share.key: await _ready(
            unit, share, owed[share.key] + depth, room * owed[share.key] // slots
        )
        if owed[share.key]
        else []
        for share in shares
    }
    parts = {key: min(owed[key], len(line)) for key, line in lines.items()}
    unused = Counter({share.lane_id: 0 for share in shares})
    for share in shares:
        unused[share.lane_id] += owed[share.key] - parts[share.key]
    # A tenant's slots that it does not use are its lane's, and only then all others'.
    for pools in (unused, None):
        for share in shares:
            key = share.key
            free = unused.total() if pools is None else pools[share.lane_id]
            if free and parts[key] >= owed[key]:
                part = parts[key] + free
                lines[key] = await _ready(unit, share, part + depth, room * part // slots)
                more = min(free, len(lines[key]) - parts[key])
                parts[key] += more
                _take_from(unused, share.lane_id, more)
    found = [candidate for line in lines.values() for candidate in line]
    found.sort(key=lambda candidate: ready_order(candidate[0]))
    return Candidates(shares, credits, found, owed, parts)


async def _admitted(
    unit: Unit, lot: Candidates, state: AdmissionState, due_at: int | None
) -> list[Candidate]:
    """Those of the lot who may start, no more of a line than its part."""
    if any(execution.bounds is not UNBOUNDED for execution, _ in lot.found):
        admitted = await unit.limits.admit(lot.found, lot.parts, state, due_at)
    else:
        admitted = lot.first()
    lot.settle(admitted)
    return admitted


def _leased(unit: Unit, command: Claim, admitted: Sequence[Candidate]) -> list[Claimed]:
    if not admitted:
        return []
    claimed, at = [], unit.view.at
    # A row may have changed after the clock was read: time never runs backwards for it.
    latest = max([execution.last_mutation_at for execution, _ in admitted])
    if latest > at.now:
        at = replace(at, now=latest)
    fresh = iter(ids.new_secret_ids(2 * len(admitted)))
    for execution, body in admitted:
        new = NewIds(next(fresh), next(fresh))
        decision = claim(execution, command, new, at)
        reply = unit.view.apply(execution, decision, command)
        if isinstance(reply, Claimed):
            claimed.append(with_body(reply, body))
    return claimed
