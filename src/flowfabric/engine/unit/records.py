"""The small records one transaction touches, as they stand after the commands decided so far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from flowfabric.model.record import Record, fields_of
from flowfabric.stores.base import Changes, RowChanges, Transaction
from flowfabric.stores.tables import AnyTable, Key, Table

R = TypeVar("R", bound=Record)
# Rows that were put or dropped, as they stand; and those without an image, by the values that all
# of them get.
Pending = tuple[Mapping[Key, Any], Mapping[Record, Mapping[Key, None]]]


class Rows:
    """Images of rows by table and key; what was put or dropped is handed out as changes."""

    def __init__(self) -> None:
        self._images: defaultdict[AnyTable, dict[Key, Any]] = defaultdict(dict)
        self._stored: defaultdict[AnyTable, set[Key]] = defaultdict(set)  # who has a row
        # What was put or dropped, with the fields that may differ where those are known.
        self._changed: defaultdict[AnyTable, dict[Key, tuple[str, ...] | None]] = defaultdict(dict)
        self._written: defaultdict[AnyTable, dict[Key, Any]] = defaultdict(dict)  # as stored
        # Without images: new rows, and rows by the values that all of them get.
        self._new: defaultdict[AnyTable, list[Any]] = defaultdict(list)
        self._alike: defaultdict[AnyTable, dict[Record, dict[Key, None]]] = defaultdict(dict)

    def take(
        self, table: Table[R], found: Mapping[Key, R], images: Mapping[Key, R] | None = None
    ) -> None:
        """Remember what was loaded; an image this batch has changed stays. `images`: how the
        records stand where the rows alone do not say it."""
        known = self._images[table]
        if changed := self._changed.get(table):  # those may have been found among pending writes
            found = {key: record for key, record in found.items() if key not in changed}
        for key, record in (found if images is None else images).items():
            known.setdefault(key, record)
        self._stored[table].update(found)
        self._written[table].update(found)

    def forget(self, table: Table[R], keys: Iterable[Key]) -> None:
        """What was loaded is gone from the store by now."""
        for key in keys:
            self._images[table].pop(key, None)
            self._stored[table].discard(key)

    def get(self, table: Table[R], key: Key) -> R | None:
        """One record as it stands."""
        found: R | None = self._images[table].get(key)
        return found

    def has(self, table: AnyTable) -> bool:
        """Whether anything is known of a table."""
        return bool(self._images[table])

    def pending(self, table: AnyTable) -> Pending | None:
        """What is not written yet of a table; None where nothing is."""
        self.settle(table)
        changed, alike = self._changed.get(table), self._alike.get(table)
        if not changed and not alike:
            return None
        images = self._images[table]
        return {key: images[key] for key in changed or ()}, alike or {}

    def group(self, table: Table[R], prefix: Key) -> list[R]:
        """The loaded records whose keys begin so, in the order of their keys."""
        size = len(prefix)
        found = [
            (key, record)
            for key, record in self._images[table].items()
            if record is not None and key[:size] == prefix
        ]
        return [record for _, record in sorted(found, key=lambda pair: pair[0])]

    def matching(self, table: Table[R], field: str, value: object) -> list[R]:
        """The loaded records with this value, in the order of their keys."""
        return [
            record
            for _, record in sorted(self._images[table].items())
            if record is not None and getattr(record, field) == value
        ]

    def settle(self, table: AnyTable) -> None:
        """Give an image to rows that were added without one: they are looked for before they are
        written."""
        if self._new.get(table):
            for record in self._new.pop(table):
                self.put(table, record)

    def add(self, table: Table[R], records: Iterable[R]) -> None:
        """Insert many rows, as a rule not looked for before they are written."""
        self._new[table].extend(records)

    def set_alike(self, table: Table[R], keys: Iterable[Key], values: Record) -> None:
        """Give the same values to rows that have no image here; `values` has fields of theirs."""
        wanted, groups = dict.fromkeys(keys), self._alike[table]
        for others in [each for known, each in groups.items() if known != values]:
            for key in wanted.keys() & others.keys():
                del others[key]
        groups.setdefault(values, {}).update(wanted)

    def put(self, table: Table[R], record: R) -> None:
        """Insert or change."""
        self.put_at(table, table.key_of(record), record)

    def drop(self, table: Table[R], keys: Iterable[Key]) -> None:
        """Delete; what was never stored is only forgotten."""
        for key in keys:
            self.put_at(table, key, None)

    def drop_unseen(self, table: Table[R], key: Key) -> None:
        """Delete a row that is there, whether it was loaded or not."""
        if key not in self._images[table]:
            self._stored[table].add(key)
        self.put_at(table, key, None)

    def put_unseen(self, table: Table[R], key: Key, record: R) -> None:
        """Change a row that is there, whether it was loaded or not."""
        if key not in self._images[table]:
            self._stored[table].add(key)
        self.put_at(table, key, record)

    def put_at(
        self, table: Table[R], key: Key, record: R | None, fields: tuple[str, ...] | None = None
    ) -> None:
        """As `put` or `drop`, for those who know the key, or even all fields that may differ."""
        for values, keys in self._alike[table].items() if table in self._alike else ():
            if key in keys:  # its image says that too
                del keys[key]
                fields = None if fields is None else (*fields, *values.__struct_fields__)
        self._images[table][key] = record
        changed = self._changed[table]
        known = changed.get(key, ())
        changed[key] = None if fields is None or known is None else (*known, *fields)

    def changes(self) -> dict[AnyTable, RowChanges]:
        """What to write; afterwards it counts as stored."""
        written: defaultdict[AnyTable, RowChanges] = defaultdict(RowChanges)
        for table, records in self._new.items():
            written[table].inserted += records
        for table, groups in self._alike.items():
            for values, alike in groups.items():
                if alike:
                    written[table].alike.append((fields_of(values), list(alike)))
        for table in self._changed:
            self._add_images(table, written[table])
        for pending in (self._new, self._alike, self._changed):
            pending.clear()
        return {table: change for table, change in written.items() if change}

    def _add_images(self, table: AnyTable, change: RowChanges) -> None:
        """What was put or dropped, in the order of the keys."""
        keys, images = self._changed[table], self._images[table]
        stored, written_before = self._stored[table], self._written[table]
        for key in sorted(keys):
            record = images[key]
            if record is None:
                if key in stored:
                    change.deleted.append(key)
                    stored.discard(key)
            elif key not in stored:
                change.inserted.append(record)
                stored.add(key)
                written_before[key] = record
            elif table.has_values:
                change.updated.append(record)
                if (fields := keys[key]) is None:
                    _add_differences(change.fields, written_before.get(key), record)
                else:
                    change.fields.update(fields)
                written_before[key] = record


def _add_differences(fields: set[str], before: Record | None, after: Record) -> None:
    """Note the fields in which two images differ; those that are noted need no second look."""
    if before is None:
        fields.update(after.__struct_fields__)
        return
    for name in after.__struct_fields__:
        if name not in fields:
            old, new = getattr(before, name), getattr(after, name)
            if old is not new and old != new:
                fields.add(name)


async def save_rows(tx: Transaction, rows: Rows) -> None:
    """Write rows alone, without a unit of work."""
    changes = Changes()
    changes.rows = rows.changes()
    await tx.save(changes)
