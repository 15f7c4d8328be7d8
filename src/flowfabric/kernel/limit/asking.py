"""A budget that asks: its questions, the spenders that wait for answers, and what answers do.

A question is about one limit of one dimension, and shared by all spenders that reach it. An answer
raises the limit, or gives each spender an allowance, or refuses them; the loop tells the spenders.
Everything here happens under the lock of the budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from flowfabric import limits
from flowfabric.errors import AskOver, InvalidInput, NotFound, NothingToAsk
from flowfabric.kernel.command import Command, ExecutionCommand, Needs
from flowfabric.kernel.decision import AnyEvent, Decision, Moment, Refused, refuse
from flowfabric.kernel.execution.fence import not_found, refuse_unless_owner
from flowfabric.kernel.journal.checkpoint import Checkpoint
from flowfabric.kernel.limit.budget import (
    AskKey,
    Budget,
    budget_event,
    limit_that_asks,
    no_budget,
    no_room,
    refuse_unknown,
)
from flowfabric.kernel.limit.budget_policy import moved_limits, renewed
from flowfabric.kernel.wait.signal import SYSTEM, DeliverSignal
from flowfabric.kernel.wait.waitpoint import CreateWaitpoint, create_waitpoint
from flowfabric.model.ask import (
    ASKED,
    AskAnswered,
    Asked,
    AskerRow,
    AskRow,
    AskState,
    LimitKind,
)
from flowfabric.model.budget import AMOUNT_MAX, AskFirst
from flowfabric.model.event import BudgetEventType, OperatorEvent, OperatorEventType
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.record import replace, to_json
from flowfabric.model.suspension import SecretRow, WaitpointRow, WaitpointState

LOOK_EVERY_MS: Final = 60_000  # how often the spenders of an open question are looked at
_LOOK_AGAIN_MS: Final = 50  # at spenders that another transaction has locked


class AskBudget(ExecutionCommand[Asked], frozen=True, kw_only=True):
    """The owner was told to ask before it reserves these amounts."""

    budget_id: str
    fence: Fence
    amounts: Mapping[str, int]
    waitpoint_id: str
    entries: Checkpoint | None = None  # added to the journal with it

    def needs(self, need: Needs) -> None:
        """The execution, the budget, and what a new waitpoint needs."""
        need.executions.add(self.execution_id)
        need.waits = need.catalog = need.is_limited = True
        need.budgets.add(self.budget_id)
        need.allowances.add((self.execution_id, self.budget_id))
        if self.entries is not None:
            self.entries.needs(need)


class AnswerAsk(Command[AskAnswered], frozen=True, kw_only=True):
    """A person answers. `execution_id`: only this spender gets an answer, the others wait on."""

    budget_id: str
    dimension: str
    limit_kind: LimitKind
    number: int | None
    approves: bool
    raise_by: int = 0
    is_once: bool = False
    execution_id: str | None = None
    comment: str = ""

    def needs(self, need: Needs) -> None:
        """The budget; the spender, if one is named."""
        need.catalog = need.is_limited = True
        need.budgets.add(self.budget_id)
        if self.execution_id is not None:
            need.executions.add(self.execution_id)
            need.waits = True
            need.allowances.add((self.execution_id, self.budget_id))

    @property
    def state(self) -> AskState:
        """The question with this answer."""
        return AskState.APPROVED if self.approves else AskState.REJECTED


# --- asking --------------------------------------------------------------------------------------


def ask(
    execution: Execution | None,
    budget: Budget,
    allowances: Mapping[AskKey, int],
    key: SecretRow | None,
    command: AskBudget,
    at: Moment,
) -> Decision[Asked]:
    """A question, or the one that is open already, and a waitpoint where its answer is told.

    `key` signs the token of the waitpoint.
    """
    refusal = refuse_unless_owner(execution, command.execution_id, command.fence, at.now)
    refusal = refusal or refuse_unknown(budget)
    if refusal is not None or execution is None:
        return Decision(refusal or not_found(command.execution_id))
    first = no_room(budget, command.amounts, allowances)
    if not isinstance(first, AskFirst):
        return refuse(NothingToAsk, f"budget {command.budget_id}: reserve again")
    kind = LimitKind.SOFT if first.is_soft else LimitKind.HARD
    known = budget.asks.get((kind, first.dimension))
    if known is not None and not known.is_open and known.due_at is not None:
        detail = f"budget {command.budget_id}: the last answer is being told; reserve again"
        return refuse(NothingToAsk, detail)
    create = CreateWaitpoint(
        execution_id=command.execution_id,
        fence=command.fence,
        waitpoint_id=command.waitpoint_id,
        waitpoint_key=f"{ASKED}:{command.waitpoint_id}",
        expires_in_ms=limits.DURATION_MS_MAX,
        entries=command.entries,
    )
    made = create_waitpoint(execution, None, key, create, at)
    if isinstance(waitpoint := made.reply, Refused):
        return Decision(waitpoint)
    amount = command.amounts[first.dimension]
    row, events = _joined(execution, budget, known, first, amount, at)
    asker = AskerRow(
        command.budget_id,
        first.dimension,
        kind,
        command.waitpoint_id,
        command.execution_id,
        amount,
        at.now,
    )
    told = Asked(
        waitpoint.waitpoint_id,
        waitpoint.waitpoint_key,
        first.dimension,
        kind,
        row.number,
        first.current_usage,
        first.limit,
    )
    saves = (*made.saves, with_ask(budget, row), asker)
    return Decision(told, made.execution, events=events, saves=saves)


def _joined(
    execution: Execution,
    budget: Budget,
    known: AskRow | None,
    first: AskFirst,
    amount: int,
    at: Moment,
) -> tuple[AskRow, tuple[AnyEvent, ...]]:
    """The question with one more spender."""
    if known is not None and known.is_open:
        return replace(
            known,
            least=min(known.least, amount),
            wanted=min(AMOUNT_MAX, known.wanted + amount),
            spenders=known.spenders + 1,
        ), ()
    row = AskRow(
        budget.row.budget_id,
        first.dimension,
        LimitKind.SOFT if first.is_soft else LimitKind.HARD,
        1 if known is None else known.number + 1,
        AskState.OPEN,
        at.now,
        execution.execution_id,
        execution.execution_kind,
        budget.row.generation,
        first.limit,
        first.current_usage,
        least=amount,
        wanted=amount,
        spenders=1,
        open_since=at.now,
        due_at=at.now + LOOK_EVERY_MS,
    )
    event = budget_event(
        row.budget_id,
        BudgetEventType.ASKED,
        at.now,
        dimension=row.dimension,
        limit_kind=row.limit_kind.value,
        number=row.number,
        current_usage=first.current_usage,
        limit=first.limit,
        wanted=amount,
        execution_id=execution.execution_id,
    )
    return row, (event,)


def with_ask(budget: Budget, row: AskRow) -> Budget:
    """The budget with a question as it stands now."""
    return replace(budget, asks={**budget.asks, (row.limit_kind, row.dimension): row})


# --- answering -----------------------------------------------------------------------------------


def answer(budget: Budget, command: AnswerAsk, at: Moment) -> Decision[AskAnswered]:
    """The answer for all spenders of a question; the loop tells them. The same again changes
    nothing."""
    row = _open_ask(budget, command)
    if isinstance(row, Refused):
        return Decision(row)
    if not row.is_open:
        return Decision(_answered(budget, row, row.spenders))
    policy = budget.row.policy
    before = limit_that_asks(policy, row.limit_kind, row.dimension)
    after = before + command.raise_by
    if after > AMOUNT_MAX:
        detail = "raise_by: the limit would be over 2^63-1"
        return refuse(InvalidInput, detail, field="raise_by")
    over = closed_ask(row, command.state, at, by=command.actor, comment=command.comment)
    over = replace(over, raise_by=command.raise_by, is_once=int(command.is_once))
    changed, events = with_ask(budget, over), _told_people(over, command, before, after, at)
    if command.raise_by and policy is not None:
        name = "hard_limits" if row.limit_kind is LimitKind.HARD else "soft_limits"
        raised = dict(sorted({**getattr(policy, name), row.dimension: after}.items()))
        new = replace(policy, **{name: raised})
        events = (*events, *moved_limits(row.budget_id, policy, new, at))
        changed = replace(changed, row=renewed(budget.row, new, at))
    return Decision(_answered(changed, over, over.spenders), events=events, saves=(changed,))


def answer_one(
    budget: Budget, askers: Sequence[AskerRow], command: AnswerAsk, at: Moment
) -> Decision[AskAnswered]:
    """The answer for one spender. `askers`: its places among those of the question; they are told
    with it."""
    row = _open_ask(budget, command)
    if isinstance(row, Refused):
        return Decision(row)
    if not row.is_open or not askers:
        detail = f"execution {command.execution_id}: asks nothing about {_named(row)}"
        return refuse(NotFound, detail, entity="spender")
    left = without(row, askers)
    if not left.spenders:
        left = closed_ask(left, command.state, at, by=command.actor, comment=command.comment)
        left = replace(left, is_once=int(command.is_once), due_at=None)
    limit = limit_that_asks(budget.row.policy, row.limit_kind, row.dimension)
    events = _told_people(row, command, limit, limit, at)
    told = replace(_answered(budget, left, len(askers)), state=command.state)
    return Decision(told, events=events, saves=(with_ask(budget, left),))


def without(row: AskRow, askers: Sequence[AskerRow]) -> AskRow:
    """A question without some of its spenders."""
    gone = sum(each.amount for each in askers)
    count = max(0, row.spenders - len(askers))
    return replace(row, spenders=count, wanted=max(0, row.wanted - gone) if count else 0)


def _open_ask(budget: Budget, command: AnswerAsk) -> AskRow | Refused:
    """The question that is answered; one that was answered in the very same way is there too."""
    if budget.row.policy is None:
        return no_budget(command.budget_id)
    row = budget.asks.get((command.limit_kind, command.dimension))
    if row is None:
        detail = (
            f"budget {command.budget_id}: it asks nothing about the "
            f"{command.limit_kind.value} limit of {command.dimension}"
        )
        return Refused(NotFound, detail, {"entity": "ask"})
    said = (command.state, command.raise_by, int(command.is_once), command.actor)
    is_again = said == (row.state, row.raise_by, row.is_once, row.answered_by)
    is_meant = command.number is None or command.number == row.number
    if is_meant and (row.is_open or (is_again and command.execution_id is None)):
        return row
    how = f"is {row.state.value}" if is_meant else f"was followed by number {row.number}"
    by = f" by {row.answered_by}" if is_meant and row.answered_by else ""
    fields = {"number": row.number, "state": row.state.value}
    return Refused(AskOver, f"{_named(row)} {how}{by}", fields)


def _named(row: AskRow) -> str:
    return (
        f"question {row.number} of budget {row.budget_id} about the {row.limit_kind.value} limit "
        f"of {row.dimension}"
    )


def _answered(budget: Budget, row: AskRow, told: int) -> AskAnswered:
    limit = limit_that_asks(budget.row.policy, row.limit_kind, row.dimension)
    return AskAnswered(
        row.budget_id, row.dimension, row.limit_kind, row.number, row.state, limit, told
    )


def _told_people(
    row: AskRow, command: AnswerAsk, before: int, after: int, at: Moment
) -> tuple[AnyEvent, ...]:
    """The answer in the audit trail, and for subscribers."""
    details: dict[str, Any] = {
        "dimension": row.dimension,
        "limit_kind": row.limit_kind.value,
        "number": row.number,
        "answer": command.state.value,
        "before": before,
        "after": after,
        "is_once": command.is_once,
    }
    if command.execution_id is not None:
        details["execution_id"] = command.execution_id
    if command.comment:
        details["comment"] = command.comment
    kind = OperatorEventType.BUDGET_ASK_ANSWERED
    audit = OperatorEvent(row.budget_id, kind, details, "", {}, at.now)
    return (audit, budget_event(row.budget_id, BudgetEventType.ANSWERED, at.now, **details))


def closed_ask(
    row: AskRow, state: AskState, at: Moment, *, by: str = "", comment: str = ""
) -> AskRow:
    """A question that needs no answer any more. The loop tells its spenders at once."""
    return replace(
        row,
        state=state,
        open_since=None,
        answered_at=at.now,
        answered_by=by,
        comment=comment,
        due_at=at.now,
    )


# --- what happens to open questions --------------------------------------------------------------


def without_vain_asks(budget: Budget, at: Moment) -> Budget:
    """The budget after a change: a question is over where its smallest spender has room now, or
    where the limit asks no more. Its spenders reserve again."""
    over = [each for each in budget.asks.values() if each.is_open and _is_vain(budget, each)]
    for row in over:
        budget = with_ask(budget, closed_ask(row, AskState.OVER, at))
    return budget


def _is_vain(budget: Budget, row: AskRow) -> bool:
    limit = limit_that_asks(budget.row.policy, row.limit_kind, row.dimension)
    return not limit or budget.committed(row.dimension) + row.least <= limit


def looked_at(
    row: AskRow, gone: Sequence[AskerRow], alive: Sequence[AskerRow], at: Moment, *, is_all: bool
) -> AskRow:
    """An open question without the spenders that wait no more. `is_all`: no other ones are left."""
    left = without(row, gone)
    if is_all:
        amounts = [each.amount for each in alive]
        left = replace(left, spenders=len(amounts), wanted=min(AMOUNT_MAX, sum(amounts)))
        if not amounts:
            return replace(closed_ask(left, AskState.OVER, at), due_at=None)
        left = replace(left, least=min(amounts))
    return replace(left, due_at=at.now + LOOK_EVERY_MS)


def is_waiting(waitpoint: WaitpointRow | None) -> bool:
    """Whether a spender still waits for an answer, or is about to."""
    return waitpoint is not None and waitpoint.state is not WaitpointState.CLOSED


def told_all(row: AskRow, at: Moment, *, is_all: bool) -> AskRow:
    """An answered question after some spenders were told."""
    return replace(row, due_at=None if is_all else at.now + _LOOK_AGAIN_MS)


def notice(
    asker: AskerRow, state: AskState, signal_id: str, *, by: str, comment: str
) -> DeliverSignal:
    """The signal that tells a spender of the answer."""
    return DeliverSignal(
        execution_id=asker.execution_id,
        waitpoint_id=asker.waitpoint_id,
        presented=None,
        signal_id=signal_id,
        signal_name=state.value,
        signal_category=ASKED,
        source_type=SYSTEM,
        source_identity=asker.budget_id,
        correlation_id="",
        payload=to_json({"by": by, "comment": comment}),
        payload_encoding="json",
        created_at=None,
        idempotency_key=None,
        dedup_ttl_ms=0,
        resume_delay_ms=0,
    )
