"""Schedules that fire inside one transaction: what is due is started, and each tick gets its
fate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, cast

from flowfabric import limits
from flowfabric.engine.plans import Plan, Start
from flowfabric.engine.unit.due import Thing
from flowfabric.engine.unit.handlers import HANDLERS
from flowfabric.engine.unit.unit import Unit
from flowfabric.errors import FlowFabricError, NotFound
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.cancel import stop
from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.kernel.flow.cancel import CancelFlow
from flowfabric.kernel.limit.budget import refuse_scopes
from flowfabric.kernel.schedule import fate
from flowfabric.kernel.schedule.fate import Meeting, Missed
from flowfabric.model.bounds import UNBOUNDED, Bounds
from flowfabric.model.budget import ScopeType
from flowfabric.model.execution import Execution
from flowfabric.model.flow import CancellationPolicy, FlowRow
from flowfabric.model.flow_results import FlowSubmitted
from flowfabric.model.record import replace
from flowfabric.model.results import Created
from flowfabric.model.schedule import (
    Fate,
    Overlap,
    SchedulePolicy,
    ScheduleRow,
    TickRow,
)
from flowfabric.model.watch import WatchRow, watcher_of
from flowfabric.stores.base import Corrupt
from flowfabric.stores.indexes import DUE_OF, Search
from flowfabric.stores.tables import (
    BUDGETS,
    FLOWS,
    QUOTAS,
    SCHEDULES,
    TICKS,
    WATCHES,
    Key,
)

_SOURCE: Final = "schedule"
Previous = Execution | FlowRow | None


# --- what is due ---------------------------------------------------------------------------------


async def fire_due(unit: Unit, keys: Sequence[Key], aside: frozenset[Thing] | None) -> int:
    """Start what schedules have due; how many ticks were decided. `aside`: what is left out; none:
    the schedules were named one by one."""
    if not keys:
        return 0
    held = await _hold(unit, keys, aside)
    plans = {key: unit.plans.of(row) for key, row in held.items()}
    for key, plan in plans.items():
        if isinstance(plan, str):
            unit.plans.left[key[0], key[1]] = (plan, held[key].next_at or 0)
    understood = {key: plan for key, plan in plans.items() if not isinstance(plan, str)}
    previous = await previous_runs(unit, [(held[key], plan) for key, plan in understood.items()])
    done = weight = 0
    for key, plan in understood.items():
        firing = Firing(unit, held[key], plan, previous)
        done += await firing.fire()
        weight += firing.weight
        if weight >= limits.STARTS_AT_ONCE:
            break  # the others stay due
    return done


async def _hold(
    unit: Unit, keys: Sequence[Key], aside: frozenset[Thing] | None
) -> dict[Key, ScheduleRow]:
    """The rows, locked, as far as no other process has them."""
    if aside is None:
        found = await unit.tx.rows(SCHEDULES, sorted(keys))
    else:
        now, most = unit.view.at.now, len(keys) + len(aside)
        search = Search(DUE_OF[SCHEDULES], until=now, limit=most, is_held=True)
        wanted = frozenset(keys)
        rows = await unit.overlay.search(search)
        found = {key: row for row in rows if (key := SCHEDULES.key_of(row)) in wanted}
    unit.view.rows.take(SCHEDULES, found)
    standing = {key: unit.view.rows.get(SCHEDULES, key) for key in found}
    now = unit.view.at.now
    return {
        key: row
        for key, row in standing.items()
        if row is not None and row.next_at is not None and row.next_at <= now
    }


class Runs:
    """The runs before those of some schedules: executions and flows, as they stand."""

    def __init__(self) -> None:
        self.found: dict[str, Previous] = {}
        self.locked: set[str] = set()  # by another transaction, where they would be cancelled

    def get(self, run_id: str | None) -> Previous:
        """A run; none if there was none, or if it is gone."""
        return self.found.get(run_id or "")

    def is_open(self, run_id: str | None) -> bool:
        """Whether it has not ended."""
        return is_open(self.get(run_id))


def is_open(run: Previous) -> bool:
    """Whether a run has not ended."""
    if isinstance(run, FlowRow):
        return run.finished_at is None
    return run is not None and not run.is_terminal


async def previous_runs(unit: Unit, wanted: Sequence[tuple[ScheduleRow, Plan]]) -> Runs:
    """Runs that are looked back at, all at once; those that may be cancelled are locked."""
    runs = Runs()
    looked, cancelled = set[str](), set[str]()
    for row, plan in wanted:
        if row.last_run_id is not None and fate.looks_back(plan.policy):
            (cancelled if _may_cancel(plan.policy) else looked).add(row.last_run_id)
    await find_runs(unit, runs, looked)
    await find_runs(unit, runs, cancelled, is_held=True)
    return runs


def _may_cancel(policy: SchedulePolicy) -> bool:
    return policy.overlap is Overlap.CANCEL_PREVIOUS


async def find_runs(unit: Unit, runs: Runs, ids: Iterable[str], *, is_held: bool = False) -> None:
    """Look up runs; those that may be cancelled are held as far as they are not locked."""
    view = unit.view
    here = {key for key in ids if key in view.executions}
    missing = sorted(set(ids) - here)
    executions = [key for key in missing if is_execution_id(key)]
    flows = [(key,) for key in missing if not is_execution_id(key)]
    if executions:
        found = await (unit.tx.load_free if is_held else unit.tx.get)(executions)
        for key, each in found.items():
            if not isinstance(each, Corrupt):
                runs.found[key] = view.take(each) if is_held else each
        if is_held and (lost := [key for key in executions if key not in found]):
            runs.locked |= (await unit.tx.get(lost)).keys()
    for key in here:
        runs.found[key] = view.execution(key)
    if flows:
        rows = await unit.tx.peek_rows(FLOWS, flows)
        for (key,) in flows:
            runs.found[key] = unit.view.rows.get(FLOWS, (key,)) or rows.get((key,))


def is_execution_id(run_id: str) -> bool:
    """Whether a run is an execution, and no flow."""
    return run_id.startswith("{")


class Firing:
    """One schedule that acts on its ticks, under its lock."""

    def __init__(self, unit: Unit, row: ScheduleRow, plan: Plan, runs: Runs) -> None:
        self._unit = unit
        self._view = unit.view
        self._row = row
        self._plan = plan
        self._runs = runs
        self._kept = unit.plans.kept
        self._rows: dict[int, TickRow] = {}
        self.weight = 0

    async def fire(self) -> int:
        """Decide the ticks that are due, up to as many as one transaction takes."""
        row, plan, at = self._row, self._plan, self._view.at
        if row.last_run_id in self._runs.locked:
            self._put(replace(row, next_at=at.now + fate.RETRY_MS))
            return 1
        await self._start_queued()
        begin = max(row.done_until, at.now - self._horizon_ms)
        ticks = plan.calendar.ticks(begin, at.now, limit=limits.TICKS_AT_ONCE)
        due = [tick for tick in ticks if plan.fires_at(row, tick) <= at.now]
        missed = self._missed(due)
        for tick in due:
            if fate.is_exhausted(self._row, plan.policy) or self.weight >= limits.STARTS_AT_ONCE:
                break
            await self._decide(tick, missed)
            self._row = replace(self._row, done_until=tick)
        await self._record()
        self._put(scheduled(self._unit, self._row, plan))
        return len(due) + 1

    @property
    def _horizon_ms(self) -> int:
        """Older ticks have no row: it would be swept at once."""
        policy, timing = self._plan.policy, self._plan.timing
        late = policy.catch_up_window_ms + limits.LATE_TICK_MS + timing.jitter_ms
        return max(self._kept.missed_ms, late)

    def _missed(self, due: Sequence[int]) -> Missed:
        """Which of the missed ticks still run: those that are nearest to now."""
        policy, at = self._plan.policy, self._view.at
        count = fate.kept_count(policy)
        if not due or not count or at.now - due[0] <= limits.LATE_TICK_MS:
            return Missed()
        after, until = fate.missed_between(policy, self._row.done_until, at)
        recent = self._plan.calendar.last(after, until, count + 2)
        missed = [
            tick
            for tick in recent
            if at.now - self._plan.fires_at(self._row, tick) > limits.LATE_TICK_MS
        ]
        return fate.kept_of(missed[-count:])

    async def _decide(self, tick: int, missed: Missed) -> None:
        row, plan, at = self._row, self._plan, self._view.at
        judged = fate.judge(tick, plan.fires_at(row, tick), row, plan.policy, missed, at)
        if judged not in (Fate.RAN, Fate.CAUGHT_UP):
            into = missed.kept_from if judged is Fate.MERGED else None
            self._note(tick, judged, merged_into=into)
            return
        meeting = Meeting.START
        if fate.looks_back(plan.policy):
            meeting = fate.meet(plan.policy, is_open=self._runs.is_open(row.last_run_id))
        match meeting:
            case Meeting.SKIP:
                self._note(tick, Fate.SKIPPED_OVERLAP)
            case Meeting.QUEUE:
                await self._queue(tick)
            case _:
                await self._start(tick, judged, cancels=meeting is Meeting.CANCEL_AND_START)

    # --- runs ------------------------------------------------------------------------------------

    async def _start(self, tick: int, judged: Fate, *, cancels: bool = False) -> None:
        row = self._row
        previous = self._runs.get(row.last_run_id)
        number = row.runs + 1
        caught_up = judged is Fate.CAUGHT_UP
        run = await start_run(self._unit, self._plan, row, tick, number, caught_up=caught_up)
        self.weight += self._plan.weight
        if isinstance(run, Refused):
            self._note(tick, Fate.REFUSED, error=f"{run.error.code}: {run.detail}"[:1000])
            return
        if cancels:
            await self._cancel(previous)
        self._runs.found[run] = _as_it_stands(self._unit, run)
        self._row = fate.started(row, tick, run)
        if fate.watches(self._plan.policy):
            watch_run(self._unit, self._row, run)
        self._note(tick, judged, number=number, run_id=run)

    async def _cancel(self, previous: Previous) -> None:
        """In the transaction that starts the run in its place."""
        unit, reason = self._unit, f"schedule {self._row.schedule_id} starts the next run"
        if isinstance(previous, FlowRow):
            flow_id = previous.flow_id
            await unit.flows.graph.locks.lock([flow_id])
            command = CancelFlow(
                flow_id=flow_id, policy=CancellationPolicy.CANCEL_ALL, reason=reason
            )
            await HANDLERS[CancelFlow](unit, command)
        elif previous is not None:
            standing = unit.view.execution(previous.execution_id)
            if standing is not None and not standing.is_terminal:
                unit.view.apply(standing, stop(standing, reason, _SOURCE, unit.view.at))

    async def _queue(self, tick: int) -> None:
        """It waits for the end; what waited until now is merged into it."""
        queued = await self._queued()
        if queued is not None:
            self._rows[queued.tick] = fate.replaced(queued, tick, self._view.at, self._kept)
        self._note(tick, Fate.QUEUED)
        self._row = replace(self._row, queued_tick=tick)

    async def _queued(self) -> TickRow | None:
        """The row of the tick that waits."""
        row = self._row
        if row.queued_tick is None:
            return None
        if (here := self._rows.get(row.queued_tick)) is not None:
            return here
        key = (row.namespace, row.schedule_id, row.queued_tick)
        if self._view.rows.get(TICKS, key) is None:
            self._view.rows.take(TICKS, await self._unit.tx.rows(TICKS, [key]))
        return self._view.rows.get(TICKS, key)

    async def _start_queued(self) -> None:
        """The tick that waits, once the run before has ended."""
        row = self._row
        if row.queued_tick is None:
            return
        if row.last_run_id is not None and row.last_run_id not in self._runs.found:
            await find_runs(self._unit, self._runs, [row.last_run_id])  # its policy has changed
        if self._runs.is_open(row.last_run_id) and not row.is_paused:
            return
        tick = row.queued_tick
        queued = await self._queued()
        self._row = replace(row, queued_tick=None)
        if queued is None:
            return
        if row.is_paused:
            self._note(tick, Fate.MISSED_PAUSED)
        else:
            await self._start(tick, Fate.RAN)

    # --- rows ------------------------------------------------------------------------------------

    def _note(
        self,
        tick: int,
        fate_: Fate,
        *,
        number: int | None = None,
        run_id: str | None = None,
        merged_into: int | None = None,
        error: str = "",
    ) -> None:
        self._rows[tick] = fate.tick_row(
            self._row,
            tick,
            fate_,
            self._view.at,
            self._kept,
            number=number,
            run_id=run_id,
            merged_into=merged_into,
            error=error,
        )

    async def _record(self) -> None:
        """New rows are inserted: a second run of one tick would collide with the first."""
        for row in self._rows.values():
            self._view.rows.put(TICKS, row)

    def _put(self, row: ScheduleRow) -> None:
        self._row = row
        self._view.rows.put(SCHEDULES, row)


def scheduled(unit: Unit, row: ScheduleRow, plan: Plan) -> ScheduleRow:
    """The schedule with its next tick."""
    tick = None
    if not fate.is_exhausted(row, plan.policy):
        tick = plan.calendar.next(row.done_until)
    next_at = None if tick is None else plan.fires_at(row, tick)
    return replace(row, next_tick=tick, next_at=next_at)


def _as_it_stands(unit: Unit, run_id: str) -> Previous:
    if is_execution_id(run_id):
        return unit.view.execution(run_id)
    return unit.view.rows.get(FLOWS, (run_id,))


async def start_run(
    unit: Unit, plan: Plan, row: ScheduleRow, tick: int, number: int, *, caught_up: bool
) -> str | Refused:
    """The id of a new execution or flow, or why it was refused."""
    try:
        command = unit.plans.command(plan, row, tick, number, caught_up=caught_up)
    except FlowFabricError as error:
        return Refused(type(error), error.detail, error.fields)
    if (refusal := await _refuse_limits(unit, command)) is not None:
        return refusal
    handler = HANDLERS.get(type(command))
    if handler is not None:
        reply = await handler(unit, command)
    else:
        reply = unit.view.decide(cast("CreateExecution", command))
    match reply:
        case Created():
            return reply.execution_id
        case FlowSubmitted():
            return reply.flow_id
        case Refused():
            return reply
        case _:
            return Refused(FlowFabricError, f"unexpected answer {type(reply).__name__}")


async def _refuse_limits(unit: Unit, command: Start) -> Refused | None:
    """New work names only budgets and quotas that exist."""
    if isinstance(command, CreateExecution):
        creates, flow_id = [command], ""
    else:
        creates, flow_id = [node.create for node in command.nodes], command.flow_id
    for each in creates:
        if each.bounds is UNBOUNDED:
            continue
        refusal = await _refuse_bounds(unit, each.bounds, each, flow_id)
        if refusal is not None:
            return refusal
    return None


async def _refuse_bounds(
    unit: Unit, bounds: Bounds, command: CreateExecution, flow_id: str
) -> Refused | None:
    budgets = [(each,) for each in bounds.budget_ids]
    policies = {}
    if budgets:
        found = await unit.tx.peek_rows(BUDGETS, sorted(budgets))
        for (name,) in budgets:
            known = found.get((name,))
            if known is None or known.policy is None:
                detail = f"budget_ids: there is no budget {name!r}"
                return Refused(NotFound, detail, {"entity": "budget", "field": "budget_ids"})
            policies[name] = known.policy
    quota = bounds.quota_policy_id
    if quota is not None and (quota,) not in await unit.tx.peek_rows(QUOTAS, [(quota,)]):
        detail = f"quota_policy_id: there is no quota policy {quota!r}"
        fields = {"entity": "quota_policy", "field": "quota_policy_id"}
        return Refused(NotFound, detail, fields)
    places = {
        ScopeType.LANE: command.route.lane_id,
        ScopeType.NAMESPACE: command.route.namespace,
        ScopeType.EXECUTION: command.execution_id,
        ScopeType.FLOW: flow_id,
    }
    return refuse_scopes(policies, places)


def watch_run(unit: Unit, row: ScheduleRow, run_id: str) -> None:
    """Let the schedule be told of the end of a run that this transaction has loaded or made."""
    watcher = watcher_of(row.namespace, row.schedule_id)
    unit.view.rows.put(WATCHES, WatchRow(run_id, watcher))
    execution = unit.view.execution(run_id)
    if execution is not None and not execution.is_watched:
        unit.view.put(execution, replace(execution, is_watched=1))
