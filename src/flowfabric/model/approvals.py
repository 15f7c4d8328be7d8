"""Waits as the people see them that are to decide."""

from __future__ import annotations

from flowfabric.model.record import Record
from flowfabric.model.results import WaitLine
from flowfabric.model.suspension import ReasonCode, ResumeCause, WaitpointState
from flowfabric.model.words import TimeoutBehavior


class WaitAnswer(Record, frozen=True, kw_only=True):
    """One signal that came to a waitpoint. `said`: the beginning of its payload, as text; `counts`:
    whether it is part of what the wait was for."""

    signal_name: str
    source_type: str
    source_identity: str
    accepted_at: int
    counts: bool
    said: str = ""


class WaitShown(Record, frozen=True, kw_only=True):
    """One waitpoint with its wait, for the form on which a person decides.

    A pending waitpoint has no wait yet: then there is no `reason`. `actor`: the source of the
    signal, or the operator, that ended the wait. `input_start`: the beginning of what the execution
    was given, as text, of `input_bytes` in all; `progress_message`: what it said last.
    """

    execution_id: str
    execution_kind: str
    lane_id: str
    namespace: str
    waitpoint_id: str
    waitpoint_key: str
    state: WaitpointState
    signal_names: tuple[str, ...]  # those that the wait asks for by name
    payload_type: str | None  # a JSON schema that signals must fit
    reason: ReasonCode | None
    since: int | None
    timeout_at: int | None
    at_timeout: TimeoutBehavior | None
    waits_for: str
    have: int
    need: int
    lines: tuple[WaitLine, ...]
    answers: tuple[WaitAnswer, ...]  # the first of them, in the order they came
    cause: ResumeCause | None
    actor: str | None
    ended_at: int | None
    progress_message: str | None
    input_start: str
    input_bytes: int


class ApprovalGiven(Record, frozen=True, kw_only=True):
    """A signal that approved or rejected something. `effect`: what it did to the wait. The kind and
    the key are not known any more when the execution has been purged."""

    execution_id: str
    execution_kind: str | None
    waitpoint_key: str | None
    namespace: str
    signal_name: str
    source_type: str
    source_identity: str
    effect: str
    occurred_at: int
