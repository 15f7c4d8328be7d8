"""The grammar of resume conditions, for the engine and for callers that check beforehand."""

from __future__ import annotations

from typing import Final

from flowfabric.errors import InvalidInput
from flowfabric.model.checks import check_name
from flowfabric.model.shown import shown
from flowfabric.model.suspension import (
    AllOf,
    AnyOf,
    Count,
    CountKind,
    OperatorOnly,
    ResumeCondition,
    Single,
    TimeoutOnly,
)

DEPTH_MAX: Final = 4
NODES_MAX: Final = 64
COUNT_MAX: Final = 1_000
RESERVED_PREFIX: Final = "__"  # reserved: no signal may have these names


def check_condition(condition: object) -> ResumeCondition:
    """A condition that can be satisfied, within bounds; a problem names its path."""
    if isinstance(condition, OperatorOnly | TimeoutOnly):
        return condition
    count = _check(condition, "", 0)
    if count > NODES_MAX:
        raise _bad(f"{count} nodes are over the limit {NODES_MAX}", "")
    checked: ResumeCondition = condition  # type: ignore[assignment]  # its kind was just checked
    return checked


def _check(node: object, path: str, depth: int) -> int:
    match node:
        case Single():
            _check_key(node.waitpoint_key, path)
            _check_name(node.signal_name, path)
            return 1
        case Count():
            _check_depth(depth + 1, path)
            _check_count(node, path)
            return 1
        case AllOf() | AnyOf():
            _check_depth(depth + 1, path)
            _check_tuple(node.members, "members", path)
            if not node.members:
                word = "allof" if isinstance(node, AllOf) else "anyof"
                raise _bad(f"{word}_empty_members", path)
            return 1 + sum(
                _check(member, f"{path}.members[{index}]".lstrip("."), depth + 1)
                for index, member in enumerate(node.members)
            )
        case OperatorOnly() | TimeoutOnly():
            raise _bad("can never be satisfied inside another condition", path)
        case _:
            raise _bad(f"expected a condition, got {type(node).__name__}", path)


def _check_tuple(value: object, word: str, path: str) -> None:
    if not isinstance(value, tuple | list):
        raise _bad(f"{word}: expected a tuple, got {type(value).__name__}", path)


def _check_depth(depth: int, path: str) -> None:
    if depth > DEPTH_MAX:
        raise _bad(f"depth {depth} exceeds cap {DEPTH_MAX}", path)


def _check_count(node: Count, path: str) -> None:
    if not isinstance(node.n, int) or isinstance(node.n, bool):
        raise _bad(f"n: expected a whole number, got {type(node.n).__name__}", path)
    if not isinstance(node.count_kind, CountKind):
        raise _bad(f"count_kind: expected a CountKind, got {shown(node.count_kind)}", path)
    _check_tuple(node.waitpoints, "waitpoints", path)
    if node.n < 1:
        raise _bad("count_n_zero", path)
    if node.n > COUNT_MAX:
        raise _bad(f"n: {shown(node.n)} is over the limit {COUNT_MAX}", path)
    if not node.waitpoints:
        raise _bad("count_waitpoints_empty", path)
    for key in node.waitpoints:
        _check_key(key, path)
    if len(set(node.waitpoints)) != len(node.waitpoints):
        raise _bad("waitpoints: a key is listed twice", path)
    if node.count_kind is CountKind.DISTINCT_WAITPOINTS and node.n > len(node.waitpoints):
        size = len(node.waitpoints)
        raise _bad(f"count_exceeds_waitpoint_set: n={node.n} > waitpoints.len()={size}", path)
    _check_name(node.signal_name, path)


def _check_key(key: object, path: str) -> None:
    _check_text(key, "waitpoint_key", path)


def _check_text(value: object, word: str, path: str) -> str:
    try:
        return check_name(value, field=word)
    except InvalidInput as error:
        raise _bad(error.detail, path) from None


def _check_name(name: object, path: str) -> None:
    if name is None:
        return
    if name == "":
        raise _bad("empty signal name (leave it out to accept any)", path)
    if _check_text(name, "signal_name", path).startswith(RESERVED_PREFIX):
        raise _bad(f"signal names beginning with {RESERVED_PREFIX} are reserved", path)


def _bad(what: str, path: str) -> InvalidInput:
    where = path or "<root>"
    return InvalidInput(f"resume_condition: {what} at {where}", field="resume_condition")
