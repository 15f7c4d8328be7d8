"""Resume conditions: one pure, monotone answer over the signals there are.

A signal contributes when it adds something no earlier one did. Only contributions are needed to
evaluate a condition, so a crowd of repeated signals costs nothing, and the answer never depends on
order or duplication.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flowfabric.errors import InvalidInput
from flowfabric.model.checks import check_name
from flowfabric.model.shown import shown
from flowfabric.model.suspension import (
    AllOf,
    AnyOf,
    Contribution,
    Count,
    CountKind,
    OperatorOnly,
    ResumeCondition,
    Single,
    TimeoutOnly,
)

DEPTH_MAX = 4
NODES_MAX = 64
COUNT_MAX = 1_000
RESERVED_PREFIX = "__"  # names no signal may have

Token = tuple[str, str]  # the node, and what it counts


def is_met(condition: ResumeCondition, signals: Sequence[Contribution]) -> bool:
    """Whether the signals satisfy the condition."""
    match condition:
        case Single():
            return any(_matches(condition, each) for each in signals)
        case AllOf():
            return all(is_met(member, signals) for member in condition.members)
        case AnyOf():
            return any(is_met(member, signals) for member in condition.members)
        case Count():
            found = {_counted(condition, each) for each in signals if _matches(condition, each)}
            return len(found) >= condition.n
        case _:
            return False


def _matches(node: Single | Count, signal: Contribution) -> bool:
    keys = (node.waitpoint_key,) if isinstance(node, Single) else node.waitpoints
    return signal.waitpoint_key in keys and node.signal_name in (None, signal.signal_name)


def _counted(node: Count, signal: Contribution) -> str:
    match node.count_kind:
        case CountKind.DISTINCT_WAITPOINTS:
            return signal.waitpoint_key
        case CountKind.DISTINCT_SIGNALS:
            return signal.signal_id
        case CountKind.DISTINCT_SOURCES:
            return f"{signal.source_type}\x1f{signal.source_identity}"


def _leaves(condition: ResumeCondition, path: str = "") -> Iterator[tuple[str, Single | Count]]:
    match condition:
        case Single() | Count():
            yield path, condition
        case AllOf() | AnyOf():
            for index, member in enumerate(condition.members):
                yield from _leaves(
                    member, f"{path}.members[{index}]" if path else f"members[{index}]"
                )
        case _:
            return


def tokens_of(condition: ResumeCondition, signal: Contribution) -> set[Token]:
    """What one signal says to each leaf of the condition."""
    return {
        (path, "" if isinstance(leaf, Single) else _counted(leaf, signal))
        for path, leaf in _leaves(condition)
        if _matches(leaf, signal)
    }


def contributes(
    condition: ResumeCondition, before: Sequence[Contribution], signal: Contribution
) -> bool:
    """Whether a signal adds something no earlier one did."""
    known: set[Token] = set()
    for each in before:
        known |= tokens_of(condition, each)
    return bool(tokens_of(condition, signal) - known)


def keys_of(condition: ResumeCondition) -> list[str]:
    """Every waitpoint key the condition refers to, first seen first."""
    if type(condition) is Single:
        return [condition.waitpoint_key]
    found: dict[str, None] = {}
    for _, leaf in _leaves(condition):
        keys = (leaf.waitpoint_key,) if isinstance(leaf, Single) else leaf.waitpoints
        found.update(dict.fromkeys(keys))
    return list(found)


def names_for(condition: ResumeCondition, waitpoint_key: str) -> tuple[str, ...]:
    """The signal names a waitpoint waits for; empty when any will do."""
    names: dict[str, None] = {}
    for _, leaf in _leaves(condition):
        keys = (leaf.waitpoint_key,) if isinstance(leaf, Single) else leaf.waitpoints
        if waitpoint_key in keys:
            if leaf.signal_name is None:
                return ()
            names[leaf.signal_name] = None
    return tuple(names)


# --- what a condition may look like ------------------------------------------------------------


def check_condition(condition: object) -> ResumeCondition:
    """A condition that can be satisfied, within bounds; a problem names its place."""
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
        raise _bad("waitpoints: a key stands twice", path)
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
