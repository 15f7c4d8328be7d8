"""Values of any type, and secrets, as error texts show them."""

from __future__ import annotations

import re
import reprlib
from typing import Final

_BITS_MAX: Final = 256  # Python itself refuses to write out an integer of some thousand digits
_PART_MAX: Final = 200  # of a text, before it is cut to the length an error allows
# Up to the last @ of the word: an unescaped one may be part of the password.
_PASSWORD: Final = re.compile(r"(://[^:/@\s]*:)\S*(?=@)|([?&](?:ssl)?password=)[^&\s]*")


class _Brief(reprlib.Repr):
    """Looks at no more of a value than can be shown."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxstring = self.maxother = self.maxlong = _PART_MAX

    def repr_int(self, value: int, _level: int) -> str:
        bits = value.bit_length()
        return repr(value) if bits <= _BITS_MAX else f"<an integer of {bits} bits>"

    def repr_bytes(self, value: bytes, _level: int) -> str:
        return repr(value[:_PART_MAX])


_BRIEF: Final = _Brief()


def shown(value: object, most: int = 60) -> str:
    """A value in at most the given number of characters; never raises, whatever the value does.

    >>> shown("a lane")
    "'a lane'"
    >>> shown(10**5000)
    '<an integer of 16610 bits>'
    """
    try:
        text = str(_BRIEF.repr(value))
    except Exception:  # noqa: BLE001 - a value's own code may raise anything, RecursionError too
        text = f"<{type(value).__name__} that cannot be shown>"
    return text if len(text) <= most else f"{text[: most - 1]}…"


def mask(text: str) -> str:
    """Text without the passwords of the URLs in it: output ends up in logs and screenshots.

    >>> mask("postgresql://ada:secret@db/app")
    'postgresql://ada:***@db/app'
    """
    return _PASSWORD.sub(lambda found: f"{found[1] or found[2]}***", text)


_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def shown_length(milliseconds: int) -> str:
    """A duration as a user would write it, exactly.

    >>> shown_length(5_400_000), shown_length(10), shown_length(1_500), shown_length(0)
    ('1h30m', '10ms', '1s500ms', '0s')
    """
    if milliseconds.bit_length() > 63:
        return f"{shown(milliseconds)} ms"
    parts, left = [], abs(milliseconds)
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    sign = "-" if milliseconds < 0 else ""
    return sign + ("".join(parts) or "0s")
