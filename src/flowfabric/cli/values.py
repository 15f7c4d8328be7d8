"""Typed values, parsed for the engine."""

from __future__ import annotations

import difflib
import json
import re
from argparse import ArgumentTypeError
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from flowfabric import limits
from flowfabric.cli.exits import usage
from flowfabric.errors import InvalidInput
from flowfabric.model.checks import check_uuid

LATEST: Final = "latest"
SHOWN: Final = "-"
ID_HELP: Final = "an id, 4 or more digits of its beginning or end, latest, or - (last shown)"
_FULL_ID: Final = re.compile(r"\{fp:\d{1,5}\}:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ID_PART: Final = re.compile(r"[0-9a-f][0-9a-f-]*")


def nearest(word: str, known: Iterable[str]) -> str:
    """` did you mean ps?` when a known word is close, else empty."""
    close = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else ""


def duration_ms(text: str) -> int:
    """`90`, `1.5s`, `10m`, `1h30m`, `250ms`, `2d`; a bare number counts seconds.

    >>> duration_ms("1h30m")
    5400000
    """
    from flowfabric.sdk.durations import to_ms  # keeps --help fast

    compact = text.strip().lower()
    number = re.fullmatch(r"\d+(\.\d+)?", compact)
    try:
        return to_ms(float(compact) if number else compact, field="duration")
    except InvalidInput:
        raise ArgumentTypeError(
            f"{text!r} is not a duration; write 30s, 10m, 1h30m or 2d"
        ) from None


def instant(text: str) -> int:
    """`2026-11-16T08:00`, UTC unless it says otherwise, in milliseconds."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a date; write 2026-11-16T08:00") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def ago_or_instant(text: str) -> tuple[str, int]:
    """`1h` as ("ago", ms) or `2026-11-16T08:00` as ("at", ms)."""
    try:
        return "ago", duration_ms(text)
    except ArgumentTypeError:
        pass
    try:
        return "at", instant(text)
    except ArgumentTypeError:
        raise ArgumentTypeError(
            f"{text!r} is neither a duration (1h) nor a date (2026-11-16T08:00)"
        ) from None


def reference(text: str) -> str:
    """A typed reference to an execution or flow, if well-formed: `references` resolves it. A
    malformed one stops the command at once: nothing is done for the others."""
    compact = text.strip().lower()
    digits = len(compact.replace("-", ""))
    is_part = _ID_PART.fullmatch(compact) and limits.FIND_DIGITS_MIN <= digits <= 32
    if compact in (LATEST, SHOWN) or is_part or _FULL_ID.fullmatch(compact):
        return compact
    if compact.startswith("ffw1."):
        raise ArgumentTypeError("a link is not an id")  # a credential: not repeated
    raise ArgumentTypeError(
        f"{text!r:.80} is not an id; give one, {limits.FIND_DIGITS_MIN} or more digits of its"
        " beginning or end, latest, or -"
    )


def uuid(text: str) -> str:
    """The id of an operation, in full."""
    try:
        return check_uuid(text.lower(), field="ID")
    except InvalidInput as error:
        raise ArgumentTypeError(error.detail) from None


def argument(text: str) -> tuple[str, Any]:
    """`name=text` or `name:=json`.

    >>> argument("frames:=[1, 2]")
    ('frames', [1, 2])
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise ArgumentTypeError(f"{text!r} is not name=text or name:=json")
    is_json = name.endswith(":")
    name = name.removesuffix(":")
    if not name.isidentifier():
        raise ArgumentTypeError(f"{name!r} is not an argument name (in {text!r})")
    if not is_json:
        return name, value
    try:
        return name, json.loads(value, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ArgumentTypeError(
            f"{name}: {value!r} is not JSON ({error}); for plain text write {name}={value}"
        ) from None


def result(text: str) -> tuple[str, Any]:
    """`KEY=JSON`; a key may have an = in brackets.

    >>> result("mail[a=b]=7")
    ('mail[a=b]', 7)
    """
    inner = text.rfind("]") + 1
    head, equals, value = text[inner:].partition("=")
    key = text[:inner] + head
    if not equals or not key:
        raise ArgumentTypeError(f"{text!r} is not KEY=JSON")
    try:
        return key, json.loads(value, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ArgumentTypeError(
            f"{key}: {value!r} is not JSON ({error}); for text write {key}='\"…\"'"
        ) from None


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def tag(text: str) -> tuple[str, str]:
    """`team.name=value`."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ArgumentTypeError(f"{text!r} is not key=value")
    return key, value


def states(text: str) -> list[str]:
    """One state or several with commas between; an error names the nearest."""
    from flowfabric.model.state import PublicState  # keeps --help fast

    known = [state.value for state in PublicState]
    chosen = [word.strip().lower() for word in text.split(",") if word.strip()]
    for word in chosen:
        if word not in known:
            hint = nearest(word, known) or f"states are {', '.join(known)}"
            raise ArgumentTypeError(f"{word!r} is not a state; {hint}")
    return chosen


def limit(text: str) -> tuple[str, int]:
    """`tokens=1200`; digits may be grouped as in 1_200.

    >>> limit("tokens=1_200")
    ('tokens', 1200)
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ArgumentTypeError(f"{text!r} is not dimension=number")
    return name.strip(), number(value)


def weight(text: str) -> tuple[str, int]:
    """`acme=3`."""
    name, equals, value = text.rpartition("=")
    if not equals or not name.strip():
        raise ArgumentTypeError(f"{text!r:.80} is not name=number")
    return name.strip(), number(value)


def raised(text: str) -> tuple[str, tuple[bool, int]]:
    """`tokens=2000`, or `tokens=+500` for so much more."""
    name, equals, value = text.partition("=")
    is_more = value.strip().startswith("+")
    dimension, amount = limit(f"{name}{equals}{value.strip().removeprefix('+')}")
    return dimension, (is_more, amount)


def integer(text: str) -> int:
    """A whole number, below zero too."""
    try:
        return int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r:.80} is not a whole number") from None


def number(text: str) -> int:
    """A whole number, zero included."""
    value = integer(text)
    if value < 0:
        raise ArgumentTypeError(f"{value} is below zero")
    return value


def whole_number(text: str) -> int:
    """A whole number of at least one."""
    value = integer(text)
    if value < 1:
        raise ArgumentTypeError(f"{value} is not at least 1")
    return value


def by_name(given: list[tuple[str, Any]], option: str) -> dict[str, bytes]:
    """Values of an option that is repeated, as JSON by their names, each given once."""
    named_values: dict[str, bytes] = {}
    for name, value in given:
        if name in named_values:
            raise usage(f"{option} {name} is given twice", advice="give each once")
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        named_values[name] = text.encode()
    return named_values
