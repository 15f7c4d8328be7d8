"""Commands applied in order over one evolving view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowfabric.engine.unit.answers import Repeatable, first_answer
from flowfabric.engine.unit.commands import asking as asking
from flowfabric.engine.unit.commands import bulk as bulk
from flowfabric.engine.unit.commands import claims as claims
from flowfabric.engine.unit.commands import dead as dead
from flowfabric.engine.unit.commands import due as due
from flowfabric.engine.unit.commands import flow_repairs as flow_repairs
from flowfabric.engine.unit.commands import flows as flows
from flowfabric.engine.unit.commands import journal as journal
from flowfabric.engine.unit.commands import keys as keys
from flowfabric.engine.unit.commands import lanes as lanes
from flowfabric.engine.unit.commands import limits as limits
from flowfabric.engine.unit.commands import lines as lines
from flowfabric.engine.unit.commands import mail as mail
from flowfabric.engine.unit.commands import repairs as repairs
from flowfabric.engine.unit.commands import retries as retries
from flowfabric.engine.unit.commands import schedules as schedules
from flowfabric.engine.unit.commands import starts as starts
from flowfabric.engine.unit.commands import streams as streams
from flowfabric.engine.unit.commands import submits as submits
from flowfabric.engine.unit.commands import undo as undo
from flowfabric.engine.unit.commands import uniques as uniques
from flowfabric.engine.unit.commands import waits as waits
from flowfabric.engine.unit.commands import workers as workers
from flowfabric.engine.unit.handlers import HANDLERS
from flowfabric.engine.unit.unit import Unit
from flowfabric.engine.unit.view import View
from flowfabric.kernel.command import Command
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.kernel.order.unique import CreateUnique
from flowfabric.model.bounds import UNBOUNDED
from flowfabric.model.execution import Execution
from flowfabric.model.ties import UNTIED
from flowfabric.stores.tables import UNIQUES


async def fold(unit: Unit, commands: Sequence[Command[object]]) -> list[object]:
    """The reply to each command; everything is saved but what the view still holds.

    A batch gives what its commands would give one after the other. What follows from a decision
    (a member set free, a slot offered again) is put off as long as no later command could tell.
    """
    view, owes = unit.view, False
    replies: list[object] = []
    command: Any
    for turn, command in enumerate(commands):
        view.turn = turn
        handler = HANDLERS.get(type(command))
        reply: object
        if handler is None:
            if owes and _may_be_moved(view, command):
                await _follow_up(unit, turn)
            reply = view.decide(command)
            owes = owes or view.owes
        else:
            if owes and not _is_first(view, command):
                await _follow_up(unit, turn)
            reply = await handler(unit, command)
            owes = unit.owes
        if type(reply) is Refused and isinstance(command, Repeatable):
            reply = await first_answer(unit.tx, view, command) or reply
        replies.append(reply)
    if owes:
        await _follow_up(unit, None)
    return replies


async def _follow_up(unit: Unit, turn: int | None) -> None:
    """What follows from earlier commands is told of none; then comes the turn of the next."""
    unit.view.turn = None
    await unit.follow_up()
    unit.view.turn = turn


def _is_first(view: View, command: object) -> bool:
    """Whether a submit meets no other under its unique key: nothing else decides about it."""
    if not isinstance(command, CreateUnique):
        return False
    return view.rows.get(UNIQUES, command.unique_key) is None


def _may_be_moved(view: View, command: Any) -> bool:
    """Whether what still follows could change the execution a command is about."""
    if isinstance(command, CreateExecution):
        return False  # it is not there yet, and nothing else decides about it
    execution = view.executions.get(command.execution_id)
    if execution is None:
        return True
    if not isinstance(execution, Execution):
        return False
    if execution.flow_id is not None and view.cascading:
        return True  # a replay may give it another life
    bounded = execution.bounds is not UNBOUNDED or execution.flow_id is not None
    return execution.is_runnable and (bounded or execution.ties is not UNTIED)
