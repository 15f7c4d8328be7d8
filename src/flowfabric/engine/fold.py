"""One transaction's work: commands applied in order over one evolving picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from flowfabric import ids
from flowfabric.engine.answers import first_answer
from flowfabric.engine.due import EXECUTION, Due, Thing, rows_due
from flowfabric.engine.episode_book import EPISODE_COMMANDS, EpisodeBook
from flowfabric.engine.flow_book import FLOW_COMMANDS, FlowBook, executions_in, keys_in
from flowfabric.engine.limiting import LIMIT_COMMANDS, Candidate, Limiter, executions_of, line_of
from flowfabric.engine.view import InvariantViolated, View
from flowfabric.kernel.admission import holds_place, place_until
from flowfabric.kernel.claim import Claim, NewIds, claim
from flowfabric.kernel.create import CreateExecution
from flowfabric.kernel.decision import Moment, Refused
from flowfabric.kernel.fairness import Credits, Line, Share, credits_after, parts_of, shares_of
from flowfabric.kernel.grant import ClaimGranted, ClaimNamed, IssueClaimGrant, PromiseBest
from flowfabric.kernel.lane import refuse_entry, refuse_start
from flowfabric.kernel.reclaim import IssueReclaimGrant, ReclaimExecution
from flowfabric.kernel.replay import Replay
from flowfabric.kernel.routing import Offer, matching_routes
from flowfabric.kernel.rules import REPEATABLE, RULES
from flowfabric.kernel.wake import Wake
from flowfabric.limits import CLAIM_BYTES_MAX
from flowfabric.model.bounds import UNBOUNDED
from flowfabric.model.execution import Body, Execution
from flowfabric.model.quota import AdmissionState
from flowfabric.model.record import Record, replace
from flowfabric.model.results import Claimed, GrantIssued, NoWork, Replayed
from flowfabric.model.route import Catalog
from flowfabric.stores.base import Transaction
from flowfabric.stores.indexes import ready_order
from flowfabric.stores.tables import WAITPOINTS

SEARCHES_MAX = 20  # how often a claim looks again when limits keep its candidates back
DEPTH_MAX = 500  # and how far it looks at once
_STARTING = frozenset(
    (IssueClaimGrant, ClaimGranted, ClaimNamed, IssueReclaimGrant, ReclaimExecution)
)


class WakeDue(Record, frozen=True):
    """Move everything whose due time has come, up to a limit and without what is set aside; or of
    that only what is named."""

    limit: int
    aside: frozenset[Thing] = frozenset()
    named: Due | None = None


def with_body(reply: Claimed, body: Body) -> Claimed:
    """A claim's answer with the input the worker needs."""
    return replace(
        reply,
        payload=body.payload,
        payload_encoding=body.payload_encoding,
        idempotency_key=body.idempotency_key,
    )


_SEARCHING = frozenset((Claim, PromiseBest, WakeDue))
_BY_RULE = (RULES.keys() - _STARTING) | {CreateExecution}  # decided by the picture alone
_OF_LANES = _STARTING | {Replay}  # about one execution, and about its lane's switch


class Lot:
    """What a search proposes for a claim: candidates, best first, and how many of each line."""

    def __init__(
        self,
        shares: Sequence[Share],
        credits: Credits,
        found: list[Candidate],
        owed: dict[Line, int],
        parts: dict[Line, int],
    ) -> None:
        self.found = found
        self.parts = parts
        self._shares = shares
        self._credits = credits
        self._owed = owed

    def first(self) -> list[Candidate]:
        """Each line's part, where nothing limits it."""
        if len(self.found) <= sum(self.parts.values()):
            return self.found
        left = dict(self.parts)
        chosen = []
        for candidate in self.found:
            line = line_of(candidate[0])
            if left[line] > 0:
                left[line] -= 1
                chosen.append(candidate)
        return chosen

    def settle(self, admitted: Sequence[Candidate]) -> None:
        """Remember what the lines are owed after this."""
        if len(self._shares) > 1:
            taken = Counter(line_of(execution) for execution, _ in admitted)
            self._credits.update(credits_after(self._shares, self._credits, self._owed, taken))


def _take_from(unused: Counter[str], lane_id: str, places: int) -> None:
    """Use up places, first those of one's own lane."""
    for lane in (lane_id, *sorted(unused)):
        used = min(places, unused[lane])
        unused[lane] -= used
        places -= used


def _deeper(depth: int) -> int:
    """Limits kept some back: look at twice as many behind them, up to a bound."""
    return min(DEPTH_MAX, 2 * depth + 1)


class _Named:
    """What a batch of commands is about."""

    def __init__(self, commands: Sequence[Any]) -> None:
        self.executions: set[str] = set()
        self.keys: set[tuple[str, str]] = set()
        self.waits: list[Any] = []
        self.needs_catalog = self.is_limited = self.has_flows = False
        for command in commands:
            kind = type(command)
            if kind is CreateExecution:
                self.needs_catalog = True
                if (key := command.body.idempotency_key) is not None:
                    self._keyed(command, key)
            elif kind in _SEARCHING:
                self.needs_catalog = True
            elif kind in LIMIT_COMMANDS:
                self.needs_catalog = self.is_limited = True
                self.executions.update(executions_of(command))
            elif kind in FLOW_COMMANDS:
                self.needs_catalog = self.has_flows = True
                self.executions.update(executions_in(command))
                self.keys.update(keys_in(command))
            else:
                self.executions.add(command.execution_id)
                if kind in EPISODE_COMMANDS:
                    self.waits.append(command)
                elif kind in _OF_LANES:
                    self.needs_catalog = True

    def _keyed(self, command: CreateExecution, key: str) -> None:
        self.keys.add((command.route.namespace, key))
        self.executions.add(command.execution_id)


class Fold:
    """Loads what commands name, decides them one by one, writes the outcome."""

    def __init__(
        self,
        tx: Transaction,
        moment: Callable[[int], Moment],
        credits_of: Callable[[Offer], Credits],
    ) -> None:
        self._tx = tx
        self._moment = moment
        self._credits_of = credits_of
        self.view = View(Moment(0))
        self.episodes = EpisodeBook(tx, self.view)
        self.limiter = Limiter(tx, self.view, self.episodes)
        self.flows = FlowBook(tx, self.view)

    async def run(self, commands: Sequence[Any]) -> list[Any]:
        """The reply to each command; everything is saved but what `view` still holds."""
        await self._load(commands)
        view, replies = self.view, []
        owes = False  # whether something is still to follow from what was decided
        for command in commands:
            kind = type(command)
            if kind in _BY_RULE:
                if owes and self._may_be_moved(command):
                    await self._follow_up()
                reply = self._replay(command) if kind is Replay else view.decide(command)
                if type(reply) is Refused and kind in REPEATABLE:
                    reply = await first_answer(self._tx, view, command) or reply
                owes = owes or view.owes
                if owes and type(reply) is Replayed:
                    await self._follow_up()
                    owes, reply = False, self._as_it_stands(reply)
                replies.append(reply)
            else:
                if owes:
                    await self._follow_up()
                replies.append(await self._special(command, kind))
                owes = self.limiter.has_work or view.has_member_moves
        if owes:
            await self._follow_up()
        return replies

    async def _follow_up(self) -> None:
        """What follows from what was decided: in its flows, and among limits and waits."""
        while True:
            await self.flows.follow_up()
            if self.limiter.has_work:
                await self.limiter.follow_up()
            if not self.view.has_member_moves:
                return

    def _replay(self, command: Replay) -> Any:
        """A replay brings work to its lane like a create."""
        current = self.view.executions.get(command.execution_id)
        if not isinstance(current, Execution):
            return self.view.decide(command)
        decision = RULES[Replay](current, command, self.view.at)
        closed = refuse_entry(current.lane_id, self._catalog)
        if decision.execution is not None and closed is not None:
            return closed
        return self.view.apply(current, command, decision)

    @property
    def _catalog(self) -> Catalog:
        if self.view.catalog is None:
            raise InvariantViolated("a command about lanes needs the catalog")
        return self.view.catalog

    def _as_it_stands(self, reply: Replayed) -> Replayed:
        """Only its flow knows what becomes of a member that lives again: whether it waits for
        others, or cannot go on."""
        execution = self.view.executions.get(reply.execution_id)
        if not isinstance(execution, Execution):
            return reply
        return replace(reply, public_state=execution.public_state)

    def _may_be_moved(self, command: Any) -> bool:
        """Whether what still follows could change the execution a command is about."""
        execution = self.view.executions.get(command.execution_id)
        if execution is None or type(command) is Replay:
            return True
        if not isinstance(execution, Execution):
            return False
        if execution.flow_id is not None and self.view.cascading:
            return True  # a replay may give it another life
        bounded = execution.bounds is not UNBOUNDED or execution.flow_id is not None
        return execution.is_runnable and bounded

    async def _special(self, command: Any, kind: type) -> Any:
        if kind is Claim:
            return await self._claim(command)
        if kind is WakeDue:
            return await self._due(command)
        if kind is PromiseBest:
            return await self._promise(command)
        if kind in LIMIT_COMMANDS:
            return self.limiter.decide(command)
        if kind in EPISODE_COMMANDS:
            return self.episodes.decide(command)
        if kind in FLOW_COMMANDS:
            reply = await self.flows.decide(command)
            if type(reply) is Refused and kind in REPEATABLE:
                return await first_answer(self._tx, self.view, command) or reply
            return reply
        return await self._start_named(command)

    async def _load(self, commands: Sequence[Any]) -> None:
        """Everything the commands name, in one trip per kind and in one lock order."""
        named = _Named(commands)
        tx, view = self._tx, self.view
        if named.needs_catalog:
            view.catalog = await tx.catalog()
        if named.has_flows:
            named.executions |= await self.flows.members_to_load(commands)
        if named.executions:
            view.executions.update(await tx.load(tuple(named.executions)))  # it orders its locks
        if named.keys:
            view.keys.update(await tx.load_keys(sorted(named.keys)))
        view.at = self._moment(tx.now)
        self.limiter.begin()
        await self.flows.prepare(commands)
        if named.waits:
            await self.episodes.prepare(named.waits)
        if named.is_limited:
            await self.limiter.prepare(commands)

    async def _save(self) -> None:
        """A search must see what this batch has decided."""
        if changes := self.view.take_changes():
            await self._tx.save(changes)

    # --- claims --------------------------------------------------------------------------------

    async def _claim(self, command: Claim) -> list[Claimed]:
        """The one claim path: matching routes, fair shares, admission, leases, bodies."""
        claimed: list[Claimed] = []
        depth, room = 0, CLAIM_BYTES_MAX
        shares = await self._shares(command.offer)
        for _ in range(SEARCHES_MAX if shares else 0):
            await self._save()
            places = command.limit - len(claimed)
            lot = await self._candidates(shares, command.offer, places, depth, room)
            admitted = await self._admitted(lot, AdmissionState.RUNNING, None)
            claimed += self._leased(command, admitted)
            if len(claimed) >= command.limit or len(admitted) == len(lot.found):
                return claimed
            room -= sum(len(body.payload) for _, body in admitted)
            if room <= 0:
                return claimed
            depth = _deeper(depth)
        for share in shares:  # limits kept many back: look again soon for what stands behind them
            self.view.effects.woken.setdefault(share.lane_id, 1)
        return claimed

    async def _shares(self, offer: Offer) -> list[Share]:
        catalog = self.view.catalog or await self._tx.catalog()
        return shares_of(matching_routes(offer, catalog), catalog)

    async def _ready(self, share: Share, count: int, room: int) -> list[Candidate]:
        """The first of a line, as many as their inputs have room for; at least one.

        Where that many of the largest would fit, none is measured.
        """
        if count * self.view.at.payload_bytes_max <= room:
            return await self._tx.ready(share.routes, count)
        found = await self._tx.ready(share.routes, count, max(1, room))
        if len(found) < count and sum(len(body.payload) for _, body in found) >= room:
            self.view.effects.woken.setdefault(share.lane_id, 1)  # for those behind: claim again
        return found

    async def _candidates(
        self, shares: Sequence[Share], offer: Offer, places: int, depth: int, room: int
    ) -> Lot:
        """The best of each line, as many as it is owed; what one has no work for others get.

        So many more as `depth` says are looked at behind them, in case limits keep these back.
        `room`: for the bytes of their inputs, of which each line has its part.
        """
        if len(shares) == 1:
            share = shares[0]
            found = await self._ready(share, places + depth, room)
            return Lot(shares, {}, found, {share.key: places}, {share.key: places})
        credits = self._credits_of(offer)
        owed = parts_of(shares, credits, places)
        lines = {
            share.key: await self._ready(
                share, owed[share.key] + depth, room * owed[share.key] // places
            )
            if owed[share.key]
            else []
            for share in shares
        }
        parts = {key: min(owed[key], len(line)) for key, line in lines.items()}
        unused = Counter({share.lane_id: 0 for share in shares})
        for share in shares:
            unused[share.lane_id] += owed[share.key] - parts[share.key]
        # A tenant's places that it does not use are its lane's, and only then everybody's.
        for pools in (unused, None):
            for share in shares:
                key = share.key
                free = unused.total() if pools is None else pools[share.lane_id]
                if free and parts[key] >= owed[key]:
                    part = parts[key] + free
                    lines[key] = await self._ready(share, part + depth, room * part // places)
                    more = min(free, len(lines[key]) - parts[key])
                    parts[key] += more
                    _take_from(unused, share.lane_id, more)
        found = [candidate for line in lines.values() for candidate in line]
        found.sort(key=lambda candidate: ready_order(candidate[0]))
        return Lot(shares, credits, found, owed, parts)

    async def _admitted(
        self, lot: Lot, state: AdmissionState, due_at: int | None
    ) -> list[Candidate]:
        """Those of the lot who may start, no more of a line than its part."""
        if any(execution.bounds is not UNBOUNDED for execution, _ in lot.found):
            admitted = await self.limiter.admit(lot.found, lot.parts, state, due_at)
        else:
            admitted = lot.first()
        lot.settle(admitted)
        return admitted

    def _leased(self, command: Claim, admitted: Sequence[Candidate]) -> list[Claimed]:
        if not admitted:
            return []
        claimed, at = [], self.view.at
        # A row may have changed after the clock was read: time never runs backwards for it.
        latest = max(execution.last_mutation_at for execution, _ in admitted)
        if latest > at.now:
            at = replace(at, now=latest)
        fresh = iter(ids.new_secret_ids(2 * len(admitted)))
        for execution, body in admitted:
            new = NewIds(next(fresh), next(fresh))
            decision = claim(execution, command, new, at)
            reply = self.view.apply(execution, command, decision)
            if reply is not None:
                claimed.append(with_body(reply, body))
        return claimed

    async def _promise(self, command: PromiseBest) -> GrantIssued | NoWork:
        """Choose the best execution for a worker and promise it."""
        shares = await self._shares(command.offer)
        until = place_until(self.view.at.now + command.request.grant_ttl_ms)
        depth = 0
        for _ in range(SEARCHES_MAX if shares else 0):
            await self._save()
            lot = await self._candidates(shares, command.offer, 1, depth, CLAIM_BYTES_MAX)
            for execution, _ in await self._admitted(lot, AdmissionState.RESERVED, until):
                self.view.take(execution)
                request = replace(command.request, execution_id=execution.execution_id)
                reply: GrantIssued = self.view.decide(request)
                return reply
            if not lot.found:
                break
            depth = _deeper(depth)
        return NoWork()

    async def _start_named(self, command: Any) -> Any:
        """A start or a promise of one named execution, by an open lane and admitted like any."""
        current = self.view.executions.get(command.execution_id)
        if not isinstance(current, Execution):
            return self.view.decide(command)
        decision = RULES[type(command)](current, command, self.view.at)
        after = decision.execution
        if after is not None and holds_place(after, self.view.at.now):
            if closed := refuse_start(current.lane_id, self._catalog):
                return closed
            # A lost execution takes its place when it is taken over, not when that is promised.
            if current.bounds is not UNBOUNDED and type(command) is not IssueReclaimGrant:
                state = AdmissionState.RUNNING if after.is_leased else AdmissionState.RESERVED
                until = None if after.grant is None else place_until(after.grant.expires_at)
                denial = await self.limiter.admit_named(current, state, until)
                if denial is not None:
                    return denial.refusal()
        return self.view.apply(current, command, decision)

    # --- what is due ---------------------------------------------------------------------------

    async def _due(self, search: WakeDue) -> int:
        """Do what is due, for everything whose time has come; how many records were moved."""
        await self._save()
        moved = 0
        came_back: Counter[str | None] = Counter()
        found = await self._executions_due(search)
        rows = search.named
        if rows is None:
            rows = await rows_due(self._tx, search.limit, search.aside)
        await self.flows.hold_due(found, rows)
        for execution in found:
            key = self.view.take(execution).execution_id
            # A lapsed lease may be due for reclaim at once, so look again until nothing is due.
            while (what := self.view.decide(Wake(key, ids.jitter())).what) != "unchanged":
                moved += 1
                came_back[execution.blocked_on] += what == "promoted"
        due = [execution.execution_id for execution in found]
        await self.flows.follow_up()
        moved += await self.flows.move_due(rows)
        moved += await self.episodes.move_due(due, rows.of(WAITPOINTS))
        return moved + await self.limiter.move_due(rows, came_back)

    async def _executions_due(self, search: WakeDue) -> list[Execution]:
        if search.named is None:
            limit, aside = search.limit, search.aside
            found = await self._tx.due(self.view.at.now, limit + len(aside))
            if aside:
                found = [each for each in found if (EXECUTION, (each.execution_id,)) not in aside]
            return found[:limit]
        if not search.named.execution_ids:
            return []
        named = await self._tx.load_free(search.named.execution_ids)
        return [each for each in named.values() if isinstance(each, Execution)]
