"""Commands about the questions of budgets."""

from __future__ import annotations

from flowfabric.engine.unit.commands import journal
from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.errors import NothingToAsk
from flowfabric.kernel.decision import Decision, Refused
from flowfabric.kernel.limit import asking
from flowfabric.kernel.limit.budget import limit_that_asks
from flowfabric.model.ask import AskAnswered, Asked, LimitKind


@handles(asking.AskBudget)
async def ask_budget(unit: Unit, command: asking.AskBudget) -> Asked | Refused:
    """By the owner of the lease."""
    if refusal := unit.waits.refuse_unreadable(command.execution_id):
        return refusal
    decision = _asked(unit, command)
    if isinstance(decision, Refused):
        return decision
    if command.entries is not None:
        refers_to = None if isinstance(decision.reply, Refused) else command.waitpoint_id
        journaled = await journal.decided(unit, command.entries, refers_to)
        if not isinstance(journaled.reply, Refused) and not journaled.saves:
            return await _asked_before(unit, command)  # a repeated call
        if isinstance(decision.reply, Refused):
            return decision.reply
        recorded = journal.taken(unit, command.entries, journaled)
        if isinstance(recorded, Refused):
            return recorded
        if recorded.outcomes:  # which has changed the execution and the budget
            decision = _asked(unit, command)
            if isinstance(decision, Refused):
                return decision
    execution = unit.view.execution(command.execution_id)
    return unit.view.apply(execution, decision, command, ends_wait=True)


def _asked(unit: Unit, command: asking.AskBudget) -> Decision[Asked] | Refused:
    budgets, execution = unit.limits.budgets, unit.view.execution(command.execution_id)
    budget = budgets.get(command.budget_id)
    if isinstance(budget, Refused):
        return budget
    allowances = budgets.free_allowances(command.execution_id, command.budget_id)
    key = unit.waits.signing_key
    return asking.ask(execution, budget, allowances, key, command, unit.view.at)


async def _asked_before(unit: Unit, command: asking.AskBudget) -> Asked | Refused:
    """What the first call with these entries was told, as far as it is still known."""
    if command.entries is None:
        return Refused(NothingToAsk, "reserve again")
    place = await journal.recorded_waitpoint(unit, command.entries)
    if isinstance(place, Refused):
        return place
    askers = await unit.limits.asks.of_execution(command.execution_id)
    own = next((each for each in askers if each.waitpoint_id == place.waitpoint_id), None)
    dimension, kind = min(command.amounts), LimitKind.HARD
    if own is not None:
        dimension, kind = own.dimension, own.limit_kind
    budget, number, used, limit = unit.limits.budgets.get(command.budget_id), 0, 0, 0
    if not isinstance(budget, Refused):
        row = budget.asks.get((kind, dimension))
        number, used = 0 if row is None else row.number, budget.committed(dimension)
        limit = limit_that_asks(budget.row.policy, kind, dimension)
    return Asked(place.waitpoint_id, place.waitpoint_key, dimension, kind, number, used, limit)


@handles(asking.AnswerAsk)
async def answer_ask(unit: Unit, command: asking.AnswerAsk) -> AskAnswered | Refused:
    """By a person."""
    budgets, asks, key = unit.limits.budgets, unit.limits.asks, command.execution_id
    await budgets.load_asks([command.budget_id])
    budget = budgets.get(command.budget_id)
    if isinstance(budget, Refused):
        return budget
    if key is None:
        return unit.view.apply(None, asking.answer(budget, command, unit.view.at), command)
    if refusal := unit.waits.refuse_unreadable(key):
        return refusal
    own = [
        each
        for each in await asks.of_execution(key)
        if each.budget_id == command.budget_id
        and (each.dimension, each.limit_kind) == (command.dimension, command.limit_kind)
    ]
    decision = asking.answer_one(budget, own, command, unit.view.at)
    reply = unit.view.apply(None, decision, command)
    if not isinstance(reply, Refused):
        await asks.tell_one(
            own,
            command.state,
            is_once=command.is_once,
            by=command.actor,
            comment=command.comment,
        )
    return reply
