"""Rows with corrupt values, as far as a row itself shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from flowfabric.errors import Corruption

NOT_TEXT: Final = "holds bytes that are not UTF-8 text"


class SpoiledRow(tuple[Any, ...]):
    """A row with bytes that are not valid text: it can be named, not decoded."""

    __slots__ = ()


def intact(row: Sequence[Any], name: str) -> Sequence[Any]:
    """The row, unless a value in it does not belong to its column."""
    if type(row) is SpoiledRow:
        raise Corruption(f"{name} {NOT_TEXT}")
    return row
