"""How values are written on pages: instants, durations, ids, and text that is not to be trusted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from flowfabric.model.state import PublicState
from flowfabric.model.telling import headline
from flowfabric.model.times import absolute, count, relative, span
from flowfabric.server.routes.values import path_id

# The sign of a state in `icons.svg`, and its colour, by its word. Signs and words are those of
# `model.marks`; states of other things share them.
MARKS: Final[Mapping[str, tuple[str, str]]] = {
    **{state.value: (state.value, state.value) for state in PublicState},
    "unfinished": ("waiting", "active"),
    "ok": ("completed", "completed"),
    "failure": ("failed", "failed"),
    "open": ("active", "active"),
    "running": ("active", "active"),
    "ready": ("waiting", "waiting"),
    "blocked": ("rate_limited", "rate_limited"),
    "done": ("completed", "completed"),
    "stopped": ("cancelled", "cancelled"),
    "paused": ("suspended", "suspended"),
    "draining": ("delayed", "delayed"),
    "disabled": ("cancelled", "cancelled"),
    "dead": ("failed", "failed"),
    "lost": ("expired", "expired"),
    "approved": ("completed", "completed"),
    "rejected": ("failed", "failed"),
    "pending": ("waiting", "waiting"),
    "started": ("active", "active"),
    "succeeded": ("completed", "completed"),
    "success": ("completed", "completed"),
    "interrupted": ("expired", "expired"),
}

# What would be seen by nobody, or would change how the text around it is read: control characters,
# directions, joiners of nothing, halves of characters.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]")


def visible(text: str) -> str:
    """A text in which nothing hides; tabs and ends of lines stay.

    >>> visible("a\\x1b[2J\\u202eb")
    'a␛[2J⟨202E⟩b'
    """
    return _UNSEEN.sub(_shown, text)


def _shown(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return "␡" if found[0] == "\x7f" else f"⟨{code:04X}⟩"


def finalized(value: Any) -> Any:
    """Whatever a template writes: text of users passes through here before it is escaped."""
    return visible(value) if type(value) is str else value


def without_colours(text: str) -> str:
    """A text of a terminal without its colours."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text


def iso(instant: int) -> str:
    """An instant for machines, to the millisecond."""
    return f"{absolute(instant)[:-1]}.{instant % 1000:03d}Z"


def exact(instant: int) -> str:
    """An instant for people, in UTC."""
    return f"{absolute(instant)[:-1].replace('T', ' ')}.{instant % 1000:03d} UTC"


def clock(instant: int) -> str:
    """The time of a day, in UTC, to the millisecond."""
    return iso(instant)[11:-1]


def ago(instant: int, now: int) -> str:
    """`3m ago`; what is now is now, whatever the milliseconds say."""
    return "now" if abs(instant - now) < 1000 else relative(instant, now)


def short(execution_id: str) -> str:
    """An id as it is shown where there is little room.

    >>> short("{fp:17}:0193a1f0-0000-7000-8000-00000000abcd")
    '17.0193a1f0…abcd'
    """
    text = path_id(execution_id) if execution_id.startswith("{") else execution_id
    head, _, tail = text.partition("-")
    return f"{head}…{tail[-4:]}" if len(tail) > 8 else text


def number(value: float) -> str:
    """A number with thin spaces between its thousands.

    >>> number(1234567)
    '1\\u202f234\\u202f567'
    """
    return f"{value:,}".replace(",", "\u202f")


def size(many: int) -> str:
    """Bytes in the largest unit that leaves a digit before the point.

    >>> size(900), size(1536), size(5_000_000)
    ('900 B', '1.5 KiB', '4.8 MiB')
    """
    value, unit = float(many), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{many} B" if unit == "B" else f"{value:.1f} {unit}"


def outcome(word: str) -> str:
    """The outcome of an attempt, as a word.

    >>> outcome("ended_success")
    'success'
    """
    return word.removeprefix("ended_")


def quoted(text: str) -> str:
    """A word of the filter bar, in quotation marks if it has a space."""
    return f'"{text}"' if " " in text else text


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "ago": ago,
    "clock": clock,
    "count": count,
    "headline": headline,
    "outcome": outcome,
    "quoted": quoted,
    "exact": exact,
    "iso": iso,
    "number": number,
    "path_id": path_id,
    "short": short,
    "size": size,
    "span": span,
}
