"""The life of a run as spans of time: what it waited for, and when it ran. Nothing is left out, and
nothing overlaps, so that the spans add up to its length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from flowfabric.model.attempt import AttemptType
from flowfabric.model.record import Record
from flowfabric.model.results import AttemptInfo, ExecutionSnapshot
from flowfabric.model.state import BlockingReason
from flowfabric.model.suspension import ReasonCode, SuspensionInfo

READY: Final = "ready"
RUNNING: Final = "running"
FAILED: Final = "failed"
_RAN: Final = (RUNNING, FAILED)
_IN_VAIN: Final = ("failure", "interrupted_reclaimed")
_OF_WAITS: Final = {
    ReasonCode.WAITING_FOR_APPROVAL: "approval",
    ReasonCode.WAITING_FOR_OPERATOR_REVIEW: "approval",
    ReasonCode.PAUSED_BY_BUDGET: "limit",
    ReasonCode.STEP_BOUNDARY: "timer",
    ReasonCode.MANUAL_PAUSE: "held",
    ReasonCode.PAUSED_BY_POLICY: "held",
}
_OF_BLOCKS: Final = {
    BlockingReason.WAITING_FOR_WORKER: READY,
    BlockingReason.WAITING_FOR_CAPABLE_WORKER: READY,
    BlockingReason.WAITING_FOR_RETRY_BACKOFF: "backoff",
    BlockingReason.WAITING_FOR_RESUME_DELAY: "delayed",
    BlockingReason.WAITING_FOR_DELAY: "delayed",
    BlockingReason.WAITING_FOR_CHILDREN: "children",
    BlockingReason.WAITING_FOR_BUDGET: "limit",
    BlockingReason.WAITING_FOR_QUOTA: "limit",
    BlockingReason.WAITING_FOR_TURN: "turn",
    BlockingReason.PAUSED_BY_OPERATOR: "held",
    BlockingReason.PAUSED_BY_POLICY: "held",
    BlockingReason.PAUSED_BY_FLOW_CANCEL: "held",
}
WORDS: Final = {
    READY: "ready, until a worker took it",
    RUNNING: "running",
    FAILED: "running, in vain",
    "backoff": "before the next attempt",
    "delayed": "until its time",
    "limit": "kept back by a limit",
    "turn": "until its turn",
    "children": "for others to end",
    "approval": "for an approval",
    "signal": "for a signal",
    "timer": "until a timer",
    "held": "held",
}


class Span(Record, frozen=True, kw_only=True):
    """One stretch of time. `count`: how many it stands for, where several are folded into one."""

    kind: str
    begin: int
    end: int
    label: str = ""
    attempt_index: int | None = None
    outcome: str = ""
    count: int = 1

    @property
    def ms(self) -> int:
        """How long it is."""
        return self.end - self.begin


def spans_of(
    snapshot: ExecutionSnapshot,
    attempts: Sequence[AttemptInfo],
    waits: Iterable[SuspensionInfo],
    now: int,
) -> tuple[Span, ...]:
    """From its creation to its end, or to now."""
    until = max(snapshot.completed_at or now, snapshot.created_at)
    found: list[Span] = []
    at = snapshot.created_at
    ordered = sorted(attempts, key=lambda each: each.attempt_index)
    for index, attempt in enumerate(ordered):
        begin = min(max(attempt.started_at, at), until)
        is_last = index == len(ordered) - 1
        found += _gap(snapshot, at, begin, attempt=attempt, is_last=is_last)
        end = min(max(attempt.ended_at or until, begin), until)
        found.append(_attempt(attempt, begin, end))
        at = end
    if at < until:
        found += _gap(snapshot, at, until, attempt=None, is_last=True)
    for wait in sorted(waits, key=lambda each: each.created_at):
        found = list(_cut(found, _wait(wait, until)))
    return tuple(each for each in found if each.ms > 0)


def _attempt(attempt: AttemptInfo, begin: int, end: int) -> Span:
    outcome = attempt.outcome.removeprefix("ended_")
    return Span(
        kind=FAILED if outcome in _IN_VAIN else RUNNING,
        begin=begin,
        end=end,
        label=f"attempt {attempt.attempt_index + 1}",
        attempt_index=attempt.attempt_index,
        outcome=outcome,
    )


def _gap(
    snapshot: ExecutionSnapshot, begin: int, end: int, *, attempt: AttemptInfo | None, is_last: bool
) -> list[Span]:
    """Before an attempt, or at the end: a wait of some kind, and then until a worker came."""
    if end <= begin:
        return []
    kind = _kind_before(snapshot, attempt)
    if attempt is None and snapshot.completed_at is None and kind != READY:
        return [Span(kind=kind, begin=begin, end=end, label=snapshot.blocking_detail)]
    # Since when it could be claimed is remembered for the last attempt. Before others it was ready
    # all the time, or waited to be tried again all the time, as far as is known.
    if is_last and begin <= snapshot.eligible_at <= end:
        ready = snapshot.eligible_at
    else:
        ready = end if kind == "backoff" else begin
    first = "delayed" if kind == READY else kind
    return [
        Span(kind=first, begin=begin, end=ready),
        Span(kind=READY, begin=ready, end=end),
    ]


def _kind_before(snapshot: ExecutionSnapshot, attempt: AttemptInfo | None) -> str:
    if attempt is None:
        return _OF_BLOCKS.get(snapshot.blocking_reason, READY)
    if attempt.attempt_type is AttemptType.RETRY:
        return "backoff"
    if attempt.attempt_type is AttemptType.INITIAL:
        has_limit = bool(snapshot.bounds.budget_ids or snapshot.bounds.quota_policy_id)
        return "children" if snapshot.flow_id else "limit" if has_limit else "delayed"
    return READY


def _wait(wait: SuspensionInfo, until: int) -> Span:
    children = "children" if "execution" in wait.waited_for else "signal"
    return Span(
        kind=_OF_WAITS.get(wait.reason_code, children),
        begin=wait.created_at,
        end=min(wait.closed_at if wait.closed_at is not None else until, until),
        label=wait.waited_for,
        attempt_index=wait.attempt_index,
        outcome=wait.close_reason or "",
    )


def _cut(spans: Iterable[Span], wait: Span) -> Iterable[Span]:
    """The spans with a wait in the place of what was running then."""
    for each in spans:
        begin, end = max(each.begin, wait.begin), min(each.end, wait.end)
        if each.kind not in _RAN or begin >= end:
            yield each
        else:
            yield _part(each, each.begin, begin)
            yield _part(wait, begin, end)
            yield _part(each, end, each.end)


def _part(span: Span, begin: int, end: int) -> Span:
    return Span(
        kind=span.kind,
        begin=begin,
        end=end,
        label=span.label,
        attempt_index=span.attempt_index,
        outcome=span.outcome,
        count=span.count,
    )


def folded(spans: Sequence[Span], most: int) -> tuple[Span, ...]:
    """At most so many: neighbours that are short become one, and say how many they are."""
    if len(spans) <= most:
        return tuple(spans)
    # Two groups that follow each other are longer than this, so there are not too many of them.
    long_ms = 2 * sum(each.ms for each in spans) / (most - 1)
    groups: list[list[Span]] = []
    length = 0
    for each in spans:
        if groups and length + each.ms <= long_ms:
            groups[-1].append(each)
            length += each.ms
        else:
            groups.append([each])
            length = each.ms
    return tuple(_one(each) for each in groups)


def _one(group: Sequence[Span]) -> Span:
    """Several as one, of the kind that took longest."""
    if len(group) == 1:
        return group[0]
    longest = max(group, key=lambda each: each.ms)
    return Span(
        kind=sums_of(group)[0][0],
        begin=group[0].begin,
        end=group[-1].end,
        label=longest.label,
        attempt_index=longest.attempt_index,
        count=sum(each.count for each in group),
    )


def sums_of(spans: Iterable[Span]) -> tuple[tuple[str, int], ...]:
    """How long in all, by kind, longest first."""
    sums: dict[str, int] = {}
    for each in spans:
        sums[each.kind] = sums.get(each.kind, 0) + each.ms
    return tuple(sorted(sums.items(), key=lambda each: -each[1]))
