"""Commands about suspensions, waitpoints and signals."""

from __future__ import annotations

from flowfabric.engine.unit.commands import journal
from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.operate import Release
from flowfabric.kernel.wait import resume, signal, suspend, waitpoint, watch
from flowfabric.model.results import Moved, Unblocked
from flowfabric.model.suspension import Resumed, WaitpointRow
from flowfabric.model.watch import Watching


@handles(suspend.SuspendExecution)
async def suspend_execution(
    unit: Unit, command: suspend.SuspendExecution
) -> suspend.Begun | Refused:
    """By the owner of the lease."""
    execution, waits = unit.view.execution(command.execution_id), unit.waits
    if refusal := waits.refuse_unreadable(command.execution_id):
        return refusal
    decision = suspend.suspend(execution, waits.facts_for(command), command, unit.view.at)
    if command.entries is None or not decision.saves:  # refused, or a repeated call
        return unit.view.apply(execution, decision, command, ends_wait=True)
    journaled = await journal.decided(unit, command.entries, command.suspension_id)
    recorded = journal.taken(unit, command.entries, journaled)
    if isinstance(recorded, Refused):
        return recorded
    if recorded.outcomes:  # which has changed the execution, or even ended it
        execution = unit.view.execution(command.execution_id)
        decision = suspend.suspend(execution, waits.facts_for(command), command, unit.view.at)
    return unit.view.apply(execution, decision, command, ends_wait=True)


@handles(waitpoint.CreateWaitpoint)
async def create_waitpoint(
    unit: Unit, command: waitpoint.CreateWaitpoint
) -> WaitpointRow | Refused:
    """By the owner of the lease."""
    execution, waits = unit.view.execution(command.execution_id), unit.waits
    if refusal := waits.refuse_unreadable(command.execution_id):
        return refusal
    known = waits.waitpoint(command.waitpoint_id)
    decision = waitpoint.create_waitpoint(
        execution, known, waits.signing_key, command, unit.view.at
    )
    if command.entries is not None and not isinstance(decision.reply, Refused):
        journaled = await journal.decided(unit, command.entries, command.waitpoint_id)
        if isinstance(journaled.reply, Refused):
            return journaled.reply
        if not journaled.saves:  # a repeated call: its entry names the waitpoint that it made
            return await journal.recorded_waitpoint(unit, command.entries)
        recorded = journal.taken(unit, command.entries, journaled)
        if isinstance(recorded, Refused):
            return recorded
        if recorded.outcomes:  # which has changed the execution, or even ended it
            execution = unit.view.execution(command.execution_id)
            decision = waitpoint.create_waitpoint(
                execution, known, waits.signing_key, command, unit.view.at
            )
    return unit.view.apply(execution, decision, command, ends_wait=True)


@handles(watch.WatchExecutions)
async def watch_executions(unit: Unit, command: watch.WatchExecutions) -> Watching | Refused:
    """By the owner of the lease."""
    view, key = unit.view, command.execution_id
    execution = view.execution(key)
    others = {each: view.execution(each) for each in command.watched_ids}
    decided = watch.watch(execution, others, unit.waits.signing_key, command, view.at)
    if not isinstance(decided, watch.Watch):
        return decided
    open_ids = tuple(row.execution_id for row in decided.rows)
    if (path := await unit.watches.cycle(open_ids, key)) is not None:
        return watch.refuse_wait_cycle(path)
    view.apply(execution, decided.made, command, ends_wait=True)
    for before, after in decided.marked:
        view.put(before, after)
    await unit.watches.replace(key, decided.rows)
    return Watching(open_ids, command.waitpoint_id)


@handles(waitpoint.CloseWaitpoint)
async def close_waitpoint(unit: Unit, command: waitpoint.CloseWaitpoint) -> WaitpointRow | Refused:
    """By its maker, or by an operator."""
    execution, waits = unit.view.execution(command.execution_id), unit.waits
    if refusal := waits.refuse_unreadable(command.execution_id):
        return refusal
    known = waits.waitpoint(command.waitpoint_id)
    decision = waitpoint.close_waitpoint(execution, known, command, unit.view.at)
    return unit.view.apply(execution, decision, command, ends_wait=True)


@handles(resume.ResumeExecution)
async def resume_execution(unit: Unit, command: resume.ResumeExecution) -> Resumed | Refused:
    """By an operator."""
    execution, waits = unit.view.execution(command.execution_id), unit.waits
    if refusal := waits.refuse_unreadable(command.execution_id):
        return refusal
    episode = waits.episode(execution)
    decision = resume.resume_execution(execution, episode, command, unit.view.at)
    return unit.view.apply(execution, decision, command, ends_wait=True)


@handles(Release)
async def release(unit: Unit, command: Release) -> Unblocked | Refused:
    """By an operator: what waits because its code did not fit its journal goes on with the code
    there is now; what an operator holds goes back to waiting."""
    execution, waits = unit.view.execution(command.execution_id), unit.waits
    episode = None if execution is None else waits.episode(execution)
    if execution is None or episode is None or not episode.row.is_held_by_policy:
        return unit.view.decide(command)
    if refusal := waits.refuse_unreadable(command.execution_id):
        return refusal
    decision = resume.release(execution, episode, command, unit.view.at)
    return unit.view.apply(execution, decision, command, ends_wait=True)


@handles(resume.ExpireSuspension)
async def expire_suspension(unit: Unit, command: resume.ExpireSuspension) -> Moved | Refused:
    """By its timeout."""
    execution, waits = unit.view.execution(command.execution_id), unit.waits
    if refusal := waits.refuse_unreadable(command.execution_id):
        return refusal
    episode = waits.episode(execution)
    decision = resume.expire_suspension(execution, episode, command, unit.view.at)
    return unit.view.apply(execution, decision, command, ends_wait=True)


@handles(signal.DeliverSignal)
async def deliver_signal(unit: Unit, command: signal.DeliverSignal) -> signal.Delivered | Refused:
    """By a sender with the token, or by an operator."""
    execution, waits, at = unit.view.execution(command.execution_id), unit.waits, unit.view.at
    known = waits.waitpoint(command.waitpoint_id)
    # Only a sender with the right may learn that something cannot be read.
    if refusal := signal.refuse_sender(execution, known, waits.secrets, command, at):
        return refusal
    if refusal := waits.refuse_unreadable(command.execution_id):
        return refusal
    episode, seen = waits.episode(execution), waits.seen(command)
    decision = signal.deliver(execution, known, episode, seen, command, at)
    return unit.view.apply(execution, decision, command, ends_wait=True)
