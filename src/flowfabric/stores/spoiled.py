"""Rows whose values were spoiled behind the engine's back, as far as a row itself can tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from flowfabric.errors import Corruption

NOT_TEXT: Final = "holds bytes that are not UTF-8 text"


class SpoiledRow(tuple[Any, ...]):
    """A row with text that is no text: it can be named, not read."""

    __slots__ = ()


def intact(row: Sequence[Any], name: str) -> Sequence[Any]:
    """The row, unless something in it is no value of its column."""
    if type(row) is SpoiledRow:
        raise Corruption(f"{name} {NOT_TEXT}")
    return row
