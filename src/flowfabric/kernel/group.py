"""Rules of consumer groups: what is handed out next, which consumer has it, how far a group is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from zlib import crc32

from flowfabric.errors import DeliveryExpired, InvalidInput
from flowfabric.model.feed import EventKind
from flowfabric.model.group import DeliveryRow, GroupRow, Places
from flowfabric.model.record import replace


def hash_of(subject: str) -> int:
    """A short hash. Two subjects with one hash only wait for each other."""
    return crc32(subject.encode(errors="surrogatepass"))


def to_redeliver(deliveries: Iterable[DeliveryRow], now: int) -> DeliveryRow | None:
    """The oldest delivery that was not acknowledged in time."""
    late = [each for each in deliveries if each.redeliver_at <= now]
    return min(late, key=lambda each: each.number, default=None)


def free_part(subjects: Sequence[str], deliveries: Iterable[DeliveryRow]) -> int:
    """How many of these events may be handed out now. Events about one subject are handled in their
    order, so none of it is handed out while an earlier one is not acknowledged; and none behind it,
    so that a group is a position and a few stretches before it."""
    taken = {each for delivery in deliveries for each in delivery.subjects}
    if taken:
        for at, subject in enumerate(subjects):
            if hash_of(subject) in taken:
                return at
    return len(subjects)


def position_of(group: GroupRow, deliveries: Iterable[DeliveryRow]) -> Places:
    """Everything up to here is acknowledged."""
    found = dict(group.places)
    for delivery in deliveries:
        for kind, place in delivery.starts.items():
            found[kind] = min(place, found.get(kind, place))
    return found


def token_of(delivery: DeliveryRow) -> str:
    """What its consumer acknowledges it by; a redelivery has another."""
    return f"{delivery.number}-{delivery.handed_out}"


def number_in(token: object) -> int:
    """The number of the delivery that a token belongs to."""
    first, dash, last = token.partition("-") if isinstance(token, str) else ("", "", "")
    if not (dash and first.isdecimal() and last.isdecimal() and first.isascii()) or len(first) > 18:
        raise InvalidInput("delivery: hand back the one of your last read", field="delivery")
    return int(first)


def check_owned(row: DeliveryRow | None, token: str, consumer: str) -> DeliveryRow:
    """The delivery, if the consumer still has it."""
    if row is None or token_of(row) != token or row.consumer != consumer:
        raise DeliveryExpired(f"delivery {token} of {consumer}", field="delivery")
    return row


def rest_of(row: DeliveryRow, handled: Places, due_at: int) -> DeliveryRow | None:
    """The delivery without what was handled; None where nothing is left."""
    is_inside = handled.keys() == row.starts.keys() and all(
        row.starts[kind] <= place <= row.ends[kind] for kind, place in handled.items()
    )
    if not is_inside:
        raise InvalidInput("up_to: not the cursor of an event in this delivery", field="up_to")
    if handled == row.ends:
        return None
    tries = row.tries if handled == row.starts else 0
    return replace(row, starts=handled, tries=tries, redeliver_at=due_at)


def handed_out(row: DeliveryRow, consumer: str, due_at: int) -> DeliveryRow:
    """The delivery in the hands of another consumer, or of the same once more."""
    return replace(
        row,
        consumer=consumer,
        handed_out=row.handed_out + 1,
        tries=row.tries + 1,
        redeliver_at=due_at,
    )


def moved(places: Places, kinds: Sequence[EventKind], ends: Places) -> Places:
    """A position for other kinds: those that were not read before begin at their end."""
    return {kind: places.get(kind, ends[kind]) for kind in kinds}
