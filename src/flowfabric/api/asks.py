"""A budget that asks: its questions and their answers; see docs/guides/budgets-that-ask.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, UnsafeRequest, operation
from flowfabric.api.page import Page
from flowfabric.api.refusals import BY_HANDLE, JOURNALED
from flowfabric.api.words import LimitKindGiven
from flowfabric.errors import AskOver, InvalidCursor, KeyringEmpty, NotFound, NothingToAsk
from flowfabric.model.ask import AskAnswered, Asked, BudgetAsk, LimitKind
from flowfabric.model.handle import Handle
from flowfabric.model.journal import NewEntry


@operation(
    "ask_budget",
    Kind.WRITE,
    Scope.WORKER,
    errors=(*BY_HANDLE, *JOURNALED, KeyringEmpty, NothingToAsk),
)
class AskBudget(Request[Asked], frozen=True, kw_only=True):
    """Ask people for room, after `reserve_budget` has answered AskFirst to these amounts.

    All spenders that reach a limit share its question. The reply names a pending waitpoint
    to suspend on; its only signal is the answer, after which it is to be reserved again.
    NothingToAsk where there is room by now. `entries`: added to the journal in the same
    transaction; the last one refers to the waitpoint, which then outlives its attempt.
    """

    handle: Handle
    budget_id: str
    amounts: Mapping[str, int]
    entries: Sequence[NewEntry] = ()


@operation("answer_budget_ask", Kind.WRITE, Scope.APPROVE, errors=(NotFound, AskOver))
class AnswerBudgetAsk(UnsafeRequest[AskAnswered], frozen=True, kw_only=True):
    """Answer a question. An approval raises the limit by `raise_by`, or gives every spender
    that waits an allowance for what it asked for, `once`.

    A rejection raises BudgetExceeded in their handlers. With an `execution_id` only this
    spender gets the answer, which cannot raise the limit then. A `number` guards against
    answering a later question. The same answer again changes nothing; another one is AskOver.
    """

    budget_id: str
    dimension: str
    approve: bool
    raise_by: int = 0
    once: bool = False
    limit_kind: LimitKindGiven = LimitKind.HARD
    number: int | None = None
    execution_id: str | None = None
    comment: str = ""


@operation(
    "list_budget_asks", Kind.READ, Scope.READ, errors=(InvalidCursor,), also=(Scope.APPROVE,)
)
class ListBudgetAsks(Request[Page[BudgetAsk]], frozen=True, kw_only=True):
    """Questions without an answer, oldest first; of one budget or one execution by name.

    Without `only_open` also the last question about each limit that was answered, by budget and
    dimension.
    """

    budget_id: str | None = None
    execution_id: str | None = None
    only_open: bool = True
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT
