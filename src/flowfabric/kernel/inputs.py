"""Data passing: results of upstreams become the input of whoever waited for them.

A single edge without a name replaces the input. Several, or named ones, arrive as a map from name
to result; where the execution's own input is a JSON object, the map is laid over it.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from flowfabric.model.record import Raw, Record, is_json, json_object, to_json

JSON = "json"


class Passed(Record, frozen=True):
    """One upstream's result on its way to a child."""

    name: str | None  # none: the edge has no name
    upstream_name: str
    result: bytes | None
    encoding: str | None


def compose(
    payload: bytes, encoding: str | None, passed: Sequence[Passed]
) -> tuple[bytes, str | None] | None:
    """The child's input with what its upstreams hand on; None: it keeps the one it has."""
    if len(passed) == 1 and passed[0].name is None:
        only = passed[0]
        return None if only.result is None else (only.result, only.encoding)
    named = {each.name or each.upstream_name: _as_json(each) for each in passed}
    own = json_object(payload) if encoding in (None, JSON) else {}
    return to_json({**own, **dict(sorted(named.items()))}), JSON


def _as_json(passed: Passed) -> Raw:
    """A JSON result as it is; other bytes as base64, and nothing as null."""
    if passed.result is None:
        return Raw(b"null")
    if passed.encoding in (None, JSON) and is_json(passed.result):
        return Raw(passed.result)
    text = base64.b64encode(passed.result).decode()
    return Raw(to_json({"base64": text, "encoding": passed.encoding}))
