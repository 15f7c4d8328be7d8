"""Records to rows and back, once for every SQL store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from flowfabric.errors import Corruption, FlowFabricError
from flowfabric.limits import PRIORITY_MAX
from flowfabric.model.attempt import Attempt, AttemptOutcome, AttemptType
from flowfabric.model.bounds import UNBOUNDED, Bounds
from flowfabric.model.execution import Body, Execution, Grant, GrantKind
from flowfabric.model.policy import DEFAULT_POLICY, ExecutionPolicy
from flowfabric.model.record import from_json, to_json
from flowfabric.model.route import Route
from flowfabric.model.state import ID_OF_VECTOR, VECTOR_OF_ID
from flowfabric.stores.base import (
    COLD_FIELDS,
    FREED_FIELDS,
    TAKEN_FIELDS,
    Changes,
    Corrupt,
    cold_of,
)
from flowfabric.stores.spoiled import SpoiledRow, intact

_BOUNDS_KEPT: Final = 4096  # many executions have the same bounds, so each text is decoded once

# Written at creation and never again.
KEY_COLUMNS: Final = ("execution_id", "partition_key", "route_id", "created_at")
# All columns known at creation; every other column has its default then.
FIRST_COLUMNS: Final = (
    *KEY_COLUMNS,
    "state_id",
    "due_at",
    "priority",
    "eligible_at",
    "last_transition_at",
    "last_mutation_at",
    "blocking_detail",
    "deadline_at",
    "aging_ms",
    "ready_rank",  # derived: see indexes.ready_rank
)
# Further columns of an execution created in a flow.
MEMBER_COLUMNS: Final = (*FIRST_COLUMNS, "flow_id", "open_group")
# Columns that every transition may change: renew and complete change nothing else.
STEP_COLUMNS: Final = (
    "state_id",
    "due_at",  # derived: see indexes.due_at
    "last_transition_at",
    "last_mutation_at",
    "lease_epoch",
    "worker_id",
    "worker_instance_id",
    "lease_acquired_at",
    "lease_expires_at",
    "lease_renewed_at",
    "attempt_due_at",
    "completed_at",
    "purge_at",
)
# Columns that change when dependencies release an execution.
FREED_COLUMNS: Final = (*STEP_COLUMNS, *FREED_FIELDS)
# Columns that the usual transitions change: claim, renew, complete.
HOT_COLUMNS: Final = (*STEP_COLUMNS, *TAKEN_FIELDS)
# Columns that change now and then; written only when they did.
GRANT_COLUMNS: Final = (
    "grant_kind",
    "grant_id",
    "grant_worker_id",
    "grant_worker_instance_id",
    "grant_expires_at",
)
COLD_COLUMNS: Final = (
    *COLD_FIELDS[:-1],  # all but the grant
    *GRANT_COLUMNS,
    "ready_rank",  # derived: see indexes.ready_rank
)
STATE_COLUMNS: Final = (*HOT_COLUMNS, *COLD_COLUMNS)
# The columns a record is read from: after the priority in the order of the record's fields.
CORE_COLUMNS: Final = (
    *KEY_COLUMNS,
    "state_id",
    "priority",
    *Execution.__struct_fields__[5:-4],
    *GRANT_COLUMNS,
)
BODY_COLUMNS: Final = (
    "execution_id",
    "route_id",
    "created_at",
    "payload",
    "payload_encoding",
    "creator_identity",
    "idempotency_key",
    "policy",
    "tags",
    "bounds",
)
ATTEMPT_COLUMNS: Final = (
    "execution_id",
    "attempt_index",
    "attempt_id",
    "attempt_type",
    "outcome",
    "lease_epoch",
    "worker_id",
    "worker_instance_id",
    "started_at",
    "ended_at",
    "failure_reason",
    "failure_category",
    "result",
    "result_encoding",
)

_NO_GRANT: Final = (None, None, None, None, None)
_ATTEMPT_TYPES: Final = {member.value: member for member in AttemptType}
_ATTEMPT_TYPE: Final = _ATTEMPT_TYPES | {None: None}
_ATTEMPT_OUTCOMES: Final = {member.value: member for member in AttemptOutcome}
_POLICY_CACHE_MAX: Final = 10_000
_policies: dict[str, ExecutionPolicy] = {}
_policy_texts: dict[ExecutionPolicy, str | None] = {}


def execution_id_of(partition_key: int, uuid: str) -> str:
    """The wire form of an id."""
    return f"{{fp:{partition_key}}}:{uuid}"


def partition_key_of(execution_id: str) -> int:
    """The partition written in an id."""
    return int(execution_id[4 : execution_id.index("}")])


def member_row(execution: Execution, route_id: int) -> tuple[Any, ...]:
    """The first row of an execution created in a flow, in the order of MEMBER_COLUMNS."""
    return (*first_row(execution, route_id), execution.flow_id, execution.open_group)


def step_row(execution: Execution) -> tuple[Any, ...]:
    """The columns every transition writes, in the order of STEP_COLUMNS."""
    return (
        ID_OF_VECTOR[execution.state],
        execution.due_at,
        execution.last_transition_at,
        execution.last_mutation_at,
        execution.lease_epoch,
        execution.worker_id,
        execution.worker_instance_id,
        execution.lease_acquired_at,
        execution.lease_expires_at,
        execution.lease_renewed_at,
        execution.attempt_due_at,
        execution.completed_at,
        execution.purge_at,
    )


def freed_row(execution: Execution) -> tuple[Any, ...]:
    """In the order of FREED_COLUMNS."""
    return (*step_row(execution), execution.blocking_detail, execution.open_group)


def hot_row(execution: Execution) -> tuple[Any, ...]:
    """The columns a usual transition writes, in the order of HOT_COLUMNS."""
    kind = execution.attempt_type
    return (
        *step_row(execution),
        execution.attempt_index,
        None if kind is None else kind._value_,
        execution.attempt_started_at,
        execution.total_attempt_count,
        execution.started_at,
        execution.lease_id,
        execution.attempt_id,
    )


def cold_row(execution: Execution) -> tuple[Any, ...]:
    """The columns that change now and then, in the order of COLD_COLUMNS."""
    *plain, grant = cold_of(execution)
    plain[_NEXT_TYPE] = execution.next_attempt_type._value_
    held = _NO_GRANT if grant is None else _grant_row(grant)
    return (*plain, *held, execution.ready_rank)


def state_row(execution: Execution) -> tuple[Any, ...]:
    """Everything a transition can change, in the order of STATE_COLUMNS."""
    return (*hot_row(execution), *cold_row(execution))


def first_row(execution: Execution, route_id: int) -> tuple[Any, ...]:
    """The columns written at creation, in the order of FIRST_COLUMNS."""
    text = execution.execution_id
    return (
        text[-36:],
        partition_key_of(text),
        route_id,
        execution.created_at,
        ID_OF_VECTOR[execution.state],
        execution.due_at,
        execution.priority,
        execution.eligible_at,
        execution.last_transition_at,
        execution.last_mutation_at,
        execution.blocking_detail,
        execution.deadline_at,
        execution.aging_ms,
        execution.ready_rank,
    )


def body_row(execution: Execution, body: Body, route_id: int) -> tuple[Any, ...]:
    """The immutable part, in the order of BODY_COLUMNS."""
    return (
        body.execution_id[-36:],
        route_id,
        execution.created_at,
        body.payload,
        body.payload_encoding,
        body.creator_identity,
        body.idempotency_key,
        policy_text(execution.policy),
        tags_text(execution.tags),
        bounds_text(execution.bounds),
    )


def attempt_row(attempt: Attempt) -> tuple[Any, ...]:
    """An ended attempt, in the order of ATTEMPT_COLUMNS."""
    return (
        attempt.execution_id[-36:],
        attempt.attempt_index,
        attempt.attempt_id,
        attempt.attempt_type._value_,
        attempt.outcome._value_,
        attempt.lease_epoch,
        attempt.worker_id,
        attempt.worker_instance_id,
        attempt.started_at,
        attempt.ended_at,
        attempt.failure_reason,
        attempt.failure_category,
        attempt.result,
        attempt.result_encoding,
    )


def attempt_from_row(execution_id: str, row: Sequence[Any]) -> Attempt:
    """An ended attempt from its row; raises Corruption naming the row if it cannot be decoded."""
    name = f"attempt {row[1]} of {execution_id}"
    intact(row, name)
    try:
        kind, outcome = _ATTEMPT_TYPES[row[3]], _ATTEMPT_OUTCOMES[row[4]]
    except KeyError as error:
        raise Corruption(f"{name}: {error} is not a known word") from None
    return Attempt(execution_id, row[1], str(row[2]), kind, outcome, *row[5:14])


def execution_from_row(row: Sequence[Any], routes: Mapping[int, Route]) -> Execution | Corrupt:
    """From CORE_COLUMNS, policy, tags, bounds …; a corrupt row is returned, not raised."""
    wire_id = execution_id_of(row[1], str(row[0]))
    try:
        if type(row) is SpoiledRow:
            intact(row, "the row")
        return _decode(wire_id, row, routes)
    except (KeyError, ValueError, TypeError, FlowFabricError) as error:
        return Corrupt(wire_id, f"{type(error).__name__}: {error!s:.200}")


_UUID_LENGTH: Final = 36
_BEFORE_UUID: Final = -_UUID_LENGTH - 1
_STATE: Final = len(KEY_COLUMNS)
_PRIORITY: Final = _STATE + 1
_GRANT: Final = CORE_COLUMNS.index("grant_kind")
_POLICY: Final = len(CORE_COLUMNS)
_TAGS: Final = _POLICY + 1


def _decode(wire_id: str, row: Sequence[Any], routes: Mapping[int, Route]) -> Execution:
    """The columns after the priority are in the order of the record's fields."""
    if _is_out_of_range(row):
        raise ValueError(_out_of_range(row))
    if len(wire_id) <= _UUID_LENGTH or wire_id[_BEFORE_UUID] != ":":
        raise ValueError("its id is no UUID")  # with another id, no update would find its row
    kind = row[_GRANT]
    if kind is not None and None in row[_GRANT + 1 : _POLICY]:
        raise ValueError("its grant has an empty part")
    fields: list[Any] = [
        wire_id,
        routes[row[2]],
        VECTOR_OF_ID[row[_STATE]],
        row[_PRIORITY],
        row[3],
        *row[_PRIORITY + 1 : _GRANT],
        None if kind is None else Grant(GrantKind(kind), *row[_GRANT + 1 : _POLICY]),
        policy_from_text(row[_POLICY]),
        tags_from_text(row[_TAGS]),
        bounds_from_text(row[_TAGS + 1]),
    ]
    fields[_TYPE_FIELD] = _ATTEMPT_TYPE[fields[_TYPE_FIELD]]
    fields[_NEXT_TYPE_FIELD] = _ATTEMPT_TYPE[fields[_NEXT_TYPE_FIELD]]
    return Execution(*fields)


# Numbers that rules count with or rank by, and the most bits each can need: one test of all bits of
# a group together tells whether any has more. Counters have 32 bits, so that one at the end of its
# range cannot go on.
_RANGES: Final = {
    48: ("created_at", "lease_epoch", "attempt_spent_ms", "aging_ms", "signal_bytes"),
    30: (
        "priority",
        "total_attempt_count",
        "retry_count",
        "replay_count",
        "reclaim_count",
        "signal_count",
        "side_holds",
        "open_group",
    ),
}


def _range_test() -> Callable[[Sequence[Any]], bool]:
    """Spelled out, as `base._keeps` is: it runs for every row read."""
    at = CORE_COLUMNS.index
    groups = {
        bits: " | ".join(f"row[{at(name)}]" for name in names) for bits, names in _RANGES.items()
    }
    tests = [f"({source}) >> {bits}" for bits, source in groups.items()]
    source = " or ".join((*tests, f"row[{_PRIORITY}] > {PRIORITY_MAX}"))
    test: Callable[[Sequence[Any]], bool] = eval(f"lambda row: {source}")  # noqa: S307
    return test


_is_out_of_range: Final = _range_test()


def _out_of_range(row: Sequence[Any]) -> str:
    """The number that is out of range."""
    for bits, names in _RANGES.items():
        for name in names:
            if (value := row[CORE_COLUMNS.index(name)]) >> bits:
                return f"{name}: {value} is out of range"
    return f"priority: {row[_PRIORITY]} is out of range"


_NEXT_TYPE: Final = COLD_FIELDS.index("next_attempt_type")
_TYPE_FIELD: Final = Execution.__struct_fields__.index("attempt_type")
_NEXT_TYPE_FIELD: Final = Execution.__struct_fields__.index("next_attempt_type")


def split_updates(
    changes: Changes,
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Updates of the hot columns, of the freed ones, and of everything; the key comes last."""
    hot, freed, everything = [], [], []
    for key, execution in changes.updated.items():
        if key in changes.cold:
            everything.append((*state_row(execution), key[-36:]))
        elif key in changes.freed:
            freed.append((*freed_row(execution), key[-36:]))
        else:
            hot.append((*hot_row(execution), key[-36:]))
    return hot, freed, everything


def candidate_from_row(
    row: Sequence[Any], routes: Mapping[int, Route]
) -> tuple[Execution, Body] | None:
    """An execution with its body, which is the last four columns; None for a corrupt row."""
    record = execution_from_row(row, routes)
    if not isinstance(record, Execution):
        return None
    return record, body_from_row(record.execution_id, row[-4:])


def candidates_of(
    records: Sequence[Execution | Corrupt], bodies: Sequence[Sequence[Any]]
) -> list[tuple[Execution, Body]]:
    """Executions with their bodies; corrupt rows are skipped."""
    return [
        (record, body_from_row(record.execution_id, body))
        for record, body in zip(records, bodies, strict=True)
        if isinstance(record, Execution)
    ]


def _grant_row(grant: Grant) -> tuple[Any, ...]:
    return (
        grant.kind._value_,
        grant.grant_id,
        grant.worker_id,
        grant.worker_instance_id,
        grant.expires_at,
    )


def policy_text(policy: ExecutionPolicy) -> str | None:
    """A policy as stored: None for the default one. Executions share few policies: cached."""
    if policy is DEFAULT_POLICY:
        return None
    try:
        return _policy_texts[policy]
    except KeyError:
        text = None if policy == DEFAULT_POLICY else to_json(policy).decode()
        if len(_policy_texts) >= _POLICY_CACHE_MAX:
            _policy_texts.clear()
        _policy_texts[policy] = text
        return text


def policy_from_text(text: str | None) -> ExecutionPolicy:
    """A policy as read."""
    if text is None:
        return DEFAULT_POLICY
    policy = _policies.get(text)
    if policy is None:
        policy = from_json(text, ExecutionPolicy, field="policy")
        if len(_policies) >= _POLICY_CACHE_MAX:
            _policies.clear()
        _policies[text] = policy
    return policy


def tags_text(tags: Mapping[str, Any]) -> str | None:
    """Tags (or event details) as stored: None when there are none."""
    return to_json(tags).decode() if tags else None


def tags_from_text(text: str | None) -> dict[str, str]:
    """Tags as read."""
    return from_json(text, dict[str, str], field="tags") if text else {}


def bounds_text(bounds: Bounds) -> str | None:
    """The bounds of an execution, as stored: None when there are none."""
    return None if bounds == UNBOUNDED else to_json(bounds).decode()


@lru_cache(_BOUNDS_KEPT)
def bounds_from_text(text: str | None) -> Bounds:
    """The bounds of an execution, as read."""
    return UNBOUNDED if text is None else from_json(text, Bounds, field="bounds")


def body_from_row(execution_id: str, row: Sequence[Any]) -> Body:
    """The immutable part from (payload, encoding, creator, key)."""
    return Body(execution_id, bytes(row[0]), row[1], row[2], row[3])


def capabilities_text(tokens: Sequence[str]) -> str:
    """Capability words joined by the comma no word can contain."""
    return ",".join(tokens)


def capabilities_from_text(text: str) -> tuple[str, ...]:
    """Capability words as read."""
    return tuple(text.split(",")) if text else ()
