"""Questions of budgets: asked by spenders, listed for people, answered by them."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric import ids, limits
from flowfabric.api import asks as api
from flowfabric.api.page import Page, at_name
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.new_entries import checkpoint_command
from flowfabric.engine.operations.performing import answers, commands
from flowfabric.errors import InvalidInput
from flowfabric.kernel.limit.asking import AnswerAsk, AskBudget
from flowfabric.kernel.limit.budget import Budget, limit_that_asks
from flowfabric.model.ask import AskRow, BudgetAsk, LimitKind
from flowfabric.model.budget import AMOUNT_MAX
from flowfabric.model.checks import (
    check_flag,
    check_instant,
    check_integer,
    check_list,
    check_name,
    check_text,
)
from flowfabric.model.limit_checks import check_amounts, check_word
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import ASKERS_OF, ASKS_OPEN, Search, by_key
from flowfabric.stores.tables import ASKS, BUDGETS, USAGE, Key

_FIELD = "cursor"
_NUMBER_MAX = (1 << 30) - 1


def _at_ask(budget: object, dimension: object, kind: object) -> tuple[str, str, str]:
    return (*at_name(budget), *at_name(dimension), *at_name(kind))


def _at_open(
    since: object, budget: object, dimension: object, kind: object
) -> tuple[int, str, str, str]:
    return check_instant(since, field=_FIELD), *_at_ask(budget, dimension, kind)


_ALL = Listing("list_budget_asks", _at_ask)
_OPEN = Listing("list_budget_asks_open", _at_open)


@commands(api.AskBudget)
def ask_budget(machine: Machine, request: api.AskBudget) -> AskBudget:
    """Ask by the owner of a lease."""
    handle = machine.check_handle(request.handle)
    several = check_list(request.entries, field="entries")
    amounts = check_amounts(request.amounts)
    if not amounts:
        raise InvalidInput("amounts: name what is to be reserved", field="amounts")
    return AskBudget(
        execution_id=handle.execution_id,
        fence=handle.fence,
        budget_id=check_name(request.budget_id, field="budget_id"),
        amounts=amounts,
        waitpoint_id=ids.new_secret_id(),
        entries=checkpoint_command(handle, several, None, machine.config) if several else None,
    )


@commands(api.AnswerBudgetAsk)
def answer_budget_ask(machine: Machine, request: api.AnswerBudgetAsk) -> AnswerAsk:
    """Answer by a person."""
    approves = check_flag(request.approve, field="approve")
    once = check_flag(request.once, field="once")
    raise_by = check_integer(request.raise_by, field="raise_by", least=0, most=AMOUNT_MAX)
    execution_id = request.execution_id
    if not approves and (once or raise_by):
        field = "once" if once else "raise_by"
        raise InvalidInput(f"{field}: a rejection gives nothing", field=field)
    if approves and bool(raise_by) is once:
        detail = "raise_by: approve either by so much, or once"
        raise InvalidInput(detail, field="raise_by")
    if execution_id is not None and raise_by:
        detail = "raise_by: a limit is raised for all spenders, not for one; answer it once"
        raise InvalidInput(detail, field="raise_by")
    number = request.number
    if number is not None:
        number = check_integer(number, field="number", least=1, most=_NUMBER_MAX)
    return AnswerAsk(
        budget_id=check_name(request.budget_id, field="budget_id"),
        dimension=check_name(request.dimension, field="dimension"),
        limit_kind=check_word(request.limit_kind, LimitKind, field="limit_kind"),
        number=number,
        approves=approves,
        raise_by=raise_by,
        is_once=once,
        execution_id=None if execution_id is None else machine.check_id(execution_id),
        comment=check_text(
            request.comment,
            field="comment",
            max_bytes=limits.REASON_BYTES,
            empty=True,
            control=True,
        ),
    )


@answers(api.ListBudgetAsks)
async def list_budget_asks(machine: Machine, request: api.ListBudgetAsks) -> Page[BudgetAsk]:
    """One page of questions."""
    limit, only_open = check_limit(request.limit), check_flag(request.only_open, field="only_open")
    budget_id, execution_id = request.budget_id, request.execution_id
    if budget_id is not None:
        budget_id = check_name(budget_id, field="budget_id")
    if execution_id is not None:
        execution_id = machine.check_id(execution_id)
    is_by_time = only_open and budget_id is None and execution_id is None
    after: Key | None = (_OPEN if is_by_time else _ALL).place(request.cursor)

    async def find(reader: Reader) -> list[AskRow]:
        if is_by_time:
            page = Search(ASKS_OPEN, after=after, limit=limit + 1, skips_corrupt=True)
            return await reader.search(page)
        if execution_id is not None:
            found = await asks_of(reader, execution_id)
        elif budget_id is not None:
            of_budget = Search(
                by_key(ASKS), ((budget_id,),), limit=2 * limits.DIMENSIONS_MAX, skips_corrupt=True
            )
            found = await reader.search(of_budget)
        else:
            page = Search(by_key(ASKS), after=after, limit=limit + 1, skips_corrupt=True)
            return await reader.search(page)
        wanted = [
            each
            for each in found
            if (each.is_open or not only_open)
            and budget_id in (None, each.budget_id)
            and (after is None or ASKS.key_of(each) > after)
        ]
        return sorted(wanted, key=ASKS.key_of)[: limit + 1]

    async def work(reader: Reader) -> tuple[list[AskRow], dict[str, Budget]]:
        rows = await find(reader)
        return rows, await _budgets(reader, rows)

    rows, budgets = await machine.read(work)

    def show(row: AskRow) -> BudgetAsk:
        return shown(row, budgets.get(row.budget_id))

    if is_by_time:
        return _OPEN.page(
            rows,
            limit,
            place_of=lambda row: (row.open_since or 0, *_place(row)),
            show=show,
        )
    return _ALL.page(rows, limit, place_of=_place, show=show)


async def asks_of(reader: Reader, execution_id: str) -> list[AskRow]:
    """The questions whose answers an execution waits for."""
    askers = await reader.search(Search(ASKERS_OF, ((execution_id,),), limit=limits.WAITPOINTS_MAX))
    keys = sorted({(each.budget_id, each.dimension, each.limit_kind.value) for each in askers})
    return list((await reader.peek_rows(ASKS, keys)).values()) if keys else []


def _place(row: AskRow) -> tuple[str, str, str]:
    return row.budget_id, row.dimension, row.limit_kind.value


async def _budgets(reader: Reader, rows: Sequence[AskRow]) -> dict[str, Budget]:
    keys = [(name,) for name in sorted({each.budget_id for each in rows})]
    if not keys:
        return {}
    found = await reader.peek_rows(BUDGETS, keys)
    usage = await reader.peek_rows(USAGE, keys)
    return {
        name: Budget(
            row, {each.dimension: each for each in usage.values() if each.budget_id == name}
        )
        for (name,), row in found.items()
    }


def shown(row: AskRow, budget: Budget | None) -> BudgetAsk:
    """A question with its budget as it stands now."""
    usage = row.used_then if budget is None else budget.committed(row.dimension)
    limit = row.limit_then
    if budget is not None:
        policy = budget.row.policy
        limit = limit_that_asks(policy, row.limit_kind, row.dimension) or limit
    wanted = row.wanted if row.is_open else 0
    return BudgetAsk(
        budget_id=row.budget_id,
        dimension=row.dimension,
        limit_kind=row.limit_kind,
        number=row.number,
        state=row.state,
        usage=usage,
        limit=limit,
        wanted=wanted,
        projected=min(AMOUNT_MAX, usage + wanted),
        spenders=row.spenders if row.is_open else 0,
        execution_id=row.asked_by,
        execution_kind=row.execution_kind,
        asked_at=row.asked_at,
        answered_at=row.answered_at,
        answered_by=row.answered_by,
        comment=row.comment,
        raise_by=row.raise_by,
        is_once=bool(row.is_once),
    )
