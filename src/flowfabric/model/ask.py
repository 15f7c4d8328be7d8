"""Questions of budgets: what people are asked when a spender reaches a limit, and their answers.

A question is about one limit of one dimension. However many spenders reach it, they share it. Its
rows are written under the lock of their budget.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from flowfabric.model.budget import Amount
from flowfabric.model.columns import Counter, Instant
from flowfabric.model.record import Record

ASKED: Final = "__budget"  # the category of the signals that tell of answers


class LimitKind(StrEnum):
    """Which limit a question is about."""

    HARD = "hard"
    SOFT = "soft"


class AskState(StrEnum):
    """How a question stands."""

    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    OVER = "over"  # it needs no answer any more: there is room, or no spender waits


class AskRow(Record, frozen=True):
    """The last question about a limit. It stays when it is answered, until the next one."""

    budget_id: str
    dimension: str
    limit_kind: LimitKind
    number: Counter  # rises with every question about this limit
    state: AskState
    asked_at: Instant
    asked_by: str  # the execution that met the limit first
    execution_kind: str  # of that execution
    generation: int  # of the budget, when it was asked
    limit_then: Amount
    used_then: Amount  # used and reserved, when it was asked
    least: Amount  # the smallest amount that a spender of it wants
    wanted: Amount  # by all its spenders together
    spenders: Counter = 0  # how many wait for the answer
    open_since: Instant | None = None  # while it has no answer
    answered_at: Instant | None = None
    answered_by: str = ""
    comment: str = ""
    raise_by: Amount = 0
    is_once: Counter = 0  # 1: each spender got an allowance
    due_at: Instant | None = None  # when the loop looks at it, or tells spenders of the answer

    @property
    def is_open(self) -> bool:
        """Whether it waits for an answer."""
        return self.state is AskState.OPEN


class AskerRow(Record, frozen=True):
    """An execution that waits for an answer, at a waitpoint of its own."""

    budget_id: str
    dimension: str
    limit_kind: LimitKind
    waitpoint_id: str
    execution_id: str
    amount: Amount  # what it wants to reserve
    asked_at: Instant


class AllowanceRow(Record, frozen=True):
    """What one execution may reserve beyond a limit, once. It is used up when a reservation that
    needed it is settled, and ends with the period it was given in."""

    execution_id: str
    budget_id: str
    dimension: str
    limit_kind: LimitKind
    generation: int  # of the budget: a reset ends it
    amount: Amount


# --- answers -----------------------------------------------------------------------------------


class Asked(Record, frozen=True):
    """The question stands. The spender waits at this waitpoint, whose only signal is the answer."""

    waitpoint_id: str
    waitpoint_key: str
    dimension: str
    limit_kind: LimitKind
    number: int
    current_usage: int
    limit: int


class AskAnswered(Record, frozen=True):
    """The answer counts. `limit`: the one in force from now on; `told`: how many spenders it
    reaches."""

    budget_id: str
    dimension: str
    limit_kind: LimitKind
    number: int
    state: AskState
    limit: int
    told: int


class BudgetAsk(Record, frozen=True, kw_only=True):
    """A question as people see it, with the budget as it stands now."""

    budget_id: str
    dimension: str
    limit_kind: LimitKind
    number: int
    state: AskState
    usage: int  # used and reserved
    limit: int
    wanted: int  # by all spenders that wait
    projected: int  # what would be used and reserved if all of them went on
    spenders: int
    execution_id: str  # the spender that asked first
    execution_kind: str
    asked_at: int
    answered_at: int | None
    answered_by: str
    comment: str
    raise_by: int
    is_once: bool
