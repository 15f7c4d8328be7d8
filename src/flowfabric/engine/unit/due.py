"""What is due by itself, named thing by thing, and what of it is set aside for a while."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from flowfabric import limits
from flowfabric.model.record import Record
from flowfabric.stores.indexes import Search, due_search
from flowfabric.stores.tables import FLOWS, OPERATIONS, TIMED_TABLES, AnyTable, Key

EXECUTION: Final = "execution"
# Rows of these stand for more than themselves: one transaction purges a page of each flow.
AT_ONCE: Final[Mapping[AnyTable, int]] = {FLOWS: 10, OPERATIONS: limits.OPERATIONS_AT_ONCE}
Thing = tuple[str, Key]  # where it is kept, and its key there


class Due:
    """What one transaction is to move."""

    __slots__ = ("execution_ids", "keys")

    def __init__(
        self,
        execution_ids: Iterable[str] = (),
        keys: Mapping[AnyTable, Sequence[Key]] | None = None,
    ) -> None:
        self.execution_ids = tuple(execution_ids)
        self.keys = keys or {}

    def of(self, table: AnyTable) -> Sequence[Key]:
        """The rows of a table among it, earliest first."""
        return self.keys.get(table, ())

    def things(self) -> Iterator[Thing]:
        """Each thing by itself."""
        yield from ((EXECUTION, (each,)) for each in self.execution_ids)
        for table, keys in self.keys.items():
            yield from ((table.name, key) for key in keys)


async def rows_due(
    search_keys: Callable[[Search[Any]], Awaitable[list[Key]]],
    now: int,
    limit: int,
    aside: frozenset[Thing],
) -> Due:
    """The rows of small tables whose time has come, without those that are set aside."""
    found: dict[AnyTable, Sequence[Key]] = {}
    for table in TIMED_TABLES:
        most = min(limit, AT_ONCE.get(table, limit))
        keys = await search_keys(due_search(table, now, most + len(aside)))
        if aside:
            keys = [key for key in keys if (table.name, key) not in aside][:most]
        if keys:
            found[table] = keys
    return Due(keys=found)


def named(thing: Thing) -> str:
    """A thing as operators read it."""
    return f"{thing[0]} {'/'.join(map(str, thing[1]))}"


class SetAside(Record, frozen=True):
    """A due thing that could not be moved, and when it is tried again."""

    thing: Thing
    error: str
    detail: str
    tries: int
    again_at: int


class Aside:
    """What this process could not move. It is tried again by itself, ever more rarely, so that all
    else is moved together and at once."""

    def __init__(self) -> None:
        self._things: dict[Thing, SetAside] = {}

    def __iter__(self) -> Iterator[SetAside]:
        return iter(tuple(self._things.values()))

    @property
    def things(self) -> frozenset[Thing]:
        """What the usual way leaves out."""
        return frozenset(self._things)

    def put(self, thing: Thing, error: Exception, now: int) -> SetAside:
        """Note that moving it failed; the more often, the longer it is left alone."""
        known = self._things.pop(thing, None)
        tries = 1 if known is None else known.tries + 1
        pause = min(limits.ASIDE_MS_MAX, limits.ASIDE_MS_MIN << min(tries - 1, 20))
        noted = SetAside(thing, type(error).__name__, f"{error!s:.200}", tries, now + pause)
        self._things[thing] = noted
        if len(self._things) > limits.ASIDE_MAX:
            del self._things[next(iter(self._things))]  # the one that failed longest ago
        return noted

    def due(self, now: int) -> list[Thing]:
        """Those whose pause is over."""
        return [each.thing for each in self if each.again_at <= now]

    def again_at(self, thing: Thing) -> int:
        """When a thing is tried again; 0: it is not set aside."""
        noted = self._things.get(thing)
        return 0 if noted is None else noted.again_at

    def forget(self, thing: Thing) -> None:
        """It was moved, or is gone."""
        self._things.pop(thing, None)


def alone(thing: Thing) -> Due:
    """A thing by itself, for a transaction of its own."""
    where, key = thing
    if where == EXECUTION:
        return Due((key[0],))
    table = next(each for each in TIMED_TABLES if each.name == where)
    return Due(keys={table: (key,)})
