"""Every declared log, on every store: written, read by position, trimmed by age."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from flowfabric.engine.due_work import trim_logs
from flowfabric.model.event import (
    BudgetEvent,
    BudgetEventType,
    CompletionEvent,
    LeaseEvent,
    LeaseEventType,
    OperatorEvent,
    OperatorEventType,
    SignalEvent,
)
from flowfabric.model.failure import Failing, FailureEntry
from flowfabric.model.flow import FlowEvent, FlowEventType
from flowfabric.model.record import Record
from flowfabric.model.state import TerminalOutcome
from flowfabric.model.statistic import Counted, WorkCount
from flowfabric.model.worker import WorkerEvent, WorkerEventType
from flowfabric.stores.base import Changes
from flowfabric.stores.logs import BEFORE_ALL, LOG_OF, LOGS, Log, LogQuery, Position
from tests.support.backdoor import Backdoor
from tests.support.lab import Lab, scenario

ID: Final = "{fp:1}:01890000-0000-7000-8000-000000000000"
Entries = list[tuple[Position, Any]]


def tags(at: int) -> dict[str, str]:
    """Of every second event; the others have none."""
    return {"a.b": 'c"\\'} if at % 2 else {}


# An event of each kind that happened at an instant. Every value that may be absent is so at times.
TOLD: Final[dict[type[Record], Callable[[int], Record]]] = {
    LeaseEvent: lambda at: LeaseEvent(
        execution_id=ID,
        event_type=LeaseEventType.EXPIRED,
        reason="lost",
        lease_epoch=1 << 40,
        attempt_index=2,
        worker_id=None if at % 2 else "w",
        worker_instance_id=None if at % 2 else "w-1",
        namespace="ns",
        tags=tags(at),
        occurred_at=at,
        took_ms=None if at % 2 else 7,
    ),
    CompletionEvent: lambda at: CompletionEvent(
        execution_id=ID,
        outcome=TerminalOutcome.SKIPPED,
        attempt_index=None if at % 2 else 0,
        flow_id=None if at % 2 else "f",
        namespace="ns",
        tags=tags(at),
        occurred_at=at,
        took_ms=None if at % 2 else 7,
    ),
    OperatorEvent: lambda at: OperatorEvent(
        subject="x",
        event_type=OperatorEventType.HELD,
        details={"n": 1, "deep": [None, {}]} if at % 2 else {},
        namespace="ns",
        tags=tags(at),
        occurred_at=at,
        actor="ann" if at % 2 else "",
    ),
    SignalEvent: lambda at: SignalEvent(
        execution_id=ID,
        waitpoint_id="p",
        signal_id="s",
        signal_name="go",
        source_type="user",
        source_identity="",
        effect="resumed",
        namespace="ns",
        tags=tags(at),
        occurred_at=at,
    ),
    BudgetEvent: lambda at: BudgetEvent(
        budget_id="b",
        event_type=BudgetEventType.SOFT_BREACH,
        details={"n": 1} if at % 2 else {},
        namespace="",
        occurred_at=at,
    ),
    FlowEvent: lambda at: FlowEvent("f", FlowEventType.REOPENED, "ns", tags(at), at),
    WorkCount: lambda at: WorkCount("ns", "lane", "kind", Counted.RETRIED, 3, at),
    FailureEntry: lambda at: FailureEntry(
        "{fp:1}:01890000-0000-7000-8000-000000000003",
        0,
        "ns",
        "lane",
        "kind",
        "f" * 16,
        "ValueError",
        "no",
        Failing.FAILED,
        at,
        exception="ValueError",
        frame="shop:charge",
        line=7,
        version="v2",
    ),
    WorkerEvent: lambda at: WorkerEvent("ns", "w-1", WorkerEventType.TTL_SWEPT, "", at),
}

every_log = pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)


async def append(lab: Lab, events: Sequence[Record]) -> None:
    """All in one transaction."""
    changes = Changes()
    for event in events:
        changes.log(event)
    await lab.direct.store.transact(lambda tx: tx.save(changes))


async def told(lab: Lab, log: Log[Any], *instants: int) -> list[Record]:
    """New events of a log, in one transaction."""
    events = [TOLD[log.record](at) for at in instants]
    await append(lab, events)
    return events


async def read(lab: Lab, log: Log[Any], after: Position | None = None, limit: int = 100) -> Entries:
    query = LogQuery(after=after or BEFORE_ALL, limit=limit)
    return await lab.direct.store.read(lambda reader: reader.read_log(log, query))


async def trim(lab: Lab, until: int, limit: int = 100) -> int:
    return await lab.direct.store.transact(lambda tx: trim_logs(tx, until, limit))


def test_every_kind_of_event_is_tried() -> None:
    assert TOLD.keys() == LOG_OF.keys()


@every_log
@scenario
async def test_events_are_read_as_they_were_written_page_by_page(lab: Lab, log: Log[Any]) -> None:
    """In the order of the transactions, and of the events in each; nothing twice."""
    events = [*await told(lab, log, 1, 2, 3, 4), *await told(lab, log, 5, 6, 7)]
    found: Entries = []
    for size in (3, 3, 1, 0):
        page = await read(lab, log, found[-1][0] if found else None, 3)
        assert len(page) == size
        found += page
    assert [event for _, event in found] == events
    positions = [position for position, _ in found]
    assert positions == sorted(set(positions))
    assert await read(lab, log) == found
    assert (await lab.dump())[log.dumped_as] == events


@every_log
@scenario
async def test_many_events_of_one_transaction_keep_their_order(lab: Lab, log: Log[Any]) -> None:
    """Stores write many rows by other statements than few."""
    events = await told(lab, log, *range(237))
    assert [event for _, event in await read(lab, log, limit=1000)] == events


@scenario
async def test_a_transaction_appends_to_every_log_at_once(lab: Lab) -> None:
    events = [TOLD[log.record](at) for at in (1, 2) for log in reversed(LOGS)]
    await append(lab, events)
    for log in LOGS:
        assert [event for _, event in await read(lab, log)] == [
            TOLD[log.record](1),
            TOLD[log.record](2),
        ]


@every_log
@scenario
async def test_a_trimmed_log_goes_on_where_it_was(lab: Lab, log: Log[Any]) -> None:
    """A cursor stays good: positions are not used again. The newest stays even when it is old."""
    await told(lab, log, 1, 2, 3, 50)
    entries = await read(lab, log)
    assert await trim(lab, 50, limit=1) == 1
    assert await read(lab, log) == entries[1:]
    assert await trim(lab, 3) == 1
    assert await read(lab, log) == entries[2:]
    assert await trim(lab, 100) == 1
    assert await read(lab, log) == entries[3:]
    assert await trim(lab, 100) == 0
    (event,) = await told(lab, log, 60)
    ((position, found),) = await read(lab, log, entries[-1][0])
    assert (position > entries[-1][0], found) == (True, event)


@every_log
@scenario
async def test_a_transaction_that_fails_leaves_no_event(lab: Lab, log: Log[Any]) -> None:
    await told(lab, log, 1, 2)
    before = await read(lab, log)

    async def work(tx: Any) -> None:
        changes = Changes()
        changes.log(TOLD[log.record](3))
        await tx.save(changes)
        await trim_logs(tx, 9, 10)
        raise LookupError

    with pytest.raises(LookupError):
        await lab.direct.store.transact(work)
    assert await read(lab, log) == before
    (event,) = await told(lab, log, 4)
    assert [found for _, found in await read(lab, log, before[-1][0])] == [event]


@every_log
def test_an_unreadable_event_is_passed_over_and_reported(durable_lab: Lab, log: Log[Any]) -> None:
    """The page is filled with later ones, and doctor names the one that is left out."""
    lab = durable_lab

    async def story() -> None:
        await told(lab, log, 1, 2, 3, 4, 5)
        entries = await read(lab, log)
        column = next(each for each in ("tags", "event_type", "counted") if each in log.names)
        first, third = entries[0][0], entries[2][0]
        await lab.sql(f"UPDATE {log.name} SET {column} = '{{' WHERE event_id IN ({first}, {third})")
        assert await read(lab, log, limit=2) == [entries[1], entries[3]]
        assert await read(lab, log, entries[1][0], 2) == entries[3:]
        named = {each.subject for each in (await lab.engine.doctor()).problems}
        assert {f"{log.name} {first}", f"{log.name} {third}"} <= named

    lab.run(story())


@every_log
def test_bytes_that_are_not_text_are_passed_over(durable_lab: Lab, log: Log[Any]) -> None:
    """SQLite alone keeps such bytes in a column of text; PostgreSQL refuses them."""
    lab = durable_lab

    async def story() -> None:
        await told(lab, log, 1, 2)
        (first, _), second = await read(lab, log)
        text = "CAST(x'61ff62' AS TEXT)"
        await lab.sql(f"UPDATE {log.name} SET namespace = {text} WHERE event_id = {first}")
        assert await read(lab, log) == [second]

    if lab.engine.backend_label() == "sqlite":
        lab.run(story())


def test_a_map_without_anything_in_it_is_stored_as_no_value(durable_lab: Lab) -> None:
    """Most events have no tags: that must cost no bytes. Words are stored as they are."""
    lab = durable_lab

    async def story() -> None:
        await append(lab, [TOLD[OperatorEvent](at) for at in (1, 2)])
        door = Backdoor(lab)
        await door.open()
        rows = await door.rows(
            "SELECT event_type, details, tags, actor FROM ff_operator_event ORDER BY event_id"
        )
        await door.close()
        assert rows == [
            ("held", '{"n":1,"deep":[null,{}]}', '{"a.b":"c\\"\\\\"}', "ann"),
            ("held", None, None, ""),
        ]

    lab.run(story())
