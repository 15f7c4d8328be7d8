"""Watches inside one transaction: executions that wait for the ends of others, and how they are
told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from flowfabric import ids
from flowfabric.engine.plans import Plans
from flowfabric.engine.unit.overlay import Overlay
from flowfabric.engine.unit.view import View
from flowfabric.engine.unit.waits import Waits
from flowfabric.kernel.order.line import line_key
from flowfabric.kernel.schedule.change import paused_by_failures
from flowfabric.kernel.schedule.fate import counted, has_failed_often
from flowfabric.kernel.wait.signal import deliver
from flowfabric.kernel.wait.watch import notice, path_to, put_off
from flowfabric.model.execution import Execution
from flowfabric.model.flow import FlowState
from flowfabric.model.record import replace
from flowfabric.model.state import TerminalOutcome
from flowfabric.model.suspension import WaitpointState
from flowfabric.model.watch import WatchRow, schedule_of
from flowfabric.stores.base import Corrupt, Transaction
from flowfabric.stores.indexes import CHILDREN, WATCHES_OF, Search, by_key
from flowfabric.stores.tables import FLOWS, LINE_ROWS, SCHEDULES, WAITPOINTS, WATCHES, Key

_TOLD: Final = 100  # watchers that one transaction tells of one end
_WALKED: Final = 1_000  # executions that are looked at for a cycle
_OUTCOMES: Final = {
    FlowState.COMPLETED: TerminalOutcome.SUCCESS,
    FlowState.FAILED: TerminalOutcome.FAILED,
    FlowState.CANCELLED: TerminalOutcome.CANCELLED,
}


class Watches:
    """The watches that a transaction registers, and those it tells of ends."""

    def __init__(
        self, tx: Transaction, view: View, overlay: Overlay, waits: Waits, plans: Plans
    ) -> None:
        self._plans = plans
        self._tx = tx
        self._view = view
        self._overlay = overlay
        self._waits = waits

    async def replace(self, watcher_id: str, rows: Sequence[WatchRow]) -> None:
        """These are what an execution watches from now on: what it waited for before is over."""
        known = await self._overlay.search(Search(WATCHES_OF, ((watcher_id,),)))
        before = {WATCHES.key_of(each): each for each in known}
        self._view.rows.take(WATCHES, before)
        after = {WATCHES.key_of(each): each for each in rows}
        self._view.rows.drop(WATCHES, [key for key in before if key not in after])
        for row in rows:
            self._view.rows.put(WATCHES, row)

    # --- a cycle ---------------------------------------------------------------------------------

    async def cycle(self, watched: Sequence[str], watcher_id: str) -> list[str] | None:
        """How an execution to be watched waits, in the end, for the one that would watch it."""
        waits_for: dict[str, list[str]] = {}
        frontier = list(watched)
        while frontier and len(waits_for) < _WALKED:
            found = await self._waits_of(frontier)
            for each in frontier:
                waits_for[each] = found.get(each, [])
            if (path := path_to(watched, watcher_id, waits_for)) is not None:
                return [watcher_id, *path]
            known = waits_for.keys()
            frontier = [each for several in found.values() for each in several if each not in known]
            frontier = list(dict.fromkeys(frontier))
        return None

    async def cycle_with_child(self, parent: Execution) -> list[str] | None:
        """A child that waits for its parent, which is about to wait for its children."""
        search = Search(CHILDREN, ((parent.execution_id,),), limit=_WALKED)
        children = [each.execution_id for each in await self._overlay.search(search)]
        return await self.cycle(children, parent.execution_id)

    async def _waits_of(self, watchers: Iterable[str]) -> dict[str, list[str]]:
        """What each of some executions waits for: those it watches, and its open children."""
        prefixes = tuple((each,) for each in watchers)
        rows = await self._overlay.search(Search(WATCHES_OF, prefixes, limit=_WALKED))
        places = await self._tx.peek_rows(WAITPOINTS, sorted({(row.waitpoint_id,) for row in rows}))
        found: dict[str, list[str]] = {}
        for row in rows:
            place = places.get((row.waitpoint_id,))
            # A wait that is over leaves its rows until the other one ends.
            if place is not None and place.state is not WaitpointState.CLOSED:
                found.setdefault(row.watcher_id, []).append(row.execution_id)
        known = await self._tx.get([prefix[0] for prefix in prefixes])
        parents = [
            each.execution_id
            for each in known.values()
            if isinstance(each, Execution) and each.is_interrupted and each.has_open_group
        ]
        if parents:
            of_parents = tuple((each,) for each in parents)
            children = await self._overlay.search(Search(CHILDREN, of_parents, limit=_WALKED))
            for member in children:
                found.setdefault(member.parent_id or "", []).append(member.execution_id)
        for behind, ahead in (await self._turns_of(known.values())).items():
            found.setdefault(behind, []).append(ahead)
        return found

    async def _turns_of(self, executions: Iterable[Execution | Corrupt]) -> dict[str, str]:
        """For those that wait for their turn, the execution that has it."""
        behind = {
            each.execution_id: key
            for each in executions
            if isinstance(each, Execution) and each.is_behind
            if (key := line_key(each)) is not None
        }
        rows = await self._tx.peek_rows(LINE_ROWS, sorted(set(behind.values())))
        return {each: rows[key].head_id for each, key in behind.items() if key in rows}

    # --- what is due -----------------------------------------------------------------------------

    async def move_due(self, keys: Sequence[Key]) -> int:
        """Tell those that wait for executions which have ended; how many were told."""
        if not keys:
            return 0
        # Two loops that tell of one end wait for each other here.
        found = await self._tx.rows(WATCHES, list(keys))
        self._view.rows.take(WATCHES, found)
        due = [each for each in found.values() if each.due_at is not None]
        return sum([await self._tell(each) for each in due])

    async def _tell(self, owed: WatchRow) -> int:
        """Tell the watchers of one end. Its row stays while any of them is left."""
        rows = self._view.rows
        search = Search(by_key(WATCHES), ((owed.execution_id,),), limit=_TOLD)
        page = await self._overlay.search(search)
        found = [each for each in page if each.due_at is None]
        rows.take(WATCHES, {WATCHES.key_of(each): each for each in found})
        await self._load(found)
        told = sum([await self._notify(each) for each in found])
        if told < len(found) or len(page) == _TOLD:
            rows.put(WATCHES, put_off(owed, self._view.at))
        else:
            rows.drop(WATCHES, [WATCHES.key_of(owed)])
        return told

    async def _load(self, found: Sequence[WatchRow]) -> None:
        """Lock those watchers that no other transaction has locked, with their waits."""
        here = self._view.executions
        found = [each for each in found if schedule_of(each.watcher_id) is None]
        wanted = sorted({each.watcher_id for each in found if each.watcher_id not in here})
        if wanted:
            here.update(await self._tx.load_free(wanted))
        loaded = {each.watcher_id: self._view.execution(each.watcher_id) for each in found}
        places = sorted({(each.waitpoint_id,) for each in found})
        await self._waits.look_at(filter(None, loaded.values()), places)

    async def _notify(self, row: WatchRow) -> bool:
        """Tell one watcher, unless it still waits for others or no longer waits; False if another
        transaction has locked it."""
        view, key = self._view, row.watcher_id
        if (schedule := schedule_of(key)) is not None:
            view.rows.drop(WATCHES, [WATCHES.key_of(row)])
            await self._tell_schedule(schedule, row.execution_id)
            return True
        if key not in view.executions:
            if key in await self._tx.get([key]):
                return False
        elif self._waits.refuse_unreadable(key) is not None:
            return False
        view.rows.drop(WATCHES, [WATCHES.key_of(row)])
        watcher, place = view.execution(key), self._waits.waitpoint(row.waitpoint_id)
        if watcher is None or place is None or place.state is WaitpointState.CLOSED:
            return True
        if row.needs_all:
            others = Search(WATCHES_OF, ((key, row.waitpoint_id),), limit=1)
            if await self._overlay.search(others):
                return True
        command = notice(row, ids.new_secret_id())
        episode = self._waits.episode(watcher)
        decision = deliver(watcher, place, episode, None, command, view.at)
        view.apply(watcher, decision, command, ends_wait=True)
        return True

    async def _tell_schedule(self, key: Key, run_id: str) -> None:
        """A schedule learns how a run of it has ended, and goes on with what waits for that."""
        rows = self._view.rows
        if rows.get(SCHEDULES, key) is None:
            rows.take(SCHEDULES, await self._tx.rows(SCHEDULES, [key]))
        row, outcome = rows.get(SCHEDULES, key), await self._outcome(run_id)
        if row is None or outcome is None:
            return
        plan = self._plans.of(row)
        if isinstance(plan, str):
            return
        before, row = row, counted(row, plan.policy, outcome)
        if row.queued_tick is not None:
            row = replace(row, next_at=self._view.at.now)
        if has_failed_often(row, plan.policy):
            self._view.apply(None, paused_by_failures(row, self._view.at))
        elif row is not before:
            rows.put(SCHEDULES, row)

    async def _outcome(self, run_id: str) -> TerminalOutcome | None:
        """How a run has ended; None if it is gone, or goes on again."""
        if run_id.startswith("{"):
            here = self._view.execution(run_id)
            found = here or (await self._tx.get([run_id])).get(run_id)
            is_ended = isinstance(found, Execution) and found.is_terminal
            return found.state.terminal_outcome if is_ended else None  # type: ignore[union-attr]
        key = (run_id,)
        flow = self._view.rows.get(FLOWS, key)
        if flow is None:
            flow = (await self._tx.peek_rows(FLOWS, [key])).get(key)
        return None if flow is None else _OUTCOMES.get(flow.public_flow_state)
