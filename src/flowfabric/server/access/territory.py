"""Which operations a token for some namespaces may ask for, and by what of them it is held back.

Most follow from the fields of the request: what names an object is checked, and what may name a
namespace does. Here are the others. An operation that is neither is for tokens of all namespaces.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Any, Final, NamedTuple, get_args, get_type_hints

from flowfabric.api.operation import Kind, Operation, Scope
from flowfabric.model.handle import Handle
from flowfabric.model.record import Record


class Role(StrEnum):
    """What a field of a request names."""

    EXECUTION = "execution"
    FLOW = "flow"
    OPERATION = "operation"
    GROUP = "group"
    BUDGET = "budget"
    QUOTA = "quota"
    NAMESPACE = "namespace"
    INSIDE = "inside"  # records that may have such fields


ROLES: Final = {
    "execution_id": Role.EXECUTION,
    "execution_ids": Role.EXECUTION,
    "upstream_execution_id": Role.EXECUTION,
    "downstream_execution_id": Role.EXECUTION,
    "flow_id": Role.FLOW,
    "operation_id": Role.OPERATION,
    "group_id": Role.GROUP,
    "budget_id": Role.BUDGET,
    "budget_ids": Role.BUDGET,
    "quota_policy_id": Role.QUOTA,
    "namespace": Role.NAMESPACE,
    "namespaces": Role.NAMESPACE,
}
_SCALARS: Final = (str, int, float, bool, bytes, NoneType)

# They change what all namespaces share, or show what belongs to the installation.
OF_ALL: Final = frozenset(
    (
        *("set_lane_state", "pause_lane", "resume_lane", "drain_lane", "configure_lane"),
        *("read_spending", "list_waitpoint_hmac_kids", "authenticate", "find_namespaces"),
        *("shutdown_prepare",),
    )
)
# They show what all namespaces share, or nothing of anybody.
OPEN: Final = frozenset(("ping", "server_time_ms", "list_lanes", "give_back_claim"))
# They answer with objects of all namespaces; those of others are left out of the answer.
SIFTED: Final = frozenset(
    (
        *("list_suspended", "list_consumer_groups", "find_executions", "find_flows"),
        *("list_budget_asks", "list_budgets", "list_quota_policies"),
    )
)
# They change a limit: one that belongs to all is changed by tokens for all namespaces.
OF_LIMITS: Final = frozenset(
    (
        *("update_budget", "reset_budget", "report_usage_admin", "answer_budget_ask"),
        "update_quota_policy",
    )
)
# They make a budget of a name that there is none of.
COLLECTING: Final = frozenset(("report_usage", "report_usage_admin", "record_spend"))
# Limits may belong to all namespaces, which may use them then.
LIMITS: Final = (Role.BUDGET, Role.QUOTA)
# Tokens have rules of their own.
OF_TOKENS: Final = frozenset(("create_access_token", "list_access_tokens", "revoke_access_token"))
# The id may be chosen by the caller for something new.
CHOSEN: Final = frozenset(
    ("create_flow", "submit_flow", "create_consumer_group", "start_operation")
)


class Part(NamedTuple):
    """A field that matters to the border."""

    name: str
    role: Role
    is_required: bool


@cache
def parts_of(kind: type[Record]) -> tuple[Part, ...]:
    """The fields of a record that name things or may hold records that do."""
    hints = get_type_hints(kind)
    found = []
    for name in kind.__struct_fields__:
        role = ROLES.get(name)
        if role is None and _may_hold_records(hints[name]):
            role = Role.INSIDE
        if role is not None:
            found.append(Part(name, role, NoneType not in get_args(hints[name])))
    return tuple(found)


def _may_hold_records(hint: Any) -> bool:
    inner = [each for each in get_args(hint) if each is not Ellipsis]
    if inner:
        return any(map(_may_hold_records, inner))
    return not (isinstance(hint, type) and issubclass(hint, (*_SCALARS, StrEnum)))


@cache
def names_namespaces(kind: type[Record]) -> bool:
    """Whether a request says itself which namespaces it is about."""
    if any(part.role is Role.NAMESPACE for part in parts_of(kind)):
        return True
    return "filter" in kind.__struct_fields__


@cache
def names_objects(kind: type[Record]) -> bool:
    """Whether a request cannot be made without naming an object that has a namespace."""
    hints = get_type_hints(kind)
    for part in parts_of(kind):
        if part.role not in (Role.INSIDE, Role.NAMESPACE) and part.is_required:
            return True
    records = [each for hint in hints.values() for each in (hint, *get_args(hint))]
    inside = [each for each in records if isinstance(each, type) and issubclass(each, Record)]
    return any(each is Handle or (each is not kind and names_objects(each)) for each in inside)


def is_for_all_only(operation: Operation) -> bool:
    """Whether only tokens for all namespaces may ask for it."""
    name, kind = operation.name, operation.request
    if name in OF_ALL or (operation.kind is Kind.ADMIN and operation.scope is Scope.ADMIN):
        return True
    if name in OPEN or name in SIFTED or name in OF_TOKENS:
        return False
    return not (names_namespaces(kind) or names_objects(kind) or name == "create_executions")


# They take a list of what is checked one by one.
LISTS: Final = frozenset(
    ("create_executions", "read_outcomes", "describe_waits", "deliver_signals")
)
