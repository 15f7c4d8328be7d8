"""Data passing: results of upstreams become the input of the members that waited for them.

A single edge without a name replaces the input. Several, or named ones, arrive as a map from name
to result; where the execution's own input is a JSON object, the map is laid over it. What comes
together so is bounded like any other input.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final

from flowfabric import limits
from flowfabric.model.nesting import JSON, is_too_deep
from flowfabric.model.record import Raw, Record, is_json, json_object, to_json

INPUT_TOO_LARGE: Final = "input_too_large"
INPUT_TOO_DEEP: Final = "input_too_deep"


class Passed(Record, frozen=True):
    """One upstream's result on its way to a child."""

    name: str | None  # none: the edge has no name
    upstream_name: str
    result: bytes | None
    encoding: str | None

    @property
    def key(self) -> str:
        """Under which name it stands in a map."""
        return self.name or self.upstream_name


class TooLarge(Record, frozen=True):
    """What is handed on together is more than an input may be."""

    least_bytes: int
    limit: int
    category: ClassVar[str] = INPUT_TOO_LARGE

    @property
    def reason(self) -> str:
        """What the child's record says."""
        return (
            f"{INPUT_TOO_LARGE}: its upstreams hand on {self.least_bytes} bytes or more, "
            f"payload_bytes_max is {self.limit}"
        )


class TooDeep(Record, frozen=True):
    """Something of it nests deeper than JSON may."""

    what: str
    category: ClassVar[str] = INPUT_TOO_DEEP

    @property
    def reason(self) -> str:
        """What the child's record says."""
        return f"{INPUT_TOO_DEEP}: {self.what} nests deeper than {limits.JSON_DEPTH_MAX} levels"


Unfit = TooLarge | TooDeep


def refuse_sizes(sizes: Iterable[int], limit: int) -> TooLarge | None:
    """Why results of these sizes cannot be one input, if they cannot. Names, quotes and the child's
    own input come on top, so that this may let pass what is too large in the end."""
    least = sum(sizes)
    return TooLarge(least, limit) if least > limit else None


def compose(
    payload: bytes, encoding: str | None, passed: Sequence[Passed], limit: int
) -> tuple[bytes, str | None] | Unfit | None:
    """The child's input with what its upstreams hand on; None: it keeps the one it has."""
    if not passed:
        return None
    named = {each.key: each for each in passed}
    sizes = (0 if each.result is None else len(each.result) for each in named.values())
    if excess := refuse_sizes(sizes, limit):  # before it is put together
        return excess
    if len(passed) == 1 and passed[0].name is None:
        only = passed[0]
        return None if only.result is None else (only.result, only.encoding)
    if depth := _refuse_depth(payload, encoding, named):
        return depth
    own = json_object(payload) if encoding in (None, JSON) else {}
    whole = to_json({**own, **{key: _as_json(named[key]) for key in sorted(named)}})
    return refuse_sizes((len(whole),), limit) or (whole, JSON)


def _refuse_depth(
    payload: bytes, encoding: str | None, named: Mapping[str, Passed]
) -> TooDeep | None:
    """Results are refused when they are reported; older ones may be stored all the same."""
    if encoding in (None, JSON) and is_too_deep(payload):
        return TooDeep("its own input")
    for key, each in named.items():
        if each.result and each.encoding in (None, JSON) and is_too_deep(each.result):
            return TooDeep(f"what it is handed as {key}")
    return None


def _as_json(passed: Passed) -> Raw:
    """A JSON result as it is; other bytes as base64, and nothing as null."""
    if passed.result is None:
        return Raw(b"null")
    if passed.encoding in (None, JSON) and is_json(passed.result):
        return Raw(passed.result)
    text = base64.b64encode(passed.result).decode()
    return Raw(to_json({"base64": text, "encoding": passed.encoding}))
