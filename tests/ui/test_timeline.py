"""The life of a run as spans: they add up, nothing overlaps, and the drawing stays small."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import cast
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowfabric.limits import INSTANT_MS_MAX
from flowfabric.model.attempt import AttemptType
from flowfabric.model.bounds import Bounds
from flowfabric.model.record import replace
from flowfabric.model.results import AttemptInfo, ExecutionSnapshot
from flowfabric.model.state import BlockingReason, PublicState, StateVector
from flowfabric.model.suspension import (
    OperatorOnly,
    ReasonCode,
    RequestedBy,
    SuspensionInfo,
)
from flowfabric.model.words import TimeoutBehavior
from flowfabric.server.ui.draw.timeline import ELEMENTS_MAX, SPANS_MAX, WIDTH, places, timeline
from flowfabric.server.ui.views.spans import Span, folded, spans_of, sums_of

T0 = 1_700_000_000_000


def attempt(
    index: int, begin: int, end: int | None, kind: AttemptType, outcome: str = "ended_failure"
) -> AttemptInfo:
    return AttemptInfo(
        attempt_index=index,
        attempt_id="a",
        attempt_type=kind,
        outcome=outcome,
        lease_epoch=index,
        worker_id="w",
        worker_instance_id="w-1",
        started_at=T0 + begin,
        ended_at=None if end is None else T0 + end,
        failure_reason=None,
        failure_category=None,
    )


def wait(begin: int, end: int | None, reason: ReasonCode, words: str = "") -> SuspensionInfo:
    return SuspensionInfo(
        execution_id="x",
        suspension_id="s",
        attempt_index=1,
        reason_code=reason,
        requested_by=RequestedBy.WORKER,
        condition=OperatorOnly(),
        resume_delay_ms=0,
        created_at=T0 + begin,
        timeout_at=None,
        timeout_behavior=TimeoutBehavior.FAIL,
        continuation_metadata_pointer=None,
        closed_at=None if end is None else T0 + end,
        waited_for=words,
    )


def test_retry_backoff_limit_approval_and_children_are_told_apart_and_add_up() -> None:
    """Acceptance 7: six kinds of time, whose sum is the length of the run."""
    run = replace(
        a_snapshot(),
        eligible_at=T0 + 9_000,
        completed_at=T0 + 60_000,
        bounds=Bounds(budget_ids=("gpt",)),
    )
    attempts = [
        attempt(0, 2_000, 4_000, AttemptType.INITIAL),
        attempt(1, 10_000, 60_000, AttemptType.RETRY, "ended_success"),
    ]
    waits = [
        wait(12_000, 30_000, ReasonCode.WAITING_FOR_APPROVAL),
        wait(31_000, 41_000, ReasonCode.WAITING_FOR_SIGNAL, "3 executions to end"),
        wait(42_000, 45_000, ReasonCode.PAUSED_BY_BUDGET),
    ]
    spans = spans_of(run, attempts, waits, T0 + 99_000)
    sums = dict(sums_of(spans))
    assert {*sums} >= {"ready", "failed", "backoff", "running", "approval", "children", "limit"}
    assert sum(sums.values()) == 60_000
    assert (sums["approval"], sums["children"], sums["backoff"]) == (18_000, 10_000, 5_000)


def test_what_it_waits_for_now_is_the_last_span() -> None:
    run = a_snapshot()
    for reason, kind in (
        (BlockingReason.WAITING_FOR_WORKER, "ready"),
        (BlockingReason.WAITING_FOR_RETRY_BACKOFF, "backoff"),
        (BlockingReason.WAITING_FOR_DELAY, "delayed"),
        (BlockingReason.WAITING_FOR_CHILDREN, "children"),
        (BlockingReason.WAITING_FOR_QUOTA, "limit"),
        (BlockingReason.PAUSED_BY_OPERATOR, "held"),
    ):
        blocked = replace(run, blocking_reason=reason)
        assert spans_of(blocked, [], [], T0 + 5_000)[-1].kind == kind


TIMES = st.integers(0, 10**9)


@settings(max_examples=60, deadline=None)
@given(
    starts=st.lists(st.tuples(TIMES, TIMES), max_size=30),
    waits=st.lists(st.tuples(TIMES, TIMES), max_size=30),
    ends=TIMES,
)
def test_spans_have_no_gap_and_no_overlap_whatever_is_recorded(
    starts: list[tuple[int, int]], waits: list[tuple[int, int]], ends: int
) -> None:
    run = a_snapshot()
    attempts = [
        attempt(index, begin, begin + long, AttemptType.RETRY)
        for index, (begin, long) in enumerate(starts)
    ]
    several = [wait(begin, begin + long, ReasonCode.STEP_BOUNDARY) for begin, long in waits]
    spans = spans_of(replace(run, completed_at=T0 + ends), attempts, several, T0)
    assert sum(each.ms for each in spans) == ends
    for first, second in pairwise(spans):
        assert first.end == second.begin
    shown = folded(spans, SPANS_MAX)
    assert sum(each.count for each in shown) == len(spans)
    assert sum(each.ms for each in shown) == ends


def test_ten_thousand_spans_are_a_small_drawing_that_says_how_many() -> None:
    spans = [
        Span(kind="running" if n % 2 else "backoff", begin=T0 + n * 10, end=T0 + n * 10 + 10)
        for n in range(10_000)
    ]
    drawing = str(timeline(spans, title="x", href="/ui/runs/x?tab=attempts"))
    tree = ElementTree.fromstring(drawing)  # noqa: S314 - our own
    assert len(list(tree.iter())) <= ELEMENTS_MAX
    assert re.search(r"\(\d+ spans\)", drawing)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, INSTANT_MS_MAX // 100), min_size=1, max_size=SPANS_MAX))
def test_every_span_is_seen_and_they_fill_the_width(lengths: list[int]) -> None:
    spans, at = [], 0
    for each in lengths:
        spans.append(Span(kind="running", begin=at, end=at + each, label="<x>"))
        at += each
    found = places(spans)
    assert found[0][0] == 0
    assert sum(wide for _, wide in found) == pytest.approx(WIDTH)
    assert min(wide for _, wide in found) >= min(3.0, WIDTH / len(spans)) - 0.01
    for (left, wide), (right, _) in pairwise(found):
        assert left + wide == pytest.approx(right)
    ElementTree.fromstring(str(timeline(spans, title="a & b <c>")))  # noqa: S314 - our own


def test_a_run_that_has_not_lasted_has_no_drawing() -> None:
    assert str(timeline([], title="x")) == ""


def a_snapshot() -> ExecutionSnapshot:
    """A run of no store."""
    return ExecutionSnapshot(
        execution_id="x",
        namespace="default",
        lane_id="default",
        execution_kind="brief",
        public_state=PublicState.COMPLETED,
        state=cast("StateVector", None),  # nothing here looks at it
        blocking_reason=BlockingReason.NONE,
        blocking_detail="",
        priority=0,
        required_capabilities=(),
        created_at=T0,
        last_transition_at=T0,
        last_mutation_at=T0,
        eligible_at=T0,
        total_attempt_count=0,
        retry_count=0,
        replay_count=0,
        reclaim_count=0,
        tags={},
    )
