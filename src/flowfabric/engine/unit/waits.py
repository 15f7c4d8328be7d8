"""The suspensions one transaction touches: loaded under their executions' locks, written together.

Every change of a suspension, a waitpoint or a signal is made under the lock of its execution, so
none of these rows needs a lock of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from flowfabric import ids
from flowfabric.engine.unit.corrupt import readable
from flowfabric.engine.unit.view import View
from flowfabric.errors import Corruption
from flowfabric.kernel.command import Needs
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.repeat import in_force
from flowfabric.kernel.wait.condition import keys_of
from flowfabric.kernel.wait.episode import Episode, end_beside, leaves_wait
from flowfabric.kernel.wait.resume import (
    ExpireSuspension,
    expire_suspension,
    is_timed_out,
    look_again_later,
)
from flowfabric.kernel.wait.signal import DeliverSignal
from flowfabric.kernel.wait.suspend import Facts, SuspendExecution
from flowfabric.kernel.wait.token import current
from flowfabric.kernel.wait.waitpoint import abandons_waitpoints, close_abandoned, lapse_waitpoint
from flowfabric.model.execution import Execution
from flowfabric.model.suspension import (
    SecretRow,
    SignalKeyRow,
    SignalRow,
    SuspendKeyRow,
    SuspensionRow,
    WaitpointRow,
    WaitpointState,
)
from flowfabric.stores.base import Found, Transaction, Wanted
from flowfabric.stores.indexes import WAITPOINTS_OF, Search, by_key, open_waitpoints
from flowfabric.stores.tables import (
    SECRETS,
    SIGNAL_KEYS,
    SIGNALS,
    SUSPEND_KEYS,
    SUSPENSIONS,
    WAITPOINTS,
    Key,
    Table,
)

EVERY_SECRET: Final = Search(by_key(SECRETS), limit=100)
K = TypeVar("K", SignalKeyRow, SuspendKeyRow)


def want_waits(need: Needs, wanted: Wanted) -> None:
    """What commands about waits ask of the look: signing keys, waitpoints, signals, keys."""
    wanted.searches.add(EVERY_SECRET)
    for table, keys in (
        (WAITPOINTS, need.waitpoints),
        (SIGNALS, need.signals),
        (SIGNAL_KEYS, need.signal_keys),
        (SUSPEND_KEYS, need.suspend_keys),
    ):
        wanted.rows[table] = sorted(keys)


class Waits:
    """Suspensions, waitpoints and signals as one transaction sees and changes them."""

    def __init__(self, tx: Transaction, view: View) -> None:
        self._tx = tx
        self._view = view
        self.secrets: list[SecretRow] = []
        self._loaded: set[str] = set()  # executions whose open episode is here
        self._unreadable: dict[str, str] = {}  # executions whose episode cannot be read, and why
        self._bound: dict[str | None, set[Key]] = {}  # the waitpoints here by their suspension
        view.keep_with(SuspensionRow, self._keep_episode)
        view.keep_with(WaitpointRow, self._keep_waitpoint)

    # --- loading -------------------------------------------------------------------------------

    async def prepare(self, need: Needs, found: Found) -> None:
        """Everything the commands will ask for; their executions are locked already."""
        self.secrets = found.searches[EVERY_SECRET]
        self._remember(found.rows[WAITPOINTS].values())
        self._view.rows.take(SIGNALS, found.rows[SIGNALS])
        await self._take_keys(SIGNAL_KEYS, found.rows[SIGNAL_KEYS])
        await self._take_keys(SUSPEND_KEYS, found.rows[SUSPEND_KEYS])
        await self.open(self._view.loaded())
        await self._recall(need.suspend_keys)

    def _remember(self, waitpoints: Iterable[WaitpointRow]) -> None:
        """Waitpoints as they were loaded, also by their suspensions."""
        found = {WAITPOINTS.key_of(each): each for each in waitpoints}
        self._view.rows.take(WAITPOINTS, found)
        for key, waitpoint in found.items():
            self._bound.setdefault(waitpoint.suspension_id, set()).add(key)

    async def _take_keys(self, table: Table[K], found: Mapping[Key, K]) -> None:
        """A key whose time is over may be swept meanwhile: it is locked before it is used again."""
        rows, now = self._view.rows, self._view.at.now
        rows.take(table, found)
        lapsed = sorted(key for key, row in found.items() if in_force(row, now) is None)
        if lapsed:
            kept = await self._tx.rows(table, lapsed)
            rows.forget(table, [key for key in lapsed if key not in kept])

    async def _recall(self, suspend_keys: Iterable[Key]) -> None:
        """What calls that are repeated did the first time."""
        rows, tx = self._view.rows, self._tx
        seen = [row for key in suspend_keys if (row := rows.get(SUSPEND_KEYS, key)) is not None]
        if not seen:
            return
        keys = sorted((each.execution_id, each.suspension_id) for each in seen)
        rows.take(SUSPENSIONS, await tx.peek_rows(SUSPENSIONS, keys))
        owners = sorted({(each.execution_id,) for each in seen})
        found = await tx.search(Search(WAITPOINTS_OF, tuple(owners)))
        self._remember(found)
        made = {each.suspension_id for each in seen}
        addresses = sorted((each.waitpoint_id,) for each in found if each.suspension_id in made)
        if addresses:
            rows.take(SIGNALS, await tx.peek_rows(SIGNALS, addresses))

    async def open(self, executions: Iterable[Execution]) -> None:
        """The open episodes of suspended executions, with their waitpoints."""
        new = [
            each
            for each in executions
            if each.suspension_id is not None and each.execution_id not in self._loaded
        ]
        if not new:
            return
        self._loaded.update(each.execution_id for each in new)
        keys = sorted((each.execution_id, each.suspension_id or "") for each in new)
        found, unreadable = await readable(self._tx.peek_rows, SUSPENSIONS, keys)
        self._view.rows.take(SUSPENSIONS, found)
        self._unreadable.update((key[0], detail) for key, detail in unreadable.items())
        partial = [key[0] for key in keys if not self._is_whole(key)]
        if partial:
            await self._load_waitpoints(partial)

    async def look_at(self, executions: Iterable[Execution], waitpoints: Sequence[Key]) -> None:
        """Executions that are locked, their open episodes and some of their waitpoints."""
        self._remember((await self._tx.peek_rows(WAITPOINTS, waitpoints)).values())
        await self.open(executions)

    def _is_whole(self, key: Key) -> bool:
        """Whether every waitpoint of an episode is here: one for each key of its condition."""
        row = self._view.rows.get(SUSPENSIONS, key)
        wanted = 0 if row is None else len(keys_of(row.condition))
        return wanted > 0 and len(self._bound.get(key[1], ())) == wanted

    async def _load_waitpoints(self, execution_ids: Sequence[str]) -> None:
        self._remember(await self._tx.search(open_waitpoints(execution_ids)))

    # --- what the rules ask for ----------------------------------------------------------------

    @property
    def signing_key(self) -> SecretRow | None:
        """Signs new tokens."""
        return current(self.secrets)

    def refuse_unreadable(self, execution_id: str) -> Refused | None:
        """The refusal where the open episode of an execution cannot be read."""
        detail = self._unreadable.get(execution_id)
        return None if detail is None else Refused(Corruption, detail)

    def waitpoint(self, waitpoint_id: str) -> WaitpointRow | None:
        """One waitpoint, as it stands."""
        return self._view.rows.get(WAITPOINTS, (waitpoint_id,))

    def seen(self, command: DeliverSignal) -> SignalKeyRow | None:
        """An earlier signal with the same key."""
        if (key := command.idempotency_key) is None:
            return None
        return self._view.rows.get(SIGNAL_KEYS, (command.waitpoint_id, key))

    def facts_for(self, command: SuspendExecution) -> Facts:
        """What a suspend depends on beside its execution."""
        seen, made = None, None
        if (key := command.idempotency_key) is not None:
            seen = self._view.rows.get(SUSPEND_KEYS, (command.execution_id, key))
        if seen is not None:
            made = self._episode_of(seen.execution_id, seen.suspension_id)
        waitpoints = {
            each.waitpoint_id: found
            for each in command.bindings
            if (found := self.waitpoint(each.waitpoint_id)) is not None
        }
        addresses = dict.fromkeys(waitpoints)
        if made is not None:
            addresses.update(dict.fromkeys(each.waitpoint_id for each in made.waitpoints))
        return Facts(self.signing_key, waitpoints, self._signals(addresses), seen, made)

    def _signals(self, waitpoint_ids: Iterable[str]) -> list[SignalRow]:
        rows = self._view.rows
        return [signal for each in waitpoint_ids for signal in rows.group(SIGNALS, (each,))]

    def episode(self, execution: Execution | None) -> Episode | None:
        """The open episode of an execution."""
        if execution is None or execution.suspension_id is None:
            return None
        return self._episode_of(execution.execution_id, execution.suspension_id)

    def _episode_of(self, execution_id: str, suspension_id: str) -> Episode | None:
        rows = self._view.rows
        row = rows.get(SUSPENSIONS, (execution_id, suspension_id))
        if row is None:
            return None
        keys = sorted(self._bound.get(row.suspension_id, ()))
        bound = [each for key in keys if (each := rows.get(WAITPOINTS, key)) is not None]
        if len(bound) > 1:
            order = keys_of(row.condition)  # as the caller named them
            bound.sort(key=lambda each: order.index(each.waitpoint_key) if order else 0)
        return Episode(row, tuple(bound))

    # --- what was decided ----------------------------------------------------------------------

    def _keep_episode(self, row: SuspensionRow) -> None:
        self._view.rows.put(SUSPENSIONS, row)
        self._loaded.add(row.execution_id)

    def _keep_waitpoint(self, waitpoint: WaitpointRow) -> None:
        key = WAITPOINTS.key_of(waitpoint)
        self._view.rows.put_at(WAITPOINTS, key, waitpoint)
        self._bound.setdefault(waitpoint.suspension_id, set()).add(key)

    # --- what follows from other transitions ---------------------------------------------------

    async def close_after(self, moves: Sequence[tuple[Execution, Execution]]) -> None:
        """Close what an execution leaves behind when something else ends its wait or its life."""
        moves = [move for move in moves if move[0].suspension_id or move[0].side_holds]
        if not moves:
            return
        left = [move for move in moves if leaves_wait(*move)]
        await self.open([before for before, _ in left])
        for before, after in left:
            decision = end_beside(self.episode(before), after, self._view.at)
            self._view.apply(None, decision)
        abandoned = [
            after.execution_id for before, after in moves if abandons_waitpoints(before, after)
        ]
        if abandoned:
            await self._load_waitpoints(abandoned)
            for execution_id in abandoned:
                owner = self._view.execution(execution_id)
                is_over = owner is None or owner.is_terminal
                waitpoints = self._waitpoints_of(execution_id)
                self._view.apply(None, close_abandoned(waitpoints, self._view.at, is_over=is_over))

    def _waitpoints_of(self, execution_id: str) -> list[WaitpointRow]:
        return self._view.rows.matching(WAITPOINTS, "execution_id", execution_id)

    async def pending(self, execution_ids: Sequence[str]) -> Counter[str]:
        """How many waitpoints executions have handed out and do not wait on yet."""
        await self._load_waitpoints(execution_ids)
        return Counter(
            execution_id
            for execution_id in execution_ids
            for waitpoint in self._waitpoints_of(execution_id)
            if waitpoint.state is WaitpointState.PENDING
        )

    # --- what is due by itself -----------------------------------------------------------------

    async def move_due(self, execution_ids: Sequence[str], lapsing: Sequence[Key]) -> int:
        """Timeouts of suspensions, and waitpoints that no suspension came to use; how many."""
        view = self._view
        found = [view.execution(each) for each in execution_ids]
        due = [each for each in found if each is not None and is_timed_out(each, view.at.now)]
        await self.open(due)
        return sum(map(self._expire, due)) + await self._lapse(lapsing)

    def _expire(self, execution: Execution) -> bool:
        """Apply a timeout that is due; whether that did anything."""
        view, key = self._view, execution.execution_id
        if key in self._unreadable:
            view.apply(execution, look_again_later(execution, view.at))
            return False
        command = ExpireSuspension(execution_id=key, signal_id=ids.new_secret_id())
        decision = expire_suspension(execution, self.episode(execution), command, view.at)
        view.apply(execution, decision, command, ends_wait=True)
        return decision.execution is not None

    async def _lapse(self, keys: Sequence[Key]) -> int:
        """Close pending waitpoints whose time is over; how many."""
        view = self._view
        found, _ = await readable(self._tx.peek_rows, WAITPOINTS, keys)
        if not found:
            return 0
        owners = await self._tx.load(sorted({each.execution_id for each in found.values()}))
        for owner in owners.values():
            view.executions.setdefault(owner.execution_id, owner)
        # They may have changed until their executions were locked.
        self._remember((await self._tx.peek_rows(WAITPOINTS, list(found))).values())
        lapsed = 0
        for key, before in found.items():
            execution = view.execution(before.execution_id)
            decision = lapse_waitpoint(execution, view.rows.get(WAITPOINTS, key), view.at)
            lapsed += view.apply(execution, decision, ends_wait=True) is True
        return lapsed
