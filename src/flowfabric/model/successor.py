"""Successors: executions that are created in the transaction in which another one ends."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from flowfabric.model.bounds import UNBOUNDED, Bounds
from flowfabric.model.policy import DEFAULT_POLICY, ExecutionPolicy
from flowfabric.model.record import Record
from flowfabric.model.route import Route


class Role(StrEnum):
    """Why an execution follows another one."""

    ON_SUCCESS = "on_success"
    ON_FAILURE = "on_failure"  # it failed, or expired
    ON_END = "on_end"  # however it ended
    UNDO = "undo"  # it ended otherwise than by success, or its handler asked for it


class Successor(Record, frozen=True, kw_only=True):
    """Everything about an execution to come but its arguments. Its route is known before, so that
    the end finds it without any worker or code."""

    route: Route
    priority: int = 0
    policy: ExecutionPolicy = DEFAULT_POLICY
    bounds: Bounds = UNBOUNDED
    mailboxes: tuple[tuple[str, str | None], ...] = ()  # by name, with the schemas of messages


class Hook(Record, frozen=True):
    """A successor that is told how it came to the end. `argument`: under which name; None: it is
    told nothing."""

    successor: Successor
    argument: str | None = None


class Hooks(Record, frozen=True, kw_only=True):
    """The hooks of one execution. `key`: its idempotency key, for the hooks to be told."""

    on_success: Hook | None = None
    on_failure: Hook | None = None
    on_end: Hook | None = None
    key: str | None = None


class FlowHooks(Hooks, frozen=True, kw_only=True):
    """The hooks of one flow. `life`: rises whenever the flow goes on after an end."""

    life: int = 0


class Undo(Record, frozen=True):
    """A registered undo: a successor with its arguments, as JSON text. The value of its entry."""

    successor: Successor
    arguments: str


class Undos(Record, frozen=True):
    """The undos of an execution: the positions of their entries in its present chapter.

    `had_run`: its handler had others run before, so what these made good is no longer true of the
    journal.
    """

    positions: tuple[int, ...] = ()
    had_run: bool = False


class Origin(Record, frozen=True):
    """What an execution follows: the end of another one, or of a flow, in one of its lives."""

    role: Role
    life: int
    execution_id: str | None = None
    flow_id: str | None = None


class SuccessorInfo(Record, frozen=True):
    """What follows the end of an execution or a flow. The ids are None before that end.
    Undos are so many calls in a flow."""

    role: Role
    execution_kind: str
    execution_id: str | None = None
    flow_id: str | None = None
    count: int = 1


class RunEnded(Record, frozen=True, forbid_unknown_fields=False):
    """How an execution ended, as its hooks are told.

    `state`: completed, failed, cancelled, expired or skipped. `result`: of one that succeeded, as
    plain JSON values; one of more than 64 KiB, or that is no JSON, is left out.
    """

    execution_id: str
    kind: str
    state: str
    reason: str | None = None
    category: str | None = None
    key: str | None = None
    tags: Mapping[str, str] = {}
    result: Any = None
    is_result_left_out: bool = False
    ended_at: int = 0


class FlowEnded(Record, frozen=True, forbid_unknown_fields=False):
    """How a flow ended, as its hooks are told.

    `state`: completed, failed or cancelled. `reason`: of a cancel. `members`: how many ended in
    each state.
    """

    flow_id: str
    kind: str
    state: str
    reason: str | None = None
    key: str | None = None
    tags: Mapping[str, str] = {}
    members: Mapping[str, int] = {}
    ended_at: int = 0
