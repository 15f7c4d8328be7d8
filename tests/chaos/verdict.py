"""What must be true of a store whatever happened to its clients. Reads records, calls no rule."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from flowfabric.model.attempt import Attempt, AttemptOutcome
from flowfabric.model.event import LeaseEvent, LeaseEventType
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace

Dump = dict[str, list[Any]]
_BEGINS = (LeaseEventType.ACQUIRED, LeaseEventType.RECLAIMED)


def check_store(dump: Dump) -> None:
    """I2, I4, I5, I7 from what is written."""
    executions: dict[str, Execution] = {e.execution_id: e for e in dump["executions"]}
    ended = Counter(event.execution_id for event in dump["completion_events"])
    for key, execution in executions.items():
        assert ended[key] == int(execution.is_terminal), f"{key}: {ended[key]} completion events"
    assert set(ended) <= set(executions)
    outcomes = Counter((each.execution_id, each.attempt_index) for each in dump["attempts"])
    assert not [key for key, times in outcomes.items() if times > 1], "an attempt ended twice"
    check_leases(dump)


def check_leases(dump: Dump) -> None:
    """No two leases of one execution are ever valid at once, and epochs strictly rise (I4)."""
    by_execution: dict[str, list[LeaseEvent]] = defaultdict(list)
    for event in dump["lease_events"]:
        by_execution[event.execution_id].append(event)
    ended = {(each.execution_id, each.lease_epoch): each for each in dump["attempts"]}
    for key, history in by_execution.items():
        owner: LeaseEvent | None = None
        last_epoch, last_time = 0, 0
        for event in _with_implied_releases(history, ended):
            begins = event.event_type in _BEGINS
            assert begins == (owner is None), f"{key}: {event.event_type} after {owner}"
            assert event.occurred_at >= last_time, f"{key}: events out of order"
            if begins:
                assert event.lease_epoch > last_epoch, f"{key}: epoch {event.lease_epoch} again"
                last_epoch = event.lease_epoch
            else:
                assert owner is not None
                assert event.lease_epoch == owner.lease_epoch, f"{key}: another lease ended"
                assert event.worker_instance_id == owner.worker_instance_id
            owner = event if begins else None
            last_time = event.occurred_at


def _with_implied_releases(
    history: Sequence[LeaseEvent], ended: Mapping[tuple[str, int], Attempt]
) -> Iterator[LeaseEvent]:
    """The end of an execution releases its lease without a lease event: the attempt says so."""
    for event, following in zip(history, [*history[1:], None], strict=True):
        yield event
        attempt = ended.get((event.execution_id, event.lease_epoch))
        is_silent = following is None or following.event_type in _BEGINS
        if event.event_type in _BEGINS and is_silent and attempt is not None:
            yield replace(
                event,
                event_type=LeaseEventType.RELEASED,
                worker_instance_id=attempt.worker_instance_id,
                occurred_at=attempt.ended_at,
            )


def check_acknowledged(
    dump: Dump, made: Iterable[tuple[str, str]], done: Iterable[tuple[str, int]]
) -> tuple[int, int]:
    """I1: what a client was told is there. Returns how much that was."""
    executions: dict[str, Execution] = {e.execution_id: e for e in dump["executions"]}
    keys = {each.idempotency_key: each.execution_id for each in dump["ff_idempotency"]}
    epochs = {
        each.execution_id: each.lease_epoch
        for each in dump["attempts"]
        if each.outcome is AttemptOutcome.ENDED_SUCCESS
    }
    creations = completions = 0
    for key, execution_id in made:
        creations += 1
        assert execution_id in executions, f"an acknowledged create is lost: {execution_id}"
        assert keys.get(key) == execution_id, f"the key {key} names another execution"
    for execution_id, epoch in done:
        completions += 1
        execution = executions.get(execution_id)
        assert execution is not None, f"an acknowledged completion is lost: {execution_id}"
        assert execution.public_state.value == "completed", f"{execution_id} is not completed"
        assert epochs[execution_id] == epoch, f"{execution_id} was completed by another lease"
    return creations, completions
