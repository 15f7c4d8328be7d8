"""Executions in words: what a terminal and a page say of them, from one place."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from flowfabric.limits import FAIR_COUNTED_MAX
from flowfabric.model.record import Record
from flowfabric.model.results import ExecutionSnapshot, Explanation
from flowfabric.model.schedule import Fate, RunOf
from flowfabric.model.state import TERMINAL_STATES, PublicState
from flowfabric.model.successor import Origin, Role, SuccessorInfo
from flowfabric.model.times import absolute, relative, span

_DUE_WORDS: Final = {PublicState.ACTIVE: "lease ends", PublicState.SUSPENDED: "timeout"}
_INSTANT: Final = re.compile(r" until \d{10,}")


def note(snapshot: ExecutionSnapshot, now: int) -> str:
    """The one fact worth knowing about it besides its state."""
    state = snapshot.public_state.value
    if state == "active":
        percent = "" if snapshot.progress_pct is None else f"{snapshot.progress_pct}%"
        owner = snapshot.current_lease.worker_id if snapshot.current_lease else "no owner"
        return " ".join(filter(None, (percent, snapshot.progress_message, f"on {owner}")))
    if state == "delayed":
        why = _INSTANT.sub("", snapshot.blocking_detail)  # which is told as people say it
        return f"{relative(snapshot.eligible_at, now)} {why}".strip()
    if snapshot.failure_reason or snapshot.cancellation_reason:
        return headline(snapshot.failure_reason or snapshot.cancellation_reason or "")
    if snapshot.blocked_until is not None and snapshot.blocking_detail:
        return f"{snapshot.blocking_detail}, {relative(snapshot.blocked_until, now)}"
    return snapshot.blocking_detail


def headline(text: str) -> str:
    """The first line of a reason, for people; a traceback follows it."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[0].strip() if lines else ""


def origin_of(origin: Origin | None) -> str:
    """The end that an execution follows, in words."""
    if origin is None:
        return ""
    ended = origin.execution_id or f"flow {origin.flow_id}"
    again = f", its end number {origin.life + 1}" if origin.life else ""
    return f"{origin.role.value} of {ended}{again}"


def schedule_of(run: RunOf | None) -> str:
    """The schedule that has started an execution, in words."""
    if run is None:
        return ""
    late = ", caught up" if run.is_caught_up and run.fate is not Fate.BACKFILLED else ""
    known = run.fate in (None, Fate.RAN, Fate.CAUGHT_UP)
    fate = "" if known or run.fate is None else f", {run.fate.value}"
    tick = f"its tick of {absolute(run.tick)}"
    return f"schedule {run.schedule_id}: {tick}, run {run.number}{late}{fate}"


def successors_of(successors: Iterable[SuccessorInfo]) -> list[str]:
    """What follows the end of an execution, in words."""
    return [f"{each.role.value}: {_successor(each)}" for each in successors]


def _successor(told: SuccessorInfo) -> str:
    if told.role is not Role.UNDO:
        return f"{told.execution_kind} {told.execution_id or 'when it ends'}"
    many = f"{told.count} call{'s' * (told.count != 1)}"
    return f"{many}, flow {told.flow_id}" if told.flow_id else f"{many} unless it succeeds"


# --- why it is not done --------------------------------------------------------------------------


class Fact(Record, frozen=True):
    """A line of an explanation. `at`: the instant that it is about, instead of a text."""

    name: str
    text: str = ""
    at: int | None = None


def facts_of(explanation: Explanation, now: int) -> tuple[Fact, ...]:
    """What is known of an execution's wait, besides the summary; facts without a value are left
    out."""
    due = _DUE_WORDS.get(explanation.public_state, "due")
    several = (
        Fact("since", at=explanation.since),
        Fact(
            "waiting for",
            explanation.waiting_for.removeprefix("waiting_for_").replace("_", " "),
        ),
        Fact("fair key", _fair(explanation)),
        Fact("runs step", _step(explanation, now)),
        Fact(due, at=explanation.due_at),
        Fact("missing", ", ".join(explanation.missing_capabilities)),
        Fact("started by", schedule_of(explanation.schedule)),
        Fact("follows", origin_of(explanation.origin)),
        *(Fact("then", each) for each in successors_of(explanation.successors)),
        *(Fact("try", hint) for hint in explanation.hints),
    )
    return tuple(each for each in several if each.text or each.at is not None)


def _fair(explanation: Explanation) -> str:
    """Its fair key, and how many are before it."""
    key, ahead = explanation.fair_key, explanation.fair_ahead
    if key is None or ahead is None:
        return key or ""
    count = f"{ahead} or more" if ahead >= FAIR_COUNTED_MAX else str(ahead)
    return f"{key}; {count} with fair keys before it"


def _step(explanation: Explanation, now: int) -> str:
    """The step that runs, and for how long."""
    if explanation.step is None or explanation.step_since is None:
        return ""
    return f"{explanation.step} for {span(max(0, now - explanation.step_since))}"


def waits_of(explanation: Explanation) -> tuple[tuple[str, str, str, str], ...]:
    """The condition of a suspended execution: key, name, what it waits for, how many it has."""
    if explanation.public_state in TERMINAL_STATES:
        return ()
    return tuple(
        (
            ", ".join(line.waitpoint_keys),
            line.signal_name or "any",
            line.what,
            f"{line.have}/{line.need}",
        )
        for line in explanation.waits
        if line.waitpoint_keys
    )


def limits_of(explanation: Explanation) -> tuple[tuple[str, str, str, int | None], ...]:
    """Its limits: name, use, whether it keeps it back, when there is room again."""
    if explanation.public_state in TERMINAL_STATES:
        return ()
    return tuple(
        (
            f"{limit.kind} {limit.limit_id}",
            limit.usage,
            "yes" if limit.keeps_back else "no",
            limit.clears_at,
        )
        for limit in explanation.limits
    )


def workers_of(explanation: Explanation) -> tuple[tuple[str, str, str], ...]:
    """The workers that could run it: name, whether it can, what it lacks. None where it runs
    already, or the cause is not a missing worker."""
    if explanation.public_state in TERMINAL_STATES or explanation.public_state in _DUE_WORDS:
        return ()
    return tuple(
        (f"{fit.worker_id}/{fit.worker_instance_id}", "yes" if fit.fits else "no", fit.lacks)
        for fit in explanation.could_run
    )
