"""One run: what happened, what it is doing, why it is not done, and what can be done about it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from flowfabric.model.failure import FailureTold
from flowfabric.model.record import Record
from flowfabric.model.results import AttemptInfo, ExecutionSnapshot, Explanation
from flowfabric.model.state import TERMINAL_STATES, BlockingReason, PublicState
from flowfabric.model.suspension import SuspensionInfo
from flowfabric.model.telling import (
    Fact,
    facts_of,
    headline,
    limits_of,
    successors_of,
    waits_of,
    workers_of,
)
from flowfabric.server.routes.values import path_id
from flowfabric.server.ui.views.failures import line_of
from flowfabric.server.ui.views.spans import WORDS, Span, spans_of, sums_of

TABS: Final = (
    ("log", "Log"),
    ("data", "Input / Result"),
    ("stream", "Stream"),
    ("attempts", "Attempts"),
    ("waits", "Waits"),
    ("steps", "Steps"),
    ("spend", "Spend"),
    ("children", "Children"),
    ("events", "Events"),
    ("raw", "Raw"),
)
_FRAME: Final = re.compile(r'^\s*File "([^"]+)", line (\d+)(?:, in (\S+))?')
_ELSEWHERE: Final = ("site-packages", "/lib/python", "flowfabric/", "<frozen")
_AGAIN: Final = (PublicState.FAILED, PublicState.CANCELLED, PublicState.EXPIRED)


class Failure(Record, frozen=True, kw_only=True):
    """Why it failed: the first line, the innermost place of the program's own code, the rest."""

    headline: str
    place: str
    category: str
    text: str
    attempt: int = 0
    alike: int = 0  # others that failed the same way in the last day
    group: str | None = None  # where these are shown


class Can(Record, frozen=True, kw_only=True):
    """What can be done with it in its state, whoever asks."""

    cancel: bool
    hold: bool
    release: bool
    revoke: bool
    priority: bool
    retry: bool
    retry_with: bool


class Run(Record, frozen=True, kw_only=True):
    """The page. `tab`: the open one, and `inside`: what it shows."""

    title: str
    snapshot: ExecutionSnapshot
    path_id: str
    state: str
    is_over: bool
    can: Can
    failure: Failure | None
    summary: str
    facts: tuple[Fact, ...]
    waits: tuple[tuple[str, str, str, str], ...]
    limits: tuple[tuple[str, str, str, int | None], ...]
    workers: tuple[tuple[str, str, str], ...]
    about: tuple[tuple[str, str], ...]
    spans: tuple[Span, ...]
    sums: tuple[tuple[str, str, int], ...]
    length_ms: int
    tab: str
    tabs: tuple[tuple[str, str], ...]
    attempt: int | None
    inside: Any

    @property
    def is_quiet(self) -> bool:
        """Whether nothing about it changes without an event: time alone shows nothing new."""
        return self.snapshot.public_state is not PublicState.ACTIVE


def run_of(
    snapshot: ExecutionSnapshot,
    explanation: Explanation,
    attempts: Sequence[AttemptInfo],
    suspensions: Sequence[SuspensionInfo],
    *,
    now: int,
    tab: str,
    attempt: int | None,
    inside: Any,
    failed: FailureTold | None = None,
) -> Run:
    """The page of an execution."""
    spans = spans_of(snapshot, attempts, suspensions, now)
    return Run(
        title=f"{snapshot.execution_kind} {snapshot.public_state.value}",
        snapshot=snapshot,
        path_id=path_id(snapshot.execution_id),
        state=snapshot.public_state.value,
        is_over=snapshot.public_state in TERMINAL_STATES,
        can=can_of(snapshot),
        failure=failure_of(snapshot, attempts, failed),
        summary=explanation.summary,
        facts=facts_of(explanation, now),
        waits=waits_of(explanation),
        limits=limits_of(explanation),
        workers=workers_of(explanation),
        about=_about(snapshot),
        spans=spans,
        sums=tuple((kind, WORDS[kind], ms) for kind, ms in sums_of(spans)),
        length_ms=sum(each.ms for each in spans),
        tab=tab,
        tabs=TABS,
        attempt=attempt,
        inside=inside,
    )


def can_of(snapshot: ExecutionSnapshot) -> Can:
    """What can be done in its state."""
    state = snapshot.public_state
    is_over = state in TERMINAL_STATES
    is_held = snapshot.blocking_reason is BlockingReason.PAUSED_BY_OPERATOR
    is_idle = not is_over and state not in (PublicState.ACTIVE, PublicState.SUSPENDED)
    return Can(
        cancel=not is_over,
        hold=is_idle and not is_held,
        release=is_idle and is_held,
        revoke=snapshot.current_lease is not None and not is_over,
        priority=is_idle,
        retry=state in _AGAIN,
        retry_with=is_over,
    )


def failure_of(
    snapshot: ExecutionSnapshot, attempts: Sequence[AttemptInfo], told: FailureTold | None = None
) -> Failure | None:
    """Why it failed, or why its last attempt did while it waits for the next."""
    reason, category = snapshot.failure_reason, snapshot.failure_category
    attempt = 0
    if reason is None and snapshot.public_state not in TERMINAL_STATES:
        failed = [each for each in attempts if each.failure_reason]
        last = max(failed, key=lambda each: each.attempt_index, default=None)
        if last is not None:
            reason, category = last.failure_reason, last.failure_category
            attempt = last.attempt_index
    if reason is None:
        return None
    group = None if told is None else told.group
    return Failure(
        headline=headline(reason),
        place=_place(reason),
        category=category or "",
        text=reason,
        attempt=attempt,
        alike=0 if group is None else max(0, group.failed - 1),
        group=None if group is None else line_of(group, group.last_seen_at).href,
    )


def _place(text: str) -> str:
    """The innermost line of a traceback that is of the program itself."""
    found = [match for line in text.splitlines() if (match := _FRAME.match(line))]
    own = [each for each in found if not any(part in each[1] for part in _ELSEWHERE)]
    if not (own or found):
        return ""
    file, line, name = (own or found)[-1].groups()
    return f"{file}:{line}{f' in {name}' if name else ''}"


def _about(snapshot: ExecutionSnapshot) -> tuple[tuple[str, str], ...]:
    bounds = snapshot.bounds
    lease = snapshot.current_lease
    pairs = (
        ("lane", snapshot.lane_id),
        ("namespace", snapshot.namespace),
        ("priority", str(snapshot.priority)),
        ("attempts", str(snapshot.total_attempt_count)),
        ("worker", f"{lease.worker_id} / {lease.worker_instance_id}" if lease else ""),
        ("progress", _progress(snapshot)),
        ("budgets", ", ".join(bounds.budget_ids)),
        ("quota", bounds.quota_policy_id or ""),
        ("key", bounds.concurrency_key or ""),
        ("serial key", snapshot.serial_key or ""),
        ("unique key", snapshot.unique_key or ""),
        ("fair key", snapshot.fair_key or ""),
        ("needs", ", ".join(snapshot.required_capabilities)),
        ("cancelled by", snapshot.cancelled_by or ""),
        ("then", "; ".join(successors_of(snapshot.successors))),
    )
    return tuple((name, value) for name, value in pairs if value)


def _progress(snapshot: ExecutionSnapshot) -> str:
    percent = "" if snapshot.progress_pct is None else f"{snapshot.progress_pct} %"
    return " ".join(filter(None, (percent, snapshot.progress_message)))
