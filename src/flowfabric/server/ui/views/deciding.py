"""The forms on which people decide: of one wait, and of one question of a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowfabric.api.operation import Scope
from flowfabric.model.approvals import WaitShown
from flowfabric.model.ask import AskState, BudgetAsk
from flowfabric.model.record import Record, replace
from flowfabric.model.suspension import WaitpointState
from flowfabric.server.ui.views.answers import Entry, blank
from flowfabric.server.ui.views.approvals import (
    Answered,
    AskRow,
    answered,
    ask_address,
    ask_row,
    decisions_of,
    ended_in_words,
    missing,
    outlook,
    own_names,
    preview_of,
    progress_at,
    then_of,
)
from flowfabric.server.ui.views.approvals import address_of as wait_address
from flowfabric.server.ui.views.forms import field_of

if TYPE_CHECKING:
    from flowfabric.server.access.caller import Caller


class WaitForm(Record, frozen=True, kw_only=True):
    """One wait, and the form to decide it while it is open.

    `decisions`: the answers that the caller can still give, each with its word; `mine`: those that
    it has given; `news`: what has happened meanwhile; `link`: one that was made just now.
    """

    title: str
    wait: WaitShown
    address: str
    progress: str
    then: str
    answers: tuple[Answered, ...]
    mine: tuple[Answered, ...]
    ended: str
    decisions: tuple[tuple[str, str], ...]
    outlook: tuple[str, ...]
    entry: Entry | None
    input: str
    asks_name: bool
    may_link: bool
    comment: str = ""
    by: str = ""
    chosen: str = ""
    problem: str = ""
    news: str = ""
    link: str = ""
    link_to: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it takes answers."""
        return self.wait.state is not WaitpointState.CLOSED

    @property
    def is_pending(self) -> bool:
        """Whether nothing waits on it yet."""
        return self.wait.state is WaitpointState.PENDING


def wait_form(shown: WaitShown, caller: Caller, *, first: str = "") -> WaitForm:
    """The form as it is shown first. `first`: the answer that was chosen in the list."""
    own, have_need = own_names(caller.actor), progress_at(shown.lines, shown.waitpoint_key)
    mine = tuple(
        answered(each)
        for each in shown.answers
        if each.source_identity in own and shown.state is not WaitpointState.PENDING
    )
    given = {each.decision for each in mine}
    decisions = decisions_of(shown.signal_names, first=first)
    left = tuple(each for each in decisions if each[0] not in given)
    may = Scope.APPROVE in caller.scopes
    field = field_of(shown.payload_type)
    have, need = have_need
    lacking = missing(need - have, has_some=have > 0)
    return WaitForm(
        title=f"{shown.execution_kind}: {shown.waitpoint_key}",
        wait=shown,
        address=wait_address(shown.execution_id, shown.waitpoint_key),
        progress=f"{have} of {need}, {lacking}" if need > 1 else "",
        then=then_of(shown.timeout_at, shown.at_timeout),
        answers=tuple(answered(each) for each in shown.answers),
        mine=mine,
        ended=ended_in_words(shown),
        decisions=left if may and shown.state is not WaitpointState.CLOSED else (),
        outlook=outlook(shown.lines, shown.waitpoint_key, [name for name, _ in left]),
        entry=None if field is None else blank(field),
        input=preview_of(shown.input_start, shown.input_bytes),
        asks_name=caller.speaks_for,
        may_link=Scope.ADMIN in caller.scopes and shown.state is not WaitpointState.CLOSED,
        chosen=first,
    )


class AskForm(Record, frozen=True, kw_only=True):
    """One question of a budget, and the form to answer it while it is open."""

    title: str
    row: AskRow
    address: str
    is_open: bool
    may_answer: bool
    asks_name: bool
    suggested: int  # a raise that would let all that wait go on
    how: str = "once"
    raise_by: str = ""
    comment: str = ""
    by: str = ""
    problem: str = ""
    news: str = ""

    @property
    def ended(self) -> str:
        """How the question was answered, and by whom."""
        ask = self.row.ask
        if ask.state is AskState.OVER:
            return "It needs no answer any more: there is room, or no run waits."
        by = f" by {ask.answered_by}" if ask.answered_by else ""
        if ask.state is AskState.REJECTED:
            return f"Rejected{by}."
        if ask.is_once:
            return f"Approved once{by}."
        return f"Approved{by}: the limit was raised by {ask.raise_by}."


def ask_form(ask: BudgetAsk, caller: Caller, *, may_answer: bool) -> AskForm:
    """The form as it is shown first."""
    suggested = max(1, ask.projected - ask.limit)
    return AskForm(
        title=f"Budget {ask.budget_id}: {ask.dimension}",
        row=ask_row(ask),
        address=ask_address(ask),
        is_open=ask.state is AskState.OPEN,
        may_answer=may_answer and Scope.APPROVE in caller.scopes,
        asks_name=caller.speaks_for,
        suggested=suggested,
        raise_by=str(suggested),
    )


def with_fault(form: WaitForm, entry: Entry | None, **more: str) -> WaitForm:
    """The same form as it was filled in, with what is wrong."""
    return replace(form, entry=entry, **more)
