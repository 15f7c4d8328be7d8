"""Conditions against a second evaluator that reads the whole log and knows no shortcuts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowfabric.errors import InvalidInput, WaitpointClosed
from flowfabric.kernel.decision import Moment, Refused
from flowfabric.kernel.wait.condition import (
    contributes,
    is_met,
    keys_of,
    names_for,
    tokens_of,
)
from flowfabric.kernel.wait.episode import (
    Episode,
)
from flowfabric.kernel.wait.signal import DeliverSignal, deliver
from flowfabric.kernel.wait.suspend import (
    Facts,
    SuspendExecution,
    suspend,
)
from flowfabric.kernel.wait.waitpoint import Binding
from flowfabric.model.condition_checks import DEPTH_MAX, NODES_MAX, check_condition
from flowfabric.model.execution import Execution
from flowfabric.model.suspension import (
    AllOf,
    AnyOf,
    Contribution,
    Count,
    CountKind,
    OperatorOnly,
    ReasonCode,
    RequestedBy,
    ResumeCondition,
    SignalAccepted,
    SignalEffect,
    Single,
    SuspensionRow,
    TimeoutOnly,
    WaitpointRow,
    WaitpointState,
)
from flowfabric.model.words import TimeoutBehavior
from tests.support.builders import EXECUTION_ID, NOW, SECRET, fence_of, leased
from tests.support.decisions import saved, the

KEYS = ("a", "b", "c")
NAMES = ("ok", "no")
SOURCES = (("user", "ann"), ("user", "bob"), ("bot", "ann"), ("", ""))

key = st.sampled_from(KEYS)
name = st.sampled_from((None, None, *NAMES))


@st.composite
def counts(draw: st.DrawFn) -> Count:
    kind = draw(st.sampled_from(CountKind))
    keys = tuple(draw(st.lists(key, min_size=1, max_size=3, unique=True)))
    most = len(keys) if kind is CountKind.DISTINCT_WAITPOINTS else 4
    return Count(draw(st.integers(1, most)), kind, keys, draw(name))


leaves: st.SearchStrategy[ResumeCondition] = st.one_of(st.builds(Single, key, name), counts())


def groups(inner: st.SearchStrategy[ResumeCondition]) -> st.SearchStrategy[ResumeCondition]:
    members = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.one_of(st.builds(AllOf, members), st.builds(AnyOf, members))


def trees(depth: int) -> st.SearchStrategy[ResumeCondition]:
    """No deeper than allowed."""
    return leaves if depth == 0 else st.one_of(leaves, groups(trees(depth - 1)))


conditions = trees(DEPTH_MAX - 1)


@st.composite
def signal_logs(draw: st.DrawFn, most: int = 9) -> list[Contribution]:
    """Signals with ids of their own, in the order of arrival."""
    log = []
    for number in range(draw(st.integers(0, most))):
        kind, identity = draw(st.sampled_from(SOURCES))
        log.append(
            Contribution(draw(key), f"s{number}", draw(st.sampled_from(NAMES)), kind, identity)
        )
    return log


# --- the second evaluator ----------------------------------------------------------------------


def holds(condition: Any, log: Sequence[Contribution]) -> bool:
    """Written independently of the code: every node looks at every signal."""
    if isinstance(condition, AllOf):
        return not [each for each in condition.members if not holds(each, log)]
    if isinstance(condition, AnyOf):
        return len([each for each in condition.members if holds(each, log)]) > 0
    if isinstance(condition, Single):
        wanted = [s for s in log if s.waitpoint_key == condition.waitpoint_key]
        if condition.signal_name is not None:
            wanted = [s for s in wanted if s.signal_name == condition.signal_name]
        return wanted != []
    if isinstance(condition, Count):
        fits = [s for s in log if condition.waitpoints.count(s.waitpoint_key)]
        if condition.signal_name is not None:
            fits = [s for s in fits if s.signal_name == condition.signal_name]
        features: list[Any] = []
        for signal in fits:
            feature: Any = {
                "distinct_waitpoints": signal.waitpoint_key,
                "distinct_signals": signal.signal_id,
                "distinct_sources": [signal.source_type, signal.source_identity],
            }[condition.count_kind.value]
            if feature not in features:
                features.append(feature)
        return not len(features) < condition.n
    return False


def progress_of(condition: ResumeCondition, log: Sequence[Contribution]) -> list[Contribution]:
    """What an episode keeps of a log."""
    kept: list[Contribution] = []
    for signal in log:
        if contributes(condition, kept, signal):
            kept.append(signal)
    return kept


# --- the pure evaluator ------------------------------------------------------------------------


@given(condition=conditions, log=signal_logs())
def test_it_agrees_with_the_second_evaluator(
    condition: ResumeCondition, log: list[Contribution]
) -> None:
    assert check_condition(condition) is condition
    assert is_met(condition, log) == holds(condition, log)


@given(condition=conditions, log=signal_logs(), data=st.data())
def test_neither_order_nor_repetition_matters(
    condition: ResumeCondition, log: list[Contribution], data: st.DataObject
) -> None:
    repeated = [*log, *(data.draw(st.lists(st.sampled_from(log))) if log else [])]
    shuffled = data.draw(st.permutations(repeated))
    assert is_met(condition, shuffled) == is_met(condition, log)


@given(condition=conditions, log=signal_logs())
def test_more_signals_never_take_an_answer_back(
    condition: ResumeCondition, log: list[Contribution]
) -> None:
    answers = [is_met(condition, log[:size]) for size in range(len(log) + 1)]
    assert answers == sorted(answers)


@given(condition=conditions, log=signal_logs(), data=st.data())
def test_contributions_say_as_much_as_the_whole_log(
    condition: ResumeCondition, log: list[Contribution], data: st.DataObject
) -> None:
    log = data.draw(st.permutations([*log, *log[:2]]))
    for size in range(len(log) + 1):
        kept = progress_of(condition, log[:size])
        assert is_met(condition, kept) == holds(condition, log[:size])


@given(condition=conditions, log=signal_logs())
def test_a_signal_that_does_not_contribute_changes_nothing(
    condition: ResumeCondition, log: list[Contribution]
) -> None:
    """Whatever comes later, the answer is the same with and without it."""
    if not log:
        return
    *before, last = log
    if not contributes(condition, before, last):
        for late in ([], log, [Contribution("a", "late", "ok", "user", "zoe")]):
            assert holds(condition, [*before, *late]) == holds(condition, [*before, last, *late])
    if not tokens_of(condition, last):
        assert not contributes(condition, [], last)


@given(condition=conditions)
def test_the_words_of_a_condition(condition: ResumeCondition) -> None:
    found = list(_leaves(condition))
    keys = [k for leaf in found for k in _keys(leaf)]
    assert keys_of(condition) == list(dict.fromkeys(keys))
    for each in KEYS:
        about = [leaf.signal_name for leaf in found if each in _keys(leaf)]
        expected = () if None in about else tuple(dict.fromkeys(about))
        assert names_for(condition, each) == expected


def _leaves(condition: Any) -> Iterator[Any]:
    if isinstance(condition, AllOf | AnyOf):
        for member in condition.members:
            yield from _leaves(member)
    else:
        yield condition


def _keys(leaf: Any) -> tuple[str, ...]:
    return (leaf.waitpoint_key,) if isinstance(leaf, Single) else leaf.waitpoints


# --- through the rules -------------------------------------------------------------------------


class Wait:
    """One suspended execution, moved by the kernel alone."""

    def __init__(self, condition: ResumeCondition) -> None:
        running = leased()
        keys = keys_of(condition) or ["wait"]
        command = SuspendExecution(
            execution_id=EXECUTION_ID,
            fence=fence_of(running),
            suspension_id="suspension",
            bindings=tuple(Binding(f"w-{each}", each) for each in keys),
            condition=condition,
            reason_code=ReasonCode.WAITING_FOR_SIGNAL,
            requested_by=RequestedBy.WORKER,
            timeout_at=NOW + 1000,
            timeout_behavior=TimeoutBehavior.FAIL,
            resume_delay_ms=0,
            continuation_metadata_pointer=None,
            idempotency_key=None,
            idempotency_ttl_ms=0,
            digest="",
        )
        decision = suspend(running, Facts(SECRET), command, Moment(NOW))
        assert decision.execution is not None
        self.execution: Execution = decision.execution
        self.row = the(decision, SuspensionRow)
        bound = saved(decision, WaitpointRow)
        self.waitpoints = {each.waitpoint_key: each for each in bound}

    def deliver(self, signal: Contribution) -> Any:
        """The reply; what was decided is taken over."""
        waitpoint = self.waitpoints[signal.waitpoint_key]
        command = DeliverSignal(
            execution_id=EXECUTION_ID,
            waitpoint_id=waitpoint.waitpoint_id,
            presented=None,
            signal_id=signal.signal_id,
            signal_name=signal.signal_name,
            signal_category="",
            source_type=signal.source_type,
            source_identity=signal.source_identity,
            correlation_id="",
            payload=None,
            payload_encoding="json",
            created_at=None,
            idempotency_key=None,
            dedup_ttl_ms=0,
            resume_delay_ms=0,
        )
        episode = None
        if self.execution.suspension_id is not None:
            episode = Episode(self.row, tuple(self.waitpoints.values()))
        decision = deliver(self.execution, waitpoint, episode, None, command, Moment(NOW + 1))
        self.execution = decision.execution or self.execution
        for row in saved(decision, SuspensionRow):
            self.row = row
        changed = saved(decision, WaitpointRow)
        self.waitpoints.update({each.waitpoint_key: each for each in changed})
        return decision.reply


def effect_of(condition: ResumeCondition, log: Sequence[Contribution], now: Contribution) -> Any:
    """What a delivery must answer, by the second evaluator."""
    if holds(condition, log):
        return WaitpointClosed
    if holds(condition, [*log, now]):
        return SignalEffect.RESUMED
    leaves = [each for each in _leaves(condition) if now.waitpoint_key in _keys(each)]
    if all(each.signal_name not in (None, now.signal_name) for each in leaves):
        return SignalEffect.MATCHER_FAILED
    return (SignalEffect.APPENDED, SignalEffect.DUPLICATE)


@settings(max_examples=200)
@given(condition=conditions, log=signal_logs(most=14))
def test_exactly_one_signal_resumes(condition: ResumeCondition, log: list[Contribution]) -> None:
    """Whatever comes in whatever order: one answer, one end, and nothing after it."""
    wait = Wait(condition)
    log = [each for each in log if each.waitpoint_key in wait.waitpoints]
    resumed = 0
    for number, signal in enumerate(log):
        reply = wait.deliver(signal)
        expected = effect_of(condition, log[:number], signal)
        if expected is WaitpointClosed:
            assert isinstance(reply, Refused)
            assert reply.error is WaitpointClosed
            continue
        assert isinstance(reply, SignalAccepted)
        if isinstance(expected, tuple):
            assert reply.effect in expected
        else:
            assert reply.effect is expected
        resumed += reply.effect is SignalEffect.RESUMED
        assert is_met(condition, wait.row.progress) == holds(condition, log[: number + 1])
        assert wait.row.is_open == (not resumed)
    assert resumed == holds(condition, log)
    states = {each.state for each in wait.waitpoints.values()}
    assert states == {WaitpointState.CLOSED if resumed else WaitpointState.ACTIVE}
    assert (wait.execution.suspension_id is None) == bool(resumed)
    assert wait.execution.is_waiting == bool(resumed)


@given(condition=conditions, log=signal_logs(), data=st.data())
def test_the_order_of_delivery_does_not_matter(
    condition: ResumeCondition, log: list[Contribution], data: st.DataObject
) -> None:
    ends = []
    for order in (log, data.draw(st.permutations(log))):
        wait = Wait(condition)
        for signal in order:
            if signal.waitpoint_key in wait.waitpoints:
                wait.deliver(signal)
        ends.append(wait.execution.public_state)
    assert ends[0] == ends[1]


@given(log=signal_logs(), condition=st.sampled_from((OperatorOnly(), TimeoutOnly())))
def test_no_signal_meets_these(log: list[Contribution], condition: ResumeCondition) -> None:
    assert not is_met(condition, log)
    wait = Wait(condition)
    for number in range(3):
        reply = wait.deliver(Contribution("wait", f"s{number}", "ok"))
        assert reply.effect is SignalEffect.NOT_IN_CONDITION
    assert wait.row.is_open


# --- what is no condition ----------------------------------------------------------------------

_A = Single("a")
DEEP: ResumeCondition = _A
for _ in range(DEPTH_MAX + 1):
    DEEP = AllOf((DEEP,))

BAD: dict[str, tuple[Any, str]] = {
    "nothing": (None, "got NoneType at <root>"),
    "no members": (AllOf(()), "allof_empty_members at <root>"),
    "no members, deeper": (AnyOf((_A, AnyOf(()))), "anyof_empty_members at members[1]"),
    "too deep": (DEEP, f"exceeds cap {DEPTH_MAX}"),
    "too many": (AllOf((_A,) * NODES_MAX), "nodes are over the limit"),
    "operator inside": (AnyOf((_A, OperatorOnly())), "can never be satisfied"),
    "timeout inside": (AllOf((_A, AllOf((TimeoutOnly(),)))), "at members[1].members[0]"),
    "count of none": (Count(0, CountKind.DISTINCT_SIGNALS, ("a",)), "count_n_zero"),
    "no waitpoints": (Count(1, CountKind.DISTINCT_SIGNALS, ()), "count_waitpoints_empty"),
    "more than there are": (
        AllOf((_A, Count(3, CountKind.DISTINCT_WAITPOINTS, ("a", "b")))),
        "n=3 > waitpoints.len()=2 at members[1]",
    ),
    "a key twice": (Count(1, CountKind.DISTINCT_SIGNALS, ("a", "a")), "a key is listed twice"),
    "no key": (Single(""), "empty"),
    "no name": (Single("a", ""), "empty signal name"),
    "reserved": (Single("a", "__timeout"), "reserved"),
}


@pytest.mark.parametrize("word", BAD)
def test_a_bad_condition_is_refused_with_its_place(word: str) -> None:
    condition, says = BAD[word]
    with pytest.raises(InvalidInput) as refusal:
        check_condition(condition)
    assert says in refusal.value.detail
    assert refusal.value.fields["field"] == "resume_condition"


def test_the_bounds_themselves_are_allowed() -> None:
    inner: ResumeCondition = Count(2, CountKind.DISTINCT_SOURCES, KEYS)
    for _ in range(DEPTH_MAX - 1):
        inner = AnyOf((inner,))
    assert check_condition(inner) is inner
    wide = AllOf((_A,) * (NODES_MAX - 1))
    assert check_condition(wide) is wide
