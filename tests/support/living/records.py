"""Everything a store dumps as plain JSON, and its comparison with what a later release reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flowfabric.model.record import to_json

Records = dict[str, dict[str, Any]]  # by table: the names of the fields, and rows of their values

_ABSENT = object()


def records_of(dump: Mapping[str, Sequence[Any]]) -> Records:
    """Every record of every table, field by field."""
    return {table: _table(rows) for table, rows in dump.items()}


def _table(rows: Sequence[Any]) -> dict[str, Any]:
    fields = list(rows[0].__struct_fields__) if rows else []
    return {"fields": fields, "rows": [[_plain(row, name) for name in fields] for row in rows]}


def _plain(record: Any, name: str) -> Any:
    value = getattr(record, name, _ABSENT)
    return "(no such field)" if value is _ABSENT else json.loads(to_json(value))


# Tables that an earlier version dumped under names of their own.
_RENAMED = {
    "idempotency": "ff_idempotency",
    "workers": "ff_worker_registry",
    "lanes": "ff_lane_registry",
}


# Words of operator events that became events of budgets (migration 14).
_OF_BUDGETS = {"budget_soft_breach": "soft_breach", "budget_hard_breach": "hard_breach"}


def _moved(noted: Records) -> Records:
    """Records in the tables in which they are kept now."""
    operator = noted.get("operator_events")
    if operator is None or not operator["rows"] or "budget_events" in noted:
        return noted
    at = operator["fields"].index("event_type")
    rows = [dict(zip(operator["fields"], row, strict=True)) for row in operator["rows"]]
    fields = ["budget_id", "event_type", "details", "namespace", "occurred_at"]
    told = [
        [each["subject"], _OF_BUDGETS[each["event_type"]], *(each[name] for name in fields[2:])]
        for each in rows
        if each["event_type"] in _OF_BUDGETS
    ]
    left = [row for row in operator["rows"] if row[at] not in _OF_BUDGETS]
    kept = {"operator_events": {**operator, "rows": left}}
    return {**noted, **kept, "budget_events": {"fields": fields, "rows": told}}


def differences(noted: Records, dump: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Records that are missing, were added or differ; fields that are new are not looked at."""
    for table, kept in _moved(noted).items():
        rows = dump.get(_RENAMED.get(table, table), ())
        if len(rows) != len(kept["rows"]):
            yield f"{table}: {len(kept['rows'])} records became {len(rows)}"
            continue
        for number, (values, record) in enumerate(zip(kept["rows"], rows, strict=True)):
            for name, value in zip(kept["fields"], values, strict=True):
                if (now := _plain(record, name)) != value:
                    yield f"{table} {number}, {name}: {value!r} became {now!r}"
