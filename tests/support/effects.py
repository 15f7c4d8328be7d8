"""What bodies of steps did, and what must be true of it beside the journal they left."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection
from typing import Any

import msgspec

from flowfabric.model.journal import EntryKind, EntryRow, EntryState

_ENDS = (EntryState.OK, EntryState.FAILED)
_BODIES = (EntryKind.STEP, EntryKind.STARTED, EntryKind.RETRYING)


class Effect(msgspec.Struct, kw_only=True):
    """One run of a body."""

    execution_id: str
    key: str
    epoch: int  # of the lease under which it ran
    attempt: int  # of the step
    has_effects: bool
    inputs: list[str]  # its arguments
    known: list[str]  # every result the handler had been given when it began
    result: str | None  # none: it raised
    digest: str = ""  # of its arguments


def digest_of(*arguments: Any) -> str:
    """As the journal has it of a call with these arguments."""
    encoded = msgspec.json.encode([arguments, {}], order="deterministic")
    return hashlib.blake2b(encoded, digest_size=8).hexdigest()


def check_steps(
    notes: list[Effect], journal: list[EntryRow], heard: Collection[str] = frozenset()
) -> None:
    """By leases, which are strictly one after the other, not by clocks. `heard`: the words that
    executions were told from outside, in signals."""
    ends: dict[tuple[str, str], EntryRow] = {}
    for row in sorted(journal, key=lambda row: (row.execution_id, row.position)):
        if row.kind in _BODIES:
            ends[row.execution_id, row.key] = row
    assert all(row.state in _ENDS for row in ends.values())
    runs = Counter((each.execution_id, each.key, each.epoch, each.attempt) for each in notes)
    assert set(runs.values()) <= {1}, "a body ran twice under one lease"
    recorded = results(journal)
    outside = set(heard)
    durable = outside.union(*recorded.values())  # children tell their parents
    told: dict[tuple[str, str], str] = {}
    for each in notes:
        end = ends.get((each.execution_id, each.key))
        assert end is not None, f"{each.key} ran and has no entry"
        assert each.epoch <= end.lease_epoch, f"{each.key} ran again after it was recorded"
        if each.has_effects:
            inputs = {word for word in (*each.inputs, *each.known) if "=" in word}
            missing = inputs - durable
            assert not missing, f"{each.key} began with what was not durable: {missing}"
            for word in inputs & outside:
                name = each.execution_id, word.partition("=")[0]
                assert told.setdefault(name, word) == word, f"{name} was told two different words"
            if each.digest and end.digest is not None:
                assert end.digest.hex() == each.digest, f"{each.key} began with other arguments"
    done = {each.result for each in notes}
    for words in recorded.values():
        assert words <= done, "a result was recorded that no body returned"


def results(journal: list[EntryRow]) -> dict[str, set[str]]:
    """What the steps of each execution returned, as recorded."""
    found: dict[str, set[str]] = {}
    for row in journal:
        if row.kind in _BODIES and row.state is EntryState.OK and row.value is not None:
            found.setdefault(row.execution_id, set()).add(msgspec.json.decode(row.value))
    return found


def leaves(result: Any) -> list[str]:
    """The words in a result."""
    if isinstance(result, str):
        return [result]
    several = result.values() if isinstance(result, dict) else result
    return [leaf for each in several for leaf in leaves(each)]


def keys_of(result: Any) -> Any:
    """A result with the key of the step in the place of each word."""
    if isinstance(result, str):
        return result.partition("=")[0]
    if isinstance(result, dict):
        return {name: keys_of(each) for name, each in result.items()}
    return [keys_of(each) for each in result]
