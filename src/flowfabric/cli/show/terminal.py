"""The output: lines, aligned tables, colours on a terminal, one JSON document otherwise."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TextIO

from flowfabric.model.shown import mask as mask  # every command that prints a URL needs it

_STYLES: Final = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "cyan": "36",
}
STYLE_OF_STATE: Final = {
    "waiting": "cyan",
    "delayed": "cyan",
    "rate_limited": "yellow",
    "active": "blue",
    "suspended": "yellow",
    "waiting_children": "cyan",
    "skipped": "dim",
    "open": "cyan",
    "running": "blue",
    "blocked": "yellow",
    "completed": "green",
    "failed": "red",
    "expired": "red",
    "cancelled": "yellow",
    "paused": "yellow",
    "draining": "yellow",
    "disabled": "red",
}
_UNUSUAL: Final = re.compile(r"[^\n\x20-\x7e]")
_COLUMN_MIN: Final = 4  # narrower than this a shortened cell says nothing


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `shrinks` may lose its tail on a narrow terminal, an id may not."""

    title: str
    shrinks: bool = False
    right: bool = False
    styled: bool = False  # the cell's own word chooses its colour
    least: int = 8  # a shortened cell keeps at least this much while others can shrink
    silent: str | None = None  # left out when every cell says only this


@dataclass(frozen=True, slots=True)
class Painted:
    """A cell with a colour of its own."""

    text: str
    style: str

    def __str__(self) -> str:
        return self.text


def clean(value: object) -> str:
    """Stored text made safe to print: one line, and no control character reaches the terminal."""
    if isinstance(value, Painted):
        value = value.text
    text = " ".join(str(value).split()) if not isinstance(value, str) else value
    return "".join(c if c.isprintable() else ("⏎" if c == "\n" else "�") for c in text.strip())


def harmless(text: str) -> str:
    """Text of several lines made safe to print; its layout stays.

    >>> harmless("a\\x1b[2J\\n  b")
    'a�[2J\\n  b'
    """
    return _UNUSUAL.sub(lambda found: found[0] if found[0].isprintable() else "�", text)


def _escaped(document: str) -> str:
    """JSON without control characters in strings: the same value, harmless on a terminal."""
    return _UNUSUAL.sub(
        lambda found: found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1], document
    )


def cells_of(text: str) -> int:
    """How many cells of a terminal a text takes: some characters take two, some none.

    >>> cells_of("abc"), cells_of("日本")
    (3, 4)
    """
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shorten(text: str, width: int) -> str:
    """At most so many cells, a cut marked."""
    if cells_of(text) <= width:
        return text
    kept, left = [], width - 1
    for character in text:
        left -= _cells(character)
        if left < 0:
            break
        kept.append(character)
    return "".join(kept) + "…"


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most so many characters; a word that is longer is not broken."""
    lines = textwrap.wrap(text, max(20, width), break_long_words=False, break_on_hyphens=False)
    return lines or [""]


class Terminal:
    """The two streams of one command and how they may be used."""

    def __init__(self, *, as_json: bool = False, color: bool = True) -> None:
        self.out: TextIO = sys.stdout
        self.err: TextIO = sys.stderr
        self.as_json = as_json
        self.is_tty = self.out.isatty()
        self._color = color and self.is_tty and not as_json
        self._status_shown = False
        self._drawn = 0

    @property
    def shows_progress(self) -> bool:
        """Whether the stream is a terminal: a line may be rewritten in place."""
        return self.err.isatty() and not self.as_json

    def paint(self, text: str, style: str | None) -> str:
        """The text in a style, where colours are enabled."""
        if not self._color or style is None:
            return text
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"

    def state(self, word: str) -> str:
        """A state in its colour."""
        return self.paint(word, STYLE_OF_STATE.get(word))

    def state_as(self, text: str, word: str) -> str:
        """A text in the colour of a state."""
        return self.paint(text, STYLE_OF_STATE.get(word))

    def redraw(self, lines: Sequence[str]) -> None:
        """Lines in the place of those drawn before."""
        self.end_status()
        back = f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""
        # A line that wrapped would be two, and the next drawing would begin too low.
        unwrapped = "\x1b[?7l" + "\n".join(lines) + "\x1b[?7h"
        print(back + unwrapped, file=self.out, flush=True)
        self._drawn = len(lines)

    def line(self, text: str = "") -> None:
        """One line of the answer."""
        self.end_status()
        print(text, file=self.out)

    def text(self, text: str, *, state: str = "") -> None:
        """Stored prose, wrapped to the terminal; a state at its beginning is coloured."""
        lines = [clean(text)]
        if self.is_tty:
            lines = wrapped(lines[0], shutil.get_terminal_size().columns)
        lines[0] = self.state(state) + lines[0].removeprefix(state)
        for line in lines:
            self.line(line)

    def document(self, value: Any) -> None:
        """The whole answer as one JSON document."""
        self.end_status()
        print(_escaped(json.dumps(value, indent=2, ensure_ascii=False)), file=self.out)

    def record(self, value: Any) -> None:
        """One part of an answer that comes bit by bit: a JSON document on a line."""
        self.end_status()
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        print(_escaped(text), file=self.out, flush=True)

    def stored(self, text: str) -> None:
        """A stored text as the answer: made harmless for a terminal, unchanged for a pipe."""
        self.line(harmless(text) if self.is_tty else text)

    def bytes(self, data: bytes) -> None:
        """The answer as it is stored."""
        self.end_status()
        self.out.flush()
        self.out.buffer.write(data)
        self.out.buffer.flush()

    def complain(self, text: str) -> None:
        """One line on the error stream."""
        self.end_status()
        print(f"ff: {clean(mask(text))}", file=self.err)

    def note(self, text: str) -> None:
        """A note beside the answer: on the error stream, and never with --json."""
        if not self.as_json:
            self.end_status()
            print(text, file=self.err)

    def status(self, text: str) -> None:
        """Rewrite the progress line; no effect without a terminal."""
        if self.shows_progress:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[2K{shorten(clean(text), width)}", end="", file=self.err, flush=True)
            self._status_shown = True

    def end_status(self) -> None:
        """Wipe the progress line."""
        if self._status_shown:
            print("\r\x1b[2K", end="", file=self.err, flush=True)
            self._status_shown = False

    def facts(self, pairs: Sequence[tuple[str, str]], *, indent: int = 2) -> None:
        """Names and values, the values aligned."""
        width = max((len(name) for name, _ in pairs), default=0)
        for name, value in pairs:
            label = self.paint(name.ljust(width), "dim")
            margin = " " * (indent + width + 2)
            lines = [value]
            if self.is_tty:
                lines = wrapped(value, shutil.get_terminal_size().columns - len(margin))
            self.line(f"{' ' * indent}{label}  {lines[0]}".rstrip())
            for more in lines[1:]:
                self.line(margin + more)

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> None:
        """Aligned columns that fit the terminal; piped output is never shortened.

        An empty column that may shrink is left out, and so is one with only its silent value.
        """
        cells = [[clean("" if cell is None else cell) for cell in row] for row in rows]
        styles = [[_style(*pair) for pair in zip(columns, row, strict=True)] for row in rows]
        kept = [i for i, c in enumerate(columns) if _speaks(c, [row[i] for row in cells])]
        columns = [columns[i] for i in kept]
        cells = [[row[i] for i in kept] for row in cells]
        styles = [[row[i] for i in kept] for row in styles]
        widths = [
            max([len(column.title), *(cells_of(row[i]) for row in cells)])
            for i, column in enumerate(columns)
        ]
        if self.is_tty:
            widths = _fit(columns, widths, shutil.get_terminal_size().columns)
        self.line(self.paint(_join(columns, [c.title for c in columns], widths), "dim"))
        for row, colors in zip(cells, styles, strict=True):
            padded = map(_pad, columns, row, widths)
            self.line("  ".join(map(self.paint, padded, colors)).rstrip())


def _style(column: Column, cell: object) -> str | None:
    if isinstance(cell, Painted):
        return cell.style
    return STYLE_OF_STATE.get(str(cell)) if column.styled else None


def _speaks(column: Column, cells: Sequence[str]) -> bool:
    """Whether a column has any content."""
    if column.silent is not None:
        return any(cell != column.silent for cell in cells)
    return not column.shrinks or any(cells)


def _pad(column: Column, cell: str, width: int) -> str:
    short = shorten(cell, width)
    blank = " " * (width - cells_of(short))
    return blank + short if column.right else short + blank


def _join(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
    cells = zip(columns, row, widths, strict=True)
    return "  ".join(_pad(column, cell, width) for column, cell, width in cells).rstrip()


def _fit(columns: Sequence[Column], widths: list[int], available: int) -> list[int]:
    """Take the excess from the widest columns that may shrink, one character at a time: first from
    those above their minimum, then from all."""
    fitted = list(widths)
    excess = sum(fitted) + 2 * (len(fitted) - 1) - available
    for least in ([column.least for column in columns], [_COLUMN_MIN] * len(columns)):
        while excess > 0:
            wide = [i for i, c in enumerate(columns) if c.shrinks and fitted[i] > least[i]]
            if not wide:
                break
            fitted[max(wide, key=lambda i: fitted[i])] -= 1
            excess -= 1
    return fitted
