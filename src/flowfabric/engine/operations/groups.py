"""Consumer groups: handing out stretches of the feed, and taking their acknowledgements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from flowfabric import limits
from flowfabric.api import groups as api
from flowfabric.api.hints import group_topic
from flowfabric.api.page import Page, at_name
from flowfabric.engine.acts import act_now, settle
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.audit import note_act
from flowfabric.engine.operations.feed import Feed, Scan
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers
from flowfabric.engine.operations.waiting import left_s, wait_until
from flowfabric.engine.unit.records import Rows
from flowfabric.engine.unit.view import EVERY_WAITER
from flowfabric.errors import CursorExpired, InvalidInput, NotFound, ResourceExhausted
from flowfabric.kernel import group as rules
from flowfabric.kernel.feed import SUBJECTS
from flowfabric.model.checks import check_flag, check_integer, check_name
from flowfabric.model.event import OperatorEvent, OperatorEventType
from flowfabric.model.group import (
    Acknowledged,
    ConsumerGroup,
    Delivery,
    DeliveryRow,
    GroupCreated,
    GroupDeleted,
    GroupRow,
)
from flowfabric.model.record import replace
from flowfabric.stores.base import Changes, Reader, Transaction
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import DELIVERIES, GROUPS

_LISTING: Final = Listing("list_consumer_groups", at_name)
_LOOK_S: Final = 1.0  # how late a consumer may notice an acknowledgement when its hint is lost


class _Group(NamedTuple):
    """A group with what it has handed out."""

    row: GroupRow
    deliveries: list[DeliveryRow]
    feed: Feed

    def delivery(self, number: int) -> DeliveryRow | None:
        found = [each for each in self.deliveries if each.number == number]
        return found[0] if found else None


def _feed(machine: Machine, row: GroupRow, limit: int) -> Feed:
    return Feed(machine, row.kinds, row.filter, limit, has_begun=True)


async def _deliveries(reader: Reader, group_id: str) -> list[DeliveryRow]:
    return await reader.search(Search(by_key(DELIVERIES), ((group_id,),)))


async def _held(machine: Machine, tx: Transaction, group_id: str, limit: int = 1) -> _Group:
    """The group, locked, and with it its deliveries."""
    await tx.catalog()  # with the clock
    key = (group_id,)
    row = (await tx.rows(GROUPS, [key])).get(key)
    if row is None:
        raise NotFound(f"consumer group {group_id}", entity="consumer_group")
    feed = _feed(machine, row, limit)
    return _Group(row, await _deliveries(tx, group_id), feed)


def _rows_of(group: _Group) -> Rows:
    rows = Rows()
    rows.take(GROUPS, {GROUPS.key_of(group.row): group.row})
    rows.take(DELIVERIES, {DELIVERIES.key_of(each): each for each in group.deliveries})
    return rows


async def _save(tx: Transaction, rows: Rows, *events: OperatorEvent) -> None:
    changes = Changes()
    changes.rows = rows.changes()
    for event in events:
        changes.log(event)
    await tx.save(changes)


# --- groups --------------------------------------------------------------------------------------


@answers(api.CreateConsumerGroup)
async def create_consumer_group(machine: Machine, request: api.CreateConsumerGroup) -> GroupCreated:
    """Make it, or give it what was asked for."""
    name = check_name(request.group_id, field="group_id")
    feed = Feed(machine, request.kinds, request.filter, 1)
    start, reset = feed.start(request.after), check_flag(request.reset, field="reset")
    redeliver_ms = check_integer(
        request.redeliver_ms,
        field="redeliver_ms",
        least=limits.REDELIVER_MS_MIN,
        most=limits.REDELIVER_MS_MAX,
    )
    actor, act = machine.actor(request.actor), act_now()

    async def work(tx: Transaction) -> GroupCreated:
        await tx.catalog()  # with the clock
        rows = Rows()
        found = (await tx.rows(GROUPS, [(name,)])).get((name,))
        ends = await feed.ends(tx)
        places = ends if start is None else start
        if request.after is None:
            places = await feed.oldest(tx)
        if found is None:
            every = Search(by_key(GROUPS), limit=limits.GROUPS_MAX)
            if len(await tx.search_keys(every)) >= limits.GROUPS_MAX:
                detail = f"group_id: {limits.GROUPS_MAX} groups exist; delete one"
                raise ResourceExhausted(detail, field="group_id", limit=limits.GROUPS_MAX)
            now = tx.now
            new = GroupRow(name, feed.kinds, request.filter, places, redeliver_ms, 0, 0, now, now)
            rows.put(GROUPS, new)
            event = _event(new, OperatorEventType.GROUP_CREATED, actor, now)
            note_act(machine, rows, act, event, now)
            await _save(tx, rows, event)
            return GroupCreated(name, True, feed.cursor(places))
        rows.take(GROUPS, {(name,): found})
        given = (feed.kinds, request.filter, redeliver_ms)
        open_ones = await _deliveries(tx, name)
        position = rules.position_of(found, open_ones)
        if (found.kinds, found.filter, found.redeliver_ms) == given and not reset:
            return GroupCreated(name, False, feed.cursor(position))
        position = places if reset else rules.moved(position, feed.kinds, ends)
        rows.take(DELIVERIES, {DELIVERIES.key_of(each): each for each in open_ones})
        rows.drop(DELIVERIES, [DELIVERIES.key_of(each) for each in open_ones])
        kinds, wanted, _ = given
        changed = replace(
            found,
            kinds=kinds,
            filter=wanted,
            redeliver_ms=redeliver_ms,
            places=position,
            moved_at=tx.now,
        )
        rows.put(GROUPS, changed)
        event = _event(changed, OperatorEventType.GROUP_CHANGED, actor, tx.now)
        note_act(machine, rows, act, event, tx.now)
        await _save(tx, rows, event)
        return GroupCreated(name, False, feed.cursor(position))

    done = await machine.transact(work)
    settle(act)
    return done


@answers(api.DeleteConsumerGroup)
async def delete_consumer_group(machine: Machine, request: api.DeleteConsumerGroup) -> GroupDeleted:
    """With its deliveries."""
    name = check_name(request.group_id, field="group_id")
    actor, act = machine.actor(request.actor), act_now()

    async def work(tx: Transaction) -> GroupDeleted:
        group = await _held(machine, tx, name)
        rows = _rows_of(group)
        rows.drop(DELIVERIES, [DELIVERIES.key_of(each) for each in group.deliveries])
        rows.drop(GROUPS, [(name,)])
        event = _event(group.row, OperatorEventType.GROUP_DELETED, actor, tx.now)
        note_act(machine, rows, act, event, tx.now)
        await _save(tx, rows, event)
        return GroupDeleted(name)

    done = await machine.transact(work)
    settle(act)
    return done


def _event(row: GroupRow, kind: OperatorEventType, actor: str, now: int) -> OperatorEvent:
    details = {"kinds": [each.value for each in row.kinds], "redeliver_ms": row.redeliver_ms}
    return OperatorEvent(row.group_id, kind, details, row.filter.namespace or "", {}, now, actor)


@answers(api.ListConsumerGroups)
async def list_consumer_groups(
    machine: Machine, request: api.ListConsumerGroups
) -> Page[ConsumerGroup]:
    """By name."""
    place, limit = _LISTING.place(request.cursor), check_limit(request.limit)

    async def work(reader: Reader) -> Page[ConsumerGroup]:
        await reader.catalog()  # with the clock
        search = Search(by_key(GROUPS), after=place, limit=limit + 1, skips_corrupt=True)
        found = await reader.search(search) if limit else []
        shown = {row.group_id: await _shown(machine, reader, row) for row in found[:limit]}
        return _LISTING.page(
            found,
            limit,
            place_of=lambda row: (row.group_id,),
            show=lambda row: shown[row.group_id],
        )

    return await machine.read(work)


async def _shown(machine: Machine, reader: Reader, row: GroupRow) -> ConsumerGroup:
    feed = _feed(machine, row, 1)
    owner, most = (row.group_id,), limits.DELIVERIES_MAX
    every = Search(by_key(DELIVERIES), (owner,), limit=most, skips_corrupt=True)
    deliveries = await reader.search(every)
    position = rules.position_of(row, deliveries)
    lag_ms, lost_until = 0, None
    try:
        scan = await feed.scan(reader, position)
        if scan.entries:
            first: Any = scan.entries[0][2]
            lag_ms = max(0, reader.now - first.occurred_at)
    except CursorExpired as error:
        lost_until = error.fields["lost_until"]
        lag_ms = max(0, reader.now - lost_until)
    return ConsumerGroup(
        row.group_id,
        row.kinds,
        row.filter,
        feed.cursor(position),
        row.redeliver_ms,
        len(deliveries),
        row.dropped,
        lag_ms,
        row.created_at,
        lost_until,
    )


# --- deliveries ----------------------------------------------------------------------------------


@answers(api.ReadGroup)
async def read_group(machine: Machine, request: api.ReadGroup) -> Delivery:
    """Look without a lock, and take what there is under the group's."""
    name = check_name(request.group_id, field="group_id")
    consumer = check_name(request.consumer, field="consumer")
    limit = check_integer(request.limit, field="limit", least=1, most=limits.PAGE_MAX)
    most = limits.SUBSCRIBE_WAIT_MS_MAX
    check_integer(request.wait_ms, field="wait_ms", least=0, most=most)
    until = wait_until(request.wait_ms)
    topics = [group_topic(name)]
    with machine.wakeups.listening(topics) as bell, machine.feed.watching(bell) as watch:
        while True:
            news = await machine.read(lambda reader: _look(machine, reader, name, limit))
            if news.is_some:
                taken = await machine.transact(lambda tx: _take(machine, tx, name, consumer, limit))
                if taken.events:
                    return taken
            pause = left_s(until)
            if pause <= 0:
                return Delivery(name)
            await watch.changed(min(pause, news.look_again_s))


class _News(NamedTuple):
    """Whether there is something to hand out, or a long way to go; if not, when to look again,
    should the feed not grow before."""

    is_some: bool
    look_again_s: float = math.inf


async def _look(machine: Machine, reader: Reader, group_id: str, limit: int) -> _News:
    await reader.catalog()  # with the clock
    row = (await reader.peek_rows(GROUPS, [(group_id,)])).get((group_id,))
    if row is None:
        raise NotFound(f"consumer group {group_id}", entity="consumer_group")
    deliveries = await _deliveries(reader, group_id)
    now = reader.now
    if rules.to_redeliver(deliveries, now) is not None:
        return _News(True)
    if len(deliveries) >= limits.DELIVERIES_MAX:
        return _News(False, _LOOK_S)
    scan = await _feed(machine, row, limit).scan(reader, row.places)
    if scan.entries:
        return _News(rules.free_part(_subjects(scan), deliveries) > 0, _LOOK_S)
    is_far = not scan.is_end or now - row.moved_at >= limits.GROUP_MOVE_MS
    due_ms = min((each.redeliver_at - now for each in deliveries), default=math.inf)
    return _News(is_far and scan.ends != row.places, due_ms / 1000)


async def _take(
    machine: Machine, tx: Transaction, name: str, consumer: str, limit: int
) -> Delivery:
    """What was not acknowledged in time comes first, then what was never handed out."""
    group = await _held(machine, tx, name, limit)
    row, now = group.row, tx.now
    due_at = now + row.redeliver_ms
    late = rules.to_redeliver(group.deliveries, now)
    if late is not None:
        feed = _feed(machine, row, late.page_size)
        scan = await feed.scan(tx, late.starts, late.ends)
        again = rules.handed_out(late, consumer, due_at)
        return await _hand_out(tx, group, again, scan)
    if len(group.deliveries) >= limits.DELIVERIES_MAX:
        return Delivery(name)
    scan = await group.feed.scan(tx, row.places)
    scan = scan.first(rules.free_part(_subjects(scan), group.deliveries))
    new = DeliveryRow(
        name,
        row.last_delivery + 1,
        consumer,
        scan.start,
        scan.last,
        limit,
        1,
        1,
        due_at,
        tuple(sorted({rules.hash_of(each) for each in _subjects(scan)})),
    )
    return await _hand_out(tx, group, new, scan)


async def _hand_out(tx: Transaction, group: _Group, delivery: DeliveryRow, scan: Scan) -> Delivery:
    """Note the delivery; a stretch without events is only passed."""
    rows = _rows_of(group)
    events = group.feed.events_of(scan)
    if delivery.handed_out == 1:
        number = delivery.number if events else group.row.last_delivery
        moved = replace(group.row, places=scan.ends, last_delivery=number, moved_at=tx.now)
        rows.put(GROUPS, moved)
    if events:
        rows.put(DELIVERIES, delivery)
    elif delivery.handed_out > 1:
        rows.drop(DELIVERIES, [DELIVERIES.key_of(delivery)])  # its events cannot be read any more
    await _save(tx, rows)
    if not events:
        return Delivery(group.row.group_id)
    return Delivery(
        group.row.group_id,
        events,
        rules.token_of(delivery),
        delivery.tries,
        delivery.redeliver_at,
    )


def _subjects(scan: Scan) -> Sequence[str]:
    return [getattr(event, SUBJECTS[kind][1]) for kind, _, event in scan.entries]


@answers(api.AckGroup)
async def ack_group(machine: Machine, request: api.AckGroup) -> Acknowledged:
    """Only by the consumer that has it still."""
    name = check_name(request.group_id, field="group_id")
    consumer = check_name(request.consumer, field="consumer")
    token, number = request.delivery, rules.number_in(request.delivery)
    dropped = check_integer(request.dropped, field="dropped", least=0, most=limits.PAGE_MAX)

    async def work(tx: Transaction) -> Acknowledged:
        group = await _held(machine, tx, name)
        row = rules.check_owned(group.delivery(number), token, consumer)
        rest = None
        if request.up_to is not None:
            handled = row.starts
            if request.up_to:
                handled = group.feed.start(request.up_to, "up_to") or {}
            rest = rules.rest_of(row, handled, tx.now + group.row.redeliver_ms)
        rows = _rows_of(group)
        if dropped:
            rows.put(GROUPS, replace(group.row, dropped=group.row.dropped + dropped))
        if rest is None:
            rows.drop(DELIVERIES, [DELIVERIES.key_of(row)])
        else:
            rows.put(DELIVERIES, rest)
        await _save(tx, rows)
        left = len(group.deliveries) - (rest is None)
        return Acknowledged(left, None if rest is None else rest.redeliver_at)

    if request.up_to is not None and not isinstance(request.up_to, str):
        raise InvalidInput("up_to: expected the cursor of an event", field="up_to")
    done = await machine.transact(work)
    machine.store.hints.publish({group_topic(name): EVERY_WAITER})
    return done
