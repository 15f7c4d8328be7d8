"""The suspensions one transaction touches: loaded under their executions' locks, written together.

Whoever changes a suspension, a waitpoint or a signal holds the execution, so none of these rows
needs a lock of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from flowfabric import ids
from flowfabric.engine.unit.corrupt import readable
from flowfabric.engine.unit.view import View
from flowfabric.errors import Corruption, KeyringEmpty
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Refused
from flowfabric.kernel.wait.condition import keys_of
from flowfabric.kernel.wait.episode import (
    Episode,
    EpisodeDecision,
    closed_waitpoint,
    ended_beside,
)
from flowfabric.kernel.wait.resume import (
    ExpireSuspension,
    ResumeExecution,
    expire_suspension,
    resume_execution,
)
from flowfabric.kernel.wait.signal import DeliverSignal, deliver, refuse_sender
from flowfabric.kernel.wait.suspend import (
    Begun,
    CloseWaitpoint,
    CreateWaitpoint,
    SuspendExecution,
    close_waitpoint,
    create_waitpoint,
    suspend,
)
from flowfabric.kernel.wait.token import current, mint
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace
from flowfabric.model.state import AttemptState
from flowfabric.model.suspension import (
    AlreadyMet,
    ResumeSignal,
    SecretRow,
    SignalRow,
    Suspended,
    SuspensionRow,
    WaitpointDetails,
    WaitpointRow,
    WaitpointState,
)
from flowfabric.stores.base import Transaction
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

SECRETS_MAX = 100
SPOILED_RETRY_MS = 60_000  # when to look again at a timeout that cannot be applied
EPISODE_COMMANDS: Final[frozenset[type[ExecutionCommand[Any]]]] = frozenset(
    (
        SuspendExecution,
        CreateWaitpoint,
        ResumeExecution,
        ExpireSuspension,
        CloseWaitpoint,
        DeliverSignal,
    )
)


class EpisodeBook:
    """Suspensions, waitpoints and signals as one transaction sees and changes them."""

    def __init__(self, tx: Transaction, view: View) -> None:
        self._tx = tx
        self._view = view
        self._secrets: list[SecretRow] = []
        self._loaded: set[str] = set()  # executions whose open episode is here
        self._spoiled: dict[str, str] = {}  # executions whose episode cannot be read, and why
        self._bound: dict[str | None, set[Key]] = {}  # the waitpoints here by their suspension

    # --- loading -------------------------------------------------------------------------------

    async def prepare(self, need: Needs) -> None:
        """Everything the commands will ask for; their executions are held already."""
        tx = self._tx
        self._secrets = await tx.list_rows(SECRETS, None, SECRETS_MAX)
        asked: tuple[tuple[Table[Any], set[Key]], ...] = (
            (WAITPOINTS, need.waitpoints),
            (SIGNALS, need.signals),
            (SIGNAL_KEYS, need.signal_keys),
            (SUSPEND_KEYS, need.suspend_keys),
        )
        for table, keys in asked:
            if keys:
                found = await tx.peek_rows(table, sorted(keys))
                self._take(table, found)
                await self._hold_lapsed(table, found)
        await self.open(self._view.loaded())
        await self._recall(need.suspend_keys)

    def _take(self, table: Table[Any], found: Mapping[Key, Any]) -> None:
        """Remember what was loaded; waitpoints also by their suspensions."""
        self._view.rows.take(table, found)
        if table is WAITPOINTS:
            for key, waitpoint in found.items():
                self._bound.setdefault(waitpoint.suspension_id, set()).add(key)

    async def _hold_lapsed(self, table: Table[Any], found: Mapping[Key, Any]) -> None:
        """A key whose time is over may be swept meanwhile: it is held before it is used again."""
        if table in (SIGNAL_KEYS, SUSPEND_KEYS):
            lapsed = [key for key, row in found.items() if row.due_at <= self._view.at.now]
            if lapsed:
                kept = await self._tx.rows(table, sorted(lapsed))
                self._view.rows.forget(table, [key for key in lapsed if key not in kept])

    async def _recall(self, suspend_keys: Iterable[Key]) -> None:
        """What calls that are repeated did the first time."""
        rows, tx = self._view.rows, self._tx
        seen = [row for key in suspend_keys if (row := rows.get(SUSPEND_KEYS, key)) is not None]
        if not seen:
            return
        keys = sorted((each.execution_id, each.suspension_id) for each in seen)
        rows.take(SUSPENSIONS, await tx.peek_rows(SUSPENSIONS, keys))
        found = await tx.rows_of(WAITPOINTS, sorted({each.execution_id for each in seen}))
        self._take(WAITPOINTS, {WAITPOINTS.key_of(each): each for each in found})
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
        found, spoiled = await readable(self._tx.peek_rows, SUSPENSIONS, keys)
        self._view.rows.take(SUSPENSIONS, found)
        self._spoiled.update((key[0], detail) for key, detail in spoiled.items())
        partial = [key[0] for key in keys if not self._is_whole(key)]
        if partial:
            await self._hold_waitpoints(partial)

    def _is_whole(self, key: Key) -> bool:
        """Whether every waitpoint of an episode is here: one for each key of its condition."""
        row = self._view.rows.get(SUSPENSIONS, key)
        wanted = 0 if row is None else len(keys_of(row.condition))
        return wanted > 0 and len(self._bound.get(key[1], ())) == wanted

    def _episode(self, execution: Execution | None) -> Episode | None:
        if execution is None or execution.suspension_id is None:
            return None
        return self._made(execution.execution_id, execution.suspension_id)

    def _made(self, execution_id: str, suspension_id: str) -> Episode | None:
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

    # --- deciding ------------------------------------------------------------------------------

    def decide(self, command: Any) -> Any:
        """The reply to a command about a suspension; its changes join the batch."""
        found = self._view.executions.get(command.execution_id)
        execution = found if isinstance(found, Execution) else None
        decision = self._decision(execution, command)
        self._apply(execution, command, decision)
        if isinstance(decision.reply, Begun):
            return self._told(command.execution_id, decision.reply)
        return decision.reply

    def _decision(self, execution: Execution | None, command: Any) -> EpisodeDecision:
        at = self._view.at
        if command.execution_id in self._spoiled and not isinstance(command, DeliverSignal):
            return self._unreadable(command)
        match command:
            case SuspendExecution():
                return self._suspend(execution, command)
            case CreateWaitpoint():
                key = current(self._secrets)
                if key is None:
                    return EpisodeDecision(Refused(KeyringEmpty))
                known = self._view.rows.get(WAITPOINTS, (command.waitpoint_id,))
                return create_waitpoint(execution, known, replace(command, token_kid=key.kid), at)
            case ResumeExecution():
                return resume_execution(execution, self._episode(execution), command, at)
            case ExpireSuspension():
                return expire_suspension(execution, self._episode(execution), command, at)
            case CloseWaitpoint():
                waitpoint = self._view.rows.get(WAITPOINTS, (command.waitpoint_id,))
                return close_waitpoint(execution, waitpoint, command, at)
            case _:
                return self._deliver(execution, command)

    def _unreadable(self, command: Any) -> EpisodeDecision:
        return EpisodeDecision(Refused(Corruption, self._spoiled[command.execution_id]))

    def _suspend(self, execution: Execution | None, command: SuspendExecution) -> EpisodeDecision:
        rows, key = self._view.rows, current(self._secrets)
        if key is None:
            return EpisodeDecision(Refused(KeyringEmpty))
        pending = {
            each.waitpoint_id: found
            for each in command.bindings
            if (found := rows.get(WAITPOINTS, (each.waitpoint_id,))) is not None
        }
        buffered = [
            signal
            for each in command.bindings
            if each.is_pending
            for signal in rows.group(SIGNALS, (each.waitpoint_id,))
        ]
        seen = None
        if command.idempotency_key is not None:
            seen = rows.get(SUSPEND_KEYS, (command.execution_id, command.idempotency_key))
            if seen is not None and seen.due_at <= self._view.at.now:
                seen = None
        return suspend(
            execution,
            pending,
            buffered,
            seen,
            None if seen is None else self._made(seen.execution_id, seen.suspension_id),
            replace(command, token_kid=key.kid),
            self._view.at,
        )

    def _deliver(self, execution: Execution | None, command: DeliverSignal) -> EpisodeDecision:
        rows = self._view.rows
        waitpoint = rows.get(WAITPOINTS, (command.waitpoint_id,))
        if refusal := refuse_sender(execution, waitpoint, self._secrets, command, self._view.at):
            return EpisodeDecision(refusal)
        if command.execution_id in self._spoiled:
            return self._unreadable(command)
        seen = None
        if command.idempotency_key is not None:
            seen = rows.get(SIGNAL_KEYS, (command.waitpoint_id, command.idempotency_key))
        episode = self._episode(execution)
        return deliver(execution, waitpoint, episode, seen, command, self._view.at)

    def _apply(self, execution: Execution | None, command: Any, decision: EpisodeDecision) -> None:
        rows, view = self._view.rows, self._view
        if decision.episode is not None:
            rows.put(SUSPENSIONS, decision.episode)
        for waitpoint in decision.waitpoints:
            rows.put(WAITPOINTS, waitpoint)
            key = WAITPOINTS.key_of(waitpoint)
            self._bound.setdefault(waitpoint.suspension_id, set()).add(key)
        if decision.signal is not None:
            rows.put(SIGNALS, decision.signal)
        if decision.signal_key is not None:
            rows.put(SIGNAL_KEYS, decision.signal_key)
        if decision.suspend_key is not None:
            rows.put(SUSPEND_KEYS, decision.suspend_key)
        if execution is not None and decision.execution is not None:
            moved = Decision(None, decision.execution, decision.attempt, decision.events)
            view.apply(execution, moved, command, ends_wait=True)
            if decision.execution.suspension_id is not None:
                self._loaded.add(execution.execution_id)

    def _told(self, execution_id: str, begun: Begun) -> Suspended | AlreadyMet:
        """The answer to a suspend, with the tokens, which are worked out and not stored."""
        key = current(self._secrets)
        assert key is not None  # noqa: S101 - nothing is suspended without one
        details = tuple(
            WaitpointDetails(each.waitpoint_id, each.waitpoint_key, mint(each, key))
            for each in begun.waitpoints
        )
        if not begun.is_met:
            return Suspended(begun.suspension_id, details)
        row = self._view.rows.get(SUSPENSIONS, (execution_id, begun.suspension_id))
        signals = signals_of(row, begun.waitpoints, self._signals(begun.waitpoints))
        return AlreadyMet(begun.suspension_id, details, signals)

    def _signals(self, waitpoints: Sequence[WaitpointRow]) -> list[SignalRow]:
        rows = self._view.rows
        return [
            signal for each in waitpoints for signal in rows.group(SIGNALS, (each.waitpoint_id,))
        ]

    # --- what follows from other transitions ---------------------------------------------------

    async def close_after(self, moves: Sequence[tuple[Execution, Execution]]) -> None:
        """Close what an execution leaves behind when something else ends its wait or its life."""
        woken = [
            before for before, after in moves if before.suspension_id and not after.suspension_id
        ]
        await self.open(woken)
        with_waitpoints = [
            after.execution_id
            for before, after in moves
            if _ends_attempt(before, after) and (before.side_holds or before.suspension_id)
        ]
        for before, after in moves:
            if before.suspension_id and not after.suspension_id:
                self._close(before, after)
        if with_waitpoints:
            await self._close_pending(with_waitpoints)

    def _close(self, before: Execution, after: Execution) -> None:
        episode = self._episode(before)
        if episode is None or not episode.row.is_open:
            return
        row, waitpoints = ended_beside(episode, after, self._view.at)
        self._view.rows.put(SUSPENSIONS, row)
        for waitpoint in waitpoints:
            self._view.rows.put(WAITPOINTS, waitpoint)

    async def pending(self, execution_ids: Sequence[str]) -> Counter[str]:
        """How many waitpoints executions have handed out and do not wait on yet."""
        await self._hold_waitpoints(execution_ids)
        return Counter(
            waitpoint.execution_id
            for execution_id in execution_ids
            for waitpoint in self._view.rows.matching(WAITPOINTS, "execution_id", execution_id)
            if waitpoint.state is WaitpointState.PENDING
        )

    async def _hold_waitpoints(self, execution_ids: Sequence[str]) -> None:
        found = await self._tx.rows_of(WAITPOINTS, execution_ids, is_open=True)
        self._take(WAITPOINTS, {WAITPOINTS.key_of(each): each for each in found})

    async def _close_pending(self, execution_ids: Sequence[str]) -> None:
        rows = self._view.rows
        await self._hold_waitpoints(execution_ids)
        for execution_id in execution_ids:
            for waitpoint in rows.matching(WAITPOINTS, "execution_id", execution_id):
                if waitpoint.state is not WaitpointState.CLOSED:
                    gone = closed_waitpoint(waitpoint, "attempt ended", self._view.at)
                    rows.put(WAITPOINTS, gone)

    # --- what is due by itself -----------------------------------------------------------------

    async def move_due(self, execution_ids: Sequence[str], lapsing: Sequence[Key]) -> int:
        """Timeouts of the suspended that were found due, and waitpoints nobody came to wait on."""
        now = self._view.at.now
        due = [
            each
            for key in execution_ids
            if isinstance(each := self._view.executions.get(key), Execution)
            and each.suspension_id is not None
            and each.blocked_until is not None
            and each.blocked_until <= now
        ]
        await self.open(due)
        moved = 0
        for execution in due:
            if execution.execution_id in self._spoiled:
                later = replace(execution, blocked_until=now + SPOILED_RETRY_MS)
                self._view.apply(execution, Decision(None, later))
                continue
            expiry = ExpireSuspension(
                execution_id=execution.execution_id, signal_id=ids.new_secret_id()
            )
            moved += self.decide(expiry).what != "unchanged"
        return moved + await self.lapse(lapsing, now)

    async def lapse(self, keys: Sequence[Key], now: int) -> int:
        """Close pending waitpoints that no suspension came to use; how many."""
        found, _ = await readable(self._tx.peek_rows, WAITPOINTS, keys)
        if not found:
            return 0
        owners = await self._tx.load(sorted({each.execution_id for each in found.values()}))
        for owner in owners.values():
            self._view.executions.setdefault(owner.execution_id, owner)
        self._take(WAITPOINTS, await self._tx.peek_rows(WAITPOINTS, list(found)))
        lapsed = 0
        for key in found:
            waitpoint = self._view.rows.get(WAITPOINTS, key)
            if waitpoint is None or waitpoint.state is not WaitpointState.PENDING:
                continue
            if waitpoint.due_at is not None and waitpoint.due_at <= now:
                key_of_owner = waitpoint.execution_id
                self.decide(
                    CloseWaitpoint(
                        execution_id=key_of_owner,
                        waitpoint_id=waitpoint.waitpoint_id,
                        reason="never_committed",
                    )
                )
                lapsed += 1
        return lapsed


def _ends_attempt(before: Execution, after: Execution) -> bool:
    """Whether nobody will come to wait on what the attempt handed out."""
    if after.is_terminal or after.attempt_index != before.attempt_index:
        return not before.is_terminal
    state = after.state.attempt_state
    return state is AttemptState.PENDING_RETRY_ATTEMPT and state != before.state.attempt_state


def signals_of(
    row: SuspensionRow | None, waitpoints: Sequence[WaitpointRow], signals: Sequence[SignalRow]
) -> tuple[ResumeSignal, ...]:
    """The signals that met a condition, in the order they came."""
    if row is None:
        return ()
    keys = {each.waitpoint_id: each.waitpoint_key for each in waitpoints}
    by_id = {each.signal_id: each for each in signals}
    found = []
    for contribution in row.progress:
        signal = by_id.get(contribution.signal_id)
        if signal is not None:
            found.append(
                ResumeSignal(
                    signal.signal_id,
                    signal.signal_name,
                    signal.signal_category,
                    signal.source_type,
                    signal.source_identity,
                    signal.correlation_id,
                    signal.accepted_at,
                    keys.get(signal.waitpoint_id, contribution.waitpoint_key),
                    signal.payload,
                    signal.payload_encoding,
                )
            )
    return tuple(found)
