"""Resume conditions: one pure, monotone answer over the signals there are.

A signal contributes when it adds something no earlier one did. Only contributions are needed to
evaluate a condition, so a crowd of repeated signals costs nothing, and the answer never depends on
order or duplication.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from flowfabric.model.suspension import (
    AllOf,
    AnyOf,
    Contribution,
    Count,
    CountKind,
    ResumeCondition,
    Single,
)

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


def counted(
    condition: ResumeCondition, signals: Iterable[Contribution]
) -> tuple[Contribution, ...]:
    """Those signals, of all in the order they came, that add something."""
    found: list[Contribution] = []
    for each in signals:
        if contributes(condition, found, each):
            found.append(each)
    return tuple(found)


def met_by(
    condition: ResumeCondition, signals: Iterable[Contribution]
) -> tuple[Contribution, ...] | None:
    """The signals that satisfy the condition, up to the one that completes it; None if none
    does."""
    found = counted(condition, signals)
    for size in range(1, len(found) + 1):
        if is_met(condition, found[:size]):
            return found[:size]
    return None


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
