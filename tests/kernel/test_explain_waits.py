"""What a suspended execution is said to wait for."""

from __future__ import annotations

import pytest

from flowfabric.kernel.explain.waits import (
    WaitLook,
    hints_for,
    in_words,
    lines_of,
    progress_of,
    summary_of,
)
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
    Single,
    SuspensionRow,
    TimeoutOnly,
)
from flowfabric.model.words import AT_TIMEOUT, TimeoutBehavior

TWO = Count(2, CountKind.DISTINCT_SOURCES, ("deploy",), "approved")


def came(key: str, name: str = "go", source: str = "ada") -> Contribution:
    return Contribution(key, f"{key}{name}{source}", name, "user", source)


def a_wait(
    condition: ResumeCondition,
    *progress: Contribution,
    timeout_at: int | None = None,
    reason: ReasonCode = ReasonCode.WAITING_FOR_SIGNAL,
) -> WaitLook:
    row = SuspensionRow(
        "x",
        "s",
        0,
        reason,
        RequestedBy.WORKER,
        condition,
        0,
        1,
        timeout_at,
        TimeoutBehavior.CANCEL,
        None,
        progress,
    )
    return WaitLook(row)


@pytest.mark.parametrize(
    ("condition", "progress", "words", "have", "need"),
    [
        (Single("a"), (), "a signal on a", 0, 1),
        (Single("a", "go"), (came("a"),), "signal go on a (came)", 1, 1),
        (TWO, (came("deploy", "approved"),), f"{'approved'} from 2 different sources", 1, 2),
        (TWO, (came("deploy", "other"),), "(0/2)", 0, 2),
        (
            Count(2, CountKind.DISTINCT_SOURCES, ("a",)),
            (came("a"), came("a", "x"), came("a", "y", "grace")),
            "signals from 2 different sources on a (2/2)",
            2,
            2,
        ),
        (
            Count(2, CountKind.DISTINCT_WAITPOINTS, ("a", "b", "c")),
            (came("b"), came("b", "x")),
            "signals on 2 of a, b, c (1/2)",
            1,
            2,
        ),
        (
            Count(1, CountKind.DISTINCT_WAITPOINTS, ("a", "b"), "go"),
            (),
            "go on 1 of a, b (0/1)",
            0,
            1,
        ),
        (
            Count(3, CountKind.DISTINCT_SIGNALS, ("a",), "go"),
            tuple(came("a", "go", source) for source in "wxyz"),
            "3 signals go on a (3/3)",
            3,
            3,
        ),
        (Count(2, CountKind.DISTINCT_SIGNALS, ("a",)), (), "2 signals on a (0/2)", 0, 2),
        (AllOf((Single("a"), TWO)), (came("a"),), "a signal on a (came) and approved", 1, 3),
        (
            AnyOf((AllOf((Single("a"), Single("b"))), AllOf((Single("c"),)))),
            (came("b"),),
            "(a signal on a and a signal on b (came)) or a signal on c",
            1,
            2,
        ),
        (AnyOf((TWO, Single("a"))), (), "or a signal on a", 0, 2),
        (OperatorOnly(), (), "an operator", 0, 1),
        (TimeoutOnly(), (), "its timeout", 0, 1),
    ],
)
def test_a_condition_is_told_in_words_and_numbers(
    condition: ResumeCondition,
    progress: tuple[Contribution, ...],
    words: str,
    have: int,
    need: int,
) -> None:
    assert words in in_words(condition, progress)
    assert progress_of(a_wait(condition, *progress).row) == (have, need)


def test_a_summary_says_why_and_what_the_timeout_does() -> None:
    assert summary_of(a_wait(Single("a"))) == "waits for a signal on a"
    asked = a_wait(Single("a"), timeout_at=9, reason=ReasonCode.WAITING_FOR_CALLBACK)
    told = "waiting for callback: a signal on a; when its time is over, it is cancelled"
    assert summary_of(asked) == told
    assert set(AT_TIMEOUT) == set(TimeoutBehavior)


@pytest.mark.parametrize(
    ("condition", "progress", "hint"),
    [
        (Single("a"), (), "ff waits signal x a --by NAME"),
        (Single("a", "go"), (), "ff waits signal x a --name go --by NAME"),
        (TWO, (), "ff waits approve x deploy --by NAME"),
        (TWO, (came("deploy", "approved"),), "ff waits approve x deploy --by NAME"),
        (AllOf((Single("a"), Single("b"))), (came("a"),), "ff waits signal x b --by NAME"),
        (
            Count(2, CountKind.DISTINCT_WAITPOINTS, ("a", "b")),
            (came("a"),),
            "ff waits signal x b --by NAME",
        ),
        (OperatorOnly(), (), "ff waits resume x --by NAME"),
        (TimeoutOnly(), (), "ff waits resume x --by NAME"),
    ],
)
def test_the_hint_names_what_is_missing(
    condition: ResumeCondition, progress: tuple[Contribution, ...], hint: str
) -> None:
    assert hints_for(a_wait(condition, *progress)) == ("ff waits show x", hint)


def test_nothing_is_advised_when_nothing_is_missing() -> None:
    assert hints_for(a_wait(Single("a"), came("a"))) == ("ff waits show x",)
    assert len(lines_of(AnyOf((TWO, Single("a"))), ())) == 2
