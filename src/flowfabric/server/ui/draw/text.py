"""Text inside drawings: escaped, without what hides, and no wider than its place."""

from __future__ import annotations

import unicodedata
from html import escape
from typing import Final

from flowfabric.server.ui.showing import visible

_WIDE: Final = 1.0  # of the size of the letters
_USUAL: Final = 0.57
_NARROW: Final = frozenset("iIjl.,:;'|!()[] ft")
_NARROW_WIDTH: Final = 0.34
_CHARS_MAX: Final = 400


def words(text: str) -> str:
    """A text as it stands between tags or in an attribute.

    >>> words('<a href="x">')
    '&lt;a href=&quot;x&quot;&gt;'
    """
    line = " ".join(visible(text[:_CHARS_MAX]).split())
    return escape(line, quote=True)


def clipped(text: str, width: float, size: float) -> str:
    """The beginning that fits into a width at a size of letters; then `…`, if there is more.

    >>> clipped("integration-tests-of-the-north", 80, 12)
    'integration…'
    """
    line = " ".join(visible(text[:_CHARS_MAX]).split())
    used, room = 0.0, width - size * _WIDE
    for at, letter in enumerate(line):
        used += size * _width_of(letter)
        if used > room and at < len(line) - 1:
            return line[:at].rstrip() + "…"
    return line


def _width_of(letter: str) -> float:
    if unicodedata.combining(letter):
        return 0.0
    if unicodedata.east_asian_width(letter) in ("W", "F"):
        return _WIDE
    if letter in _NARROW:
        return _NARROW_WIDTH
    return 0.66 if letter.isupper() else _USUAL
