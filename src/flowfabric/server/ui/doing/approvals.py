"""Deciding what waits for people: one wait, one question of a budget, a link for somebody else."""

from __future__ import annotations

from typing import Any, Final

from flowfabric.api.asks import AnswerBudgetAsk
from flowfabric.api.operation import Scope
from flowfabric.api.waits import DeliverApprovalSignal, ReadWaitpointToken
from flowfabric.errors import (
    AskOver,
    InvalidInput,
    InvalidPayload,
    PayloadTooLarge,
    WaitpointClosed,
)
from flowfabric.model.approvals import WaitShown
from flowfabric.model.ask import AskAnswered
from flowfabric.model.budget import AMOUNT_MAX
from flowfabric.model.links import Address, make_link
from flowfabric.model.record import replace, to_json
from flowfabric.model.suspension import SignalDuplicate
from flowfabric.server.access.names import name_of
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.routes.asking import ask
from flowfabric.server.routes.links import origin_of
from flowfabric.server.routes.route import Reach, Size
from flowfabric.server.service import Service
from flowfabric.server.ui.forms import Done, Form
from flowfabric.server.ui.pages import Action, Page
from flowfabric.server.ui.reading.approvals import ASK, WAIT, question, shown_wait
from flowfabric.server.ui.views.answers import Entry, filled, with_problem
from flowfabric.server.ui.views.approvals import (
    APPROVED,
    ASK_PATH,
    PATH,
    REJECTED,
    UNNAMED,
    WAIT_PATH,
    effect_in_words,
)
from flowfabric.server.ui.views.deciding import WaitForm, wait_form, with_fault
from flowfabric.server.ui.views.forms import field_of
from flowfabric.server.ui.waiting import forget

_PAST: Final = {APPROVED: "You approved", REJECTED: "You rejected"}
_WRONG: Final = 422
_OVER: Final = 409


# --- a wait --------------------------------------------------------------------------------------


async def decide(service: Service, call: Call, form: Form) -> Done | Answer:
    """Deliver what was decided; a form with a fault is shown again with what was typed."""
    shown = await shown_wait(service, call)
    view = replace(
        wait_form(shown, call.caller, first=form.text("decision")),
        comment=form.raw("comment"),
        by=form.text("by"),
    )
    if form.text("waitpoint", shown.waitpoint_id) != shown.waitpoint_id:
        news = "The wait that you saw is over. The run waits under the same key again: see below."
        fresh = replace(wait_form(shown, call.caller), news=news)
        return await _again(service, call, fresh, _OVER)
    entry, payload = _payload(shown, form)
    if more := form.text("more"):
        return await _again(service, call, with_fault(view, _looked(shown, form, more)), 200)
    name = form.text("decision")
    if name not in dict(view.decisions):
        if not view.is_open or any(each.decision == name for each in view.mine):
            return await _late(service, call, view)
        raise InvalidInput("decision: is none of those on the page", field="decision")
    if entry is not None and payload is None:
        return await _again(service, call, with_fault(view, entry), _WRONG)
    return await _delivered(service, call, view, entry, payload, name)


def _payload(shown: WaitShown, form: Form) -> tuple[Entry | None, bytes | None]:
    """What is sent with the decision: what the wait asks for, else a comment."""
    field = field_of(shown.payload_type)
    if field is not None:
        read = filled(field, form.pairs)
        return read.entry, read.payload
    comment = form.text("comment")
    return None, to_json({"comment": comment}) if comment else None


def _looked(shown: WaitShown, form: Form, more: str) -> Entry | None:
    field = field_of(shown.payload_type)
    return None if field is None else filled(field, form.pairs, more).entry


async def _delivered(
    service: Service,
    call: Call,
    view: WaitForm,
    entry: Entry | None,
    payload: bytes | None,
    name: str,
) -> Done | Answer:
    source = _source(call, view.by)
    request = DeliverApprovalSignal(
        execution_id=view.wait.execution_id,
        waitpoint_id=view.wait.waitpoint_id,
        signal_name=name,
        idempotency_suffix=source,
        actor=source,
        comment=payload,
    )
    try:
        told = await ask(service, call, request)
    except WaitpointClosed:
        fresh = wait_form(await shown_wait(service, call), call.caller)
        return await _late(service, call, fresh)
    except (InvalidPayload, PayloadTooLarge) as error:
        if entry is None:
            return await _again(service, call, with_fault(view, None, problem=error.detail), _WRONG)
        return await _again(
            service, call, with_fault(view, with_problem(entry, error.detail)), _WRONG
        )
    forget(service)
    past = _PAST.get(name, f"You answered {name}")
    what = f"{view.wait.waitpoint_key} of {view.wait.execution_kind}"
    if isinstance(told, SignalDuplicate):
        return Done(text=f"{past} {what} before; nothing has changed.", to=PATH)
    return Done(text=f"{past} {what}: {effect_in_words(told.effect)}.", to=PATH)


def _source(call: Call, by: str) -> str:
    """In whose name it is done: the caller's own, unless its token speaks for others."""
    if call.caller.actor is None:
        return by or UNNAMED
    return name_of(call.caller, by or None, "by")


async def _late(service: Service, call: Call, view: WaitForm) -> Answer:
    """It was decided meanwhile, or by the caller before."""
    if view.is_open:
        said = ", ".join(each.decision for each in view.mine)
        news = f"You have answered already: {said}. Nothing has changed."
    else:
        news = f"Meanwhile: {view.ended}"
    return await _again(service, call, replace(view, news=news), _OVER)


async def _again(service: Service, call: Call, view: Any, status: int) -> Answer:
    return await _page(service, call, WAIT, view, status)


async def _page(service: Service, call: Call, page: Page, view: Any, status: int) -> Answer:
    from flowfabric.server.ui.rendering import whole  # a program without a server needs none

    return await whole(service, call, page, view, status=status)


# --- a link --------------------------------------------------------------------------------------


async def link(service: Service, call: Call, form: Form) -> Answer:
    """Make a link and show it once; that it was made is in the audit trail."""
    shown = await shown_wait(service, call)
    to = form.text("to") or None
    request = ReadWaitpointToken(
        execution_id=shown.execution_id, waitpoint_id=shown.waitpoint_id, recipient=to
    )
    token = await ask(service, call, request)
    view = wait_form(shown, call.caller)
    if token is None:
        return await _late(service, _at_wait(call), view)
    text = make_link(Address(shown.execution_id, shown.waitpoint_id, token))
    url = f"{origin_of(service, call)}/w/{text}"
    return await _again(service, _at_wait(call), replace(view, link=url, link_to=to or ""), 200)


def _at_wait(call: Call) -> Call:
    """The same call as if it were for the page of the wait, whose forms and live parts it has."""
    path = call.scope["path"].removesuffix("/link")
    raw = (call.scope.get("raw_path") or b"").removesuffix(b"/link")
    there = Call({**call.scope, "path": path, "raw_path": raw}, call.receive, call.request_id)
    there.caller, there.route, there.params = call.caller, call.route, call.params
    return there


# --- a question of a budget ----------------------------------------------------------------------


async def answer(service: Service, call: Call, form: Form) -> Done | Answer:
    """Answer the question that was seen, and no later one."""
    view = await question(service, call)
    ask_seen = view.row.ask
    view = replace(
        view,
        how=form.text("how", "once"),
        raise_by=form.text("raise_by"),
        comment=form.text("comment"),
        by=form.text("by"),
    )
    number = form.number("number", least=1, most=AMOUNT_MAX)
    if not view.is_open or number != ask_seen.number:
        news = view.ended if not view.is_open else "Another question came meanwhile; it is below."
        return await _page(service, call, ASK, replace(view, news=f"Meanwhile: {news}"), _OVER)
    approves = form.text("decision") == APPROVED
    if not approves and form.text("decision") != REJECTED:
        raise InvalidInput("decision: is none of those on the page", field="decision")
    try:
        raise_by = _raise_by(form) if approves and view.how == "raise" else 0
        told = await ask(service, call, _request(call, view, number or 0, approves, raise_by))
    except AskOver:
        fresh = await question(service, call)
        news = f"Meanwhile: {fresh.ended if not fresh.is_open else 'it was answered otherwise.'}"
        return await _page(service, call, ASK, replace(fresh, news=news), _OVER)
    except InvalidInput as error:
        return await _page(service, call, ASK, replace(view, problem=error.detail), _WRONG)
    forget(service)
    return Done(text=_told(told, view.how if approves else "no"), to=PATH)


def _raise_by(form: Form) -> int:
    found = form.number("raise_by", least=1, most=AMOUNT_MAX)
    if found is None:
        raise InvalidInput("raise_by: say by how much", field="raise_by")
    return found


def _request(call: Call, view: Any, number: int, approves: bool, raise_by: int) -> AnswerBudgetAsk:
    ask_seen = view.row.ask
    return AnswerBudgetAsk(
        budget_id=ask_seen.budget_id,
        dimension=ask_seen.dimension,
        limit_kind=ask_seen.limit_kind,
        approve=approves,
        raise_by=raise_by,
        once=approves and not raise_by,
        number=number,
        comment=view.comment,
        actor=_source(call, view.by),
    )


def _told(told: AskAnswered, how: str) -> str:
    is_one = told.told == 1
    runs = "1 run" if is_one else f"{told.told} runs"
    what = f"{told.dimension} of {told.budget_id}"
    if how == "no":
        return f"You rejected more {what}; {runs} {'is' if is_one else 'are'} told no."
    if how == "raise":
        tries = "tries" if is_one else "try"
        return f"You raised {what}: the limit is {told.limit} now, and {runs} {tries} again."
    return f"You approved {what} once; {runs} {'goes' if is_one else 'go'} on beyond the limit."


PAGES: Final[tuple[Page, ...]] = ()
ACTIONS: Final = (
    Action(
        path=WAIT_PATH,
        title="Decide what a run waits for",
        act=decide,
        scope=Scope.APPROVE,
        asks=("show_wait", "deliver_approval_signal"),
        size=Size.SIGNAL,
    ),
    Action(
        path=f"{WAIT_PATH}/link",
        title="Make a link of a wait, to hand out",
        act=link,
        scope=Scope.ADMIN,
        asks=("show_wait", "read_waitpoint_token"),
    ),
    Action(
        path=ASK_PATH,
        title="Answer the question of a budget",
        act=answer,
        scope=Scope.APPROVE,
        reach=Reach.NAMED,
        asks=("list_budget_asks", "answer_budget_ask"),
    ),
)
