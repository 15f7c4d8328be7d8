"""Unique keys: what a submit means while another execution has its key.

The row of a key is inserted with the execution that gets it, so rivals collide, and is dropped with
its end, or with its start (`UniqueWhile.WAITING`).
"""

from __future__ import annotations

from typing import Final

from flowfabric.errors import UniqueConflict
from flowfabric.kernel.command import Needs
from flowfabric.kernel.decision import Decision, Moment, refuse
from flowfabric.kernel.execution.cancel import stop
from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.kernel.execution.transition import wait_until
from flowfabric.model.execution import Body, Execution
from flowfabric.model.record import Record, json_lists, replace, to_json
from flowfabric.model.results import Batched, CreateResult, Debounced, Existing
from flowfabric.model.state import BlockingReason, EligibilityState
from flowfabric.model.unique import Unique, UniqueRow
from flowfabric.model.words import OnConflict, UniqueWhile

UniqueKey = tuple[str, str, str]

REPLACED_BY: Final = "unique"  # the source of the cancel
_FREE_TO_WAIT = (EligibilityState.ELIGIBLE_NOW, EligibilityState.NOT_ELIGIBLE_UNTIL_TIME)


class CreateUnique(CreateExecution, frozen=True, kw_only=True):
    """Record new work under a key that one live execution may have."""

    unique: Unique

    @property
    def unique_key(self) -> UniqueKey:
        """The row of its key."""
        return (self.route.namespace, self.route.execution_kind, self.unique.key)

    def needs(self, need: Needs) -> None:
        """Also the key, and the execution that has it."""
        super().needs(need)
        need.executions.add(self.execution_id)
        need.uniques.add(self.unique_key)


def key_of(execution: Execution) -> UniqueKey | None:
    """The row of the unique key of an execution."""
    unique = execution.ties.unique
    if unique is None:
        return None
    return (execution.namespace, execution.execution_kind, unique.key)


def gives_up_key(before: Execution, after: Execution) -> bool:
    """Whether a change ends the hold of an execution on its key."""
    unique = after.ties.unique
    if unique is None:
        return False
    if after.is_terminal:
        return not before.is_terminal
    starts = not before.total_attempt_count and after.total_attempt_count > 0
    return starts and unique.while_ is UniqueWhile.WAITING


def has_key(execution: Execution | None, unique: Unique) -> bool:
    """Whether the execution that a row names still has the key."""
    if execution is None or execution.is_terminal:
        return False
    return unique.while_ is UniqueWhile.UNFINISHED or not execution.total_attempt_count


def begun(command: CreateUnique, at: Moment) -> CreateUnique:
    """The command as it is to be decided: one that gathers or settles starts later."""
    wait_ms = command.unique.debounce_ms or command.unique.batch_ms
    if not wait_ms:
        return command
    most = command.unique.debounce_max_ms
    if most is not None and command.unique.debounce_ms is not None:
        wait_ms = min(wait_ms, most)
    return replace(command, delay_until=at.now + wait_ms)


def row_of(command: CreateUnique, at: Moment) -> UniqueRow:
    """The row of a key, for a new execution."""
    items = 0 if command.unique.batch_items is None else count_items(command.body.payload)
    return UniqueRow(*command.unique_key, command.execution_id, at.now, items)


class Met(Record, frozen=True):
    """What a submit means to the execution that has its key.

    `decision`: its next image and the reply; the reply is None where a new one is to be created.
    `payload`: its new arguments. `row`: the next image of the row; `drops`: the key is free.
    """

    decision: Decision[CreateResult | None]
    payload: bytes | None = None
    row: UniqueRow | None = None
    drops: bool = False


def meet(
    row: UniqueRow, other: Execution, body: Body | None, command: CreateUnique, at: Moment
) -> Met:
    """Another execution has the key. `body`: its arguments, where the submit adds to them."""
    unique = command.unique
    if unique.debounce_ms is not None:
        return _settle(row, other, unique.debounce_ms, command, at)
    if unique.batch_items is not None and body is not None:
        return _gather(row, other, body, unique.batch_items, command, at)
    if unique.on_conflict is OnConflict.EXISTING:
        return Met(Decision(Existing(other.execution_id)))
    if unique.on_conflict is OnConflict.REFUSE:
        detail = f"unique: {unique.key!r} is taken by {other.execution_id}"
        fields = {"field": "unique", "execution_id": other.execution_id}
        return Met(refuse(UniqueConflict, detail, **fields))
    reason = f"replaced by {command.execution_id}"
    return Met(stop(other, reason, REPLACED_BY, at).told(None), drops=True)


def _settle(
    row: UniqueRow, other: Execution, wait_ms: int, command: CreateUnique, at: Moment
) -> Met:
    """Its arguments are replaced and its start moves, up to the maximum."""
    until = at.now + wait_ms
    if (most := command.unique.debounce_max_ms) is not None:
        until = min(until, row.opened_at + most)
    moved = _starting_at(other, until, at)
    reply = Debounced(other.execution_id, until)
    return Met(Decision(reply, moved), command.body.payload)


def _gather(
    row: UniqueRow,
    other: Execution,
    body: Body,
    most: int,
    command: CreateUnique,
    at: Moment,
) -> Met:
    """The items are added to the others. What is full or due takes no more."""
    count = count_items(command.body.payload)
    is_due = at.now >= row.opened_at + (command.unique.batch_ms or 0)
    together = None
    if not is_due and row.items + count <= most:
        together = joined(body.payload, command.body.payload)
    if together is None or len(together) > at.payload_bytes_max:
        return Met(Decision(None, _starting_at(other, at.now, at)), drops=True)
    reply = Batched(other.execution_id, row.items)
    grown = replace(row, items=row.items + count)
    if grown.items < most:
        return Met(Decision(reply), together, grown)
    return Met(Decision(reply, _starting_at(other, at.now, at)), together, drops=True)


def _starting_at(execution: Execution, until: int, at: Moment) -> Execution:
    moved = replace(execution, eligible_at=until, last_mutation_at=at.now, grant=None)
    if execution.state.eligibility_state not in _FREE_TO_WAIT:
        return moved  # its delay goes on under another block
    reason = BlockingReason.WAITING_FOR_DELAY
    state, detail = wait_until(until, execution.state.attempt_state, at.now, reason)
    return replace(moved, state=state, blocking_detail=detail, last_transition_at=at.now)


# --- batches -------------------------------------------------------------------------------------


def count_items(payload: bytes) -> int:
    """How many items the one argument of a payload has; -1: it is no list.

    >>> count_items(b'{"rows": [1, 2]}'), count_items(b'{"rows": 1}')
    (2, -1)
    """
    given = json_lists(payload)
    return -1 if len(given) != 1 else len(next(iter(given.values())))


def joined(first: bytes, second: bytes) -> bytes | None:
    """The items of two payloads in one; None where their arguments have other names.

    >>> joined(b'{"rows": [1]}', b'{"rows":[2, 3]}')
    b'{"rows":[1,2,3]}'
    """
    one, other = json_lists(first), json_lists(second)
    if one.keys() != other.keys():
        return None
    return to_json({name: [*items, *other[name]] for name, items in one.items()})
