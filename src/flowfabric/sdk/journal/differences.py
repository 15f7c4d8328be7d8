"""What differs between the arguments of a recorded call and those of the same call now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from flowfabric.model.shown import shown

_SHOWN: Final = 10  # places
_WIDTH: Final = 120  # of each value
_ABSENT: Final = object()


def difference(before: bytes, now: bytes) -> str | None:
    """Each place that differs, with both values; None where that cannot be told.

    >>> difference(b'[["ada",5],{}]', b'[["bo",5],{"dry":true}]')
    "argument 1 was 'ada', is 'bo'; dry was absent, is True"
    """
    try:
        recorded, given = msgspec.json.decode(before), msgspec.json.decode(now)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    found = list(_places(recorded, given))
    if not found:
        return None
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return "; ".join(found[:_SHOWN]) + more


def _places(recorded: Any, given: Any) -> Iterator[str]:
    (args, kwargs), (new_args, new_kwargs) = recorded, given
    for at in range(max(len(args), len(new_args))):
        yield from _within(f"argument {at + 1}", _at(args, at), _at(new_args, at))
    yield from _of_names("", kwargs, new_kwargs)


def _within(place: str, before: Any, now: Any) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        yield from _of_names(f"{place}.", before, now)
    elif isinstance(before, list) and isinstance(now, list):
        for at in range(max(len(before), len(now))):
            yield from _within(f"{place}[{at}]", _at(before, at), _at(now, at))
    elif not _same(before, now):
        yield f"{place} was {_told(before)}, is {_told(now)}"


def _of_names(prefix: str, before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*before, *now]):
        yield from _within(f"{prefix}{name}", before.get(name, _ABSENT), now.get(name, _ABSENT))


def _same(before: Any, now: Any) -> bool:
    """JSON tells 1 from true and from 1.0."""
    return type(before) is type(now) and bool(before == now)


def _at(several: list[Any], at: int) -> Any:
    return several[at] if at < len(several) else _ABSENT


def _told(value: Any) -> str:
    return "absent" if value is _ABSENT else shown(value, _WIDTH)
