"""What waits for people: rows of the list, and the words of a wait on its form."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import quote, urlencode

from flowfabric.api.waits import WaitInfo
from flowfabric.errors import InvalidInput
from flowfabric.model.approvals import ApprovalGiven, WaitAnswer, WaitShown
from flowfabric.model.ask import ASKED, BudgetAsk
from flowfabric.model.record import Record, from_json
from flowfabric.model.results import WaitLine
from flowfabric.model.suspension import ResumeCause, SignalEffect, WaitpointState
from flowfabric.model.words import AT_TIMEOUT, TimeoutBehavior
from flowfabric.server.routes.values import path_id

PATH: Final = "/ui/approvals"
WAIT_PATH: Final = f"{PATH}/{{execution_id}}/{{waitpoint_key}}"
ASK_PATH: Final = f"{PATH}/budget/{{budget_id}}/{{dimension}}/{{limit_kind}}"
APPROVED: Final = "approved"
REJECTED: Final = "rejected"
UNNAMED: Final = "operator"  # where a caller has proved no name of its own
TABS: Final = (("you", "For you"), ("all", "All"), ("decided", "Decided"))
_SAID_CHARS: Final = 300
_EFFECTS: Final = {
    SignalEffect.RESUMED: "the run goes on",
    SignalEffect.APPENDED: "it counts; the wait goes on",
    SignalEffect.DUPLICATE: "it adds nothing new",
    SignalEffect.MATCHER_FAILED: "the wait is for another answer",
    SignalEffect.NOT_IN_CONDITION: "nothing waits for it there",
    SignalEffect.BUFFERED: "it is kept until the run waits for it",
}
_CAUSES: Final = {
    ResumeCause.SIGNAL: "It was decided",
    ResumeCause.OPERATOR: "An operator ended the wait",
    ResumeCause.TIMEOUT: "Its time is over",
    ResumeCause.CANCELLED: "The run was cancelled",
    ResumeCause.EXPIRED: "The run has expired",
}


# --- the list ------------------------------------------------------------------------------------


class Gate(Record, frozen=True, kw_only=True):
    """One waitpoint of a wait: who has answered there, how many are missing."""

    key: str
    have: int
    need: int
    answered: tuple[tuple[str, str], ...]  # names and what they said
    is_mine: bool  # the caller has answered
    address: str

    @property
    def missing(self) -> str:
        """How many are missing; the wait does not say who they could be."""
        return missing(self.need - self.have, has_some=self.have > 0)


class WaitRow(Record, frozen=True, kw_only=True):
    """One run that waits for people. Where a budget asks for it, it has no gate: the question is
    answered, and not the run."""

    execution_id: str
    kind: str
    lane: str
    namespace: str
    since: int
    until: int | None
    then: str
    said: str  # what the run said last
    gates: tuple[Gate, ...]

    @property
    def is_open(self) -> bool:
        """Whether the caller has still something to answer."""
        return any(not gate.is_mine and gate.have < gate.need for gate in self.gates)


class AskRow(Record, frozen=True, kw_only=True):
    """One question of a budget, open or answered."""

    ask: BudgetAsk
    address: str

    @property
    def parts(self) -> tuple[tuple[float, str, str], ...]:
        """The bar: what is used, and what is wanted, of the larger of limit and projection."""
        ask = self.ask
        whole = max(ask.limit, ask.projected, 1)
        used = min(100.0, round(100 * ask.usage / whole, 1))
        wanted = min(100.0 - used, round(100 * (ask.projected - ask.usage) / whole, 1))
        return ((used, "used", f"{ask.usage} used"), (wanted, "warn", f"{ask.wanted} wanted"))


class GivenRow(Record, frozen=True, kw_only=True):
    """One decision that was made."""

    given: ApprovalGiven
    effect: str
    address: str | None


class Approvals(Record, frozen=True, kw_only=True):
    """The page. `count`: what waits in all, counted to `count_max`."""

    title: str = "Approvals"
    tab: str
    tabs: tuple[tuple[str, str, str], ...]  # word, label, address
    rows: tuple[WaitRow, ...] = ()
    asks: tuple[AskRow, ...] = ()
    given: tuple[GivenRow, ...] = ()
    answered: tuple[AskRow, ...] = ()
    count: int = 0
    count_max: int = 0
    is_oldest_first: bool = True
    other_order: str = ""
    next: str | None = None
    first: str | None = None
    namespaces: tuple[tuple[str, str, bool], ...] = ()  # name, address, whether it is shown

    @property
    def sentence(self) -> str:
        """The answer to the question of the page."""
        if not self.count:
            return "Nothing waits for people"
        more = "or more " if self.count >= self.count_max else ""
        return f"{self.count} {more}{'waits' if self.count == 1 else 'wait'} for people"

    @property
    def is_empty(self) -> bool:
        """Whether the tab has nothing."""
        return not (self.rows or self.asks or self.given or self.answered)


def missing(several: int, *, has_some: bool) -> str:
    """How many approvals are missing, in words."""
    if several <= 0:
        return "complete"
    return f"{several} more" if has_some else f"{several} approval{'s' * (several != 1)}"


def own_names(actor: str | None) -> frozenset[str]:
    """The sources under which a caller answers."""
    return frozenset((actor or UNNAMED,))


def wait_row(wait: WaitInfo, own: frozenset[str]) -> WaitRow:
    """One run of the list."""
    keys = dict.fromkeys(key for line in wait.lines for key in line.waitpoint_keys)
    own_keys = (key for key in keys if not key.startswith(f"{ASKED}:"))
    return WaitRow(
        execution_id=wait.execution_id,
        kind=wait.execution_kind,
        lane=wait.lane_id,
        namespace=wait.namespace,
        since=wait.since,
        until=wait.timeout_at,
        then=then_of(wait.timeout_at, wait.at_timeout),
        said=shortened(wait.progress_message or "", _SAID_CHARS),
        gates=tuple(_gate(wait, key, own) for key in own_keys),
    )


def _gate(wait: WaitInfo, key: str, own: frozenset[str]) -> Gate:
    have, need = progress_at(wait.lines, key)
    answers = [each for each in wait.signals if each.waitpoint_key == key]
    return Gate(
        key=key,
        have=have,
        need=need,
        answered=tuple((name_of(each.source_identity), each.signal_name) for each in answers),
        is_mine=any(each.source_identity in own for each in answers),
        address=address_of(wait.execution_id, key),
    )


def progress_at(lines: Sequence[WaitLine], key: str) -> tuple[int, int]:
    """How many approvals a key has, and needs; else how many signals."""
    here = [line for line in lines if key in line.waitpoint_keys]
    chosen = next((line for line in here if line.signal_name == APPROVED), None)
    line = chosen or next((line for line in here if line.signal_name != REJECTED), None)
    return (0, 0) if line is None else (line.have, line.need)


def then_of(until: int | None, then: TimeoutBehavior | None) -> str:
    """What happens when nobody answers in time."""
    return "" if until is None or then is None else AT_TIMEOUT[then]


def ask_row(ask: BudgetAsk) -> AskRow:
    """One question of the list."""
    return AskRow(ask=ask, address=ask_address(ask))


def given_row(given: ApprovalGiven) -> GivenRow:
    """One decision of the list."""
    key = given.waitpoint_key
    return GivenRow(
        given=given,
        effect=effect_in_words(given.effect),
        address=None if key is None else address_of(given.execution_id, key),
    )


def effect_in_words(effect: str) -> str:
    """What a signal has done."""
    return _EFFECTS[SignalEffect(effect)] if effect in tuple(SignalEffect) else effect


def address_of(execution_id: str, key: str) -> str:
    """The form on which one wait is decided."""
    return f"{PATH}/{path_id(execution_id)}/{segment(key)}"


def ask_address(ask: BudgetAsk) -> str:
    """The form on which one question of a budget is answered."""
    parts = (ask.budget_id, ask.dimension, ask.limit_kind.value)
    return f"{PATH}/budget/{'/'.join(map(segment, parts))}"


def segment(text: str) -> str:
    """A name as one segment of a path."""
    return quote(text, safe="")


def list_address(**pairs: str | None) -> str:
    """The list with these choices."""
    query = urlencode({name: value for name, value in pairs.items() if value})
    return f"{PATH}?{query}" if query else PATH


# --- one wait ------------------------------------------------------------------------------------


class Answered(Record, frozen=True, kw_only=True):
    """What one person has said."""

    name: str
    decision: str
    at: int
    said: str
    counts: bool


def answered(answer: WaitAnswer) -> Answered:
    """An answer as it is shown."""
    return Answered(
        name=name_of(answer.source_identity, answer.source_type),
        decision=answer.signal_name,
        at=answer.accepted_at,
        said=shortened(comment_in(answer.said), _SAID_CHARS),
        counts=answer.counts,
    )


def name_of(source: str, kind: str = "") -> str:
    """A source as people know it."""
    return source or kind or "a sender without a name"


def comment_in(said: str) -> str:
    """The comment in a payload; the fields of another one; else all of it as it is."""
    try:
        value = from_json(said, object, field="payload")
    except InvalidInput:
        return said
    if not isinstance(value, dict):
        return said
    if isinstance(value.get("comment"), str) and len(value) == 1:
        return str(value["comment"])
    return "\n".join(f"{name}: {_plain(part)}" for name, part in value.items())


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def shortened(text: str, most: int) -> str:
    """The beginning of a text."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def decisions_of(names: Iterable[str], *, first: str = "") -> tuple[tuple[str, str], ...]:
    """The answers that can be given, each with the word on its button."""
    known = tuple(names) or (APPROVED, REJECTED)
    ordered = sorted(known, key=lambda each: (each != first, each != APPROVED, each == REJECTED))
    words = {APPROVED: "Approve", REJECTED: "Reject"}
    return tuple((each, words.get(each, each)) for each in ordered)


def outlook(lines: Sequence[WaitLine], key: str, decisions: Iterable[str]) -> tuple[str, ...]:
    """What each answer leads to, in a sentence."""
    told = []
    for name in decisions:
        have, need = _needed(lines, key, name)
        elsewhere = [
            line
            for line in lines
            if key not in line.waitpoint_keys and line.have < line.need and line.waitpoint_keys
        ]
        told.append(_sentence(name, need - have, bool(elsewhere)))
    return tuple(each for each in told if each)


def _needed(lines: Sequence[WaitLine], key: str, name: str) -> tuple[int, int]:
    here = [line for line in lines if key in line.waitpoint_keys]
    fitting = [line for line in here if line.signal_name in (name, None)]
    return (fitting[0].have, fitting[0].need) if fitting else (0, 0)


def _sentence(name: str, left: int, has_others: bool) -> str:
    doing = {APPROVED: "If you approve", REJECTED: "If you reject"}.get(name, f"With {name}")
    if left <= 0:
        return ""
    if left > 1:
        return f"{doing}, it still waits for {left - 1} more."
    if has_others:
        return f"{doing}, this part is decided; the rest of the wait may go on."
    if name == REJECTED:
        return f"{doing}, the run goes on at once and is told that it was rejected."
    return f"{doing}, the run goes on at once."


def ended_in_words(shown: WaitShown) -> str:
    """How a wait has ended, and by whom."""
    if shown.state is not WaitpointState.CLOSED:
        return ""
    cause = "It takes no more answers" if shown.cause is None else _CAUSES[shown.cause]
    if shown.cause is ResumeCause.OPERATOR and shown.actor:
        return f"{cause}: {shown.actor}."
    if shown.cause is ResumeCause.SIGNAL:
        counted = [answered(each) for each in shown.answers if each.counts]
        return f"{cause}: {', '.join(f'{each.name} {each.decision}' for each in counted)}."
    return f"{cause}."


def cause_in_words(cause: ResumeCause | None) -> str:
    """The same for one who may not know by whom."""
    return "It takes no more answers" if cause is None else _CAUSES[cause]


def preview_of(text: str, size: int) -> str:
    """What the run was given, laid out if it is whole JSON."""
    if len(text.encode()) < size:
        return text
    try:
        value = from_json(text, object, field="input")
    except InvalidInput:
        return text
    return json.dumps(value, indent=2, ensure_ascii=False)
