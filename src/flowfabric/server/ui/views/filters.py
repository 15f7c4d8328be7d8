"""The filter bar: words such as `state:failed`, what they mean, and what is wrong with them."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Sequence
from typing import Any, Final

from flowfabric.model.record import Record
from flowfabric.model.state import PublicState

WORDS: Final = ("state", "kind", "lane", "tag", "since", "until", "namespace")
STATES: Final = tuple(state.value for state in PublicState)
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION: Final = re.compile(r"(\d{1,6})([smhdw])")
_INSTANT: Final = re.compile(r"\d{1,15}")


class Word(Record, frozen=True, kw_only=True):
    """One word of the bar. `problem`: what is wrong with it; `instead`: the nearest right one."""

    text: str
    problem: str = ""
    instead: str = ""


class Filter(Record, frozen=True, kw_only=True):
    """What the words of a bar select, and the words."""

    states: tuple[str, ...] = ()
    execution_kind: str | None = None
    lane_id: str | None = None
    tag: tuple[str, str] | None = None
    namespace: str | None = None
    created_after: int | None = None
    created_before: int | None = None
    text: str | None = None
    words: tuple[Word, ...] = ()

    @property
    def problems(self) -> tuple[Word, ...]:
        """The words that mean nothing."""
        return tuple(word for word in self.words if word.problem)

    def selects(self) -> dict[str, Any]:
        """As fields of the requests that take a filter."""
        names = ("states", "execution_kind", "lane_id", "tag", "namespace")
        found: dict[str, Any] = {name: getattr(self, name) for name in names}
        return {**found, "created_after": self.created_after, "created_before": self.created_before}


def filter_of(
    text: str, now: int, *, lanes: Sequence[str] = (), kinds: Sequence[str] = ()
) -> Filter:
    """The filter that a bar says. `lanes`, `kinds`: those that are known, to tell what was meant by
    a name that is not; without them any name will do."""
    found: dict[str, Any] = {}
    words: list[Word] = []
    free: list[str] = []
    for part in _parts(text):
        name, colon, value = part.partition(":")
        if not colon or not value or not re.fullmatch(r"[a-z_]{2,16}", name):
            free.append(part)
            words.append(Word(text=part))
            continue
        words.append(_read(found, name, value, now))
    for name, field, known in (("kind", "execution_kind", kinds), ("lane", "lane_id", lanes)):
        named = found.get(field)
        if named is not None and known and named not in known:
            words = [_unknown(word, name, named, known) for word in words]
    return Filter(
        **{**found, "states": tuple(found.get("states", ()))},
        text=" ".join(free) or None,
        words=tuple(words),
    )


def _parts(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quotation mark without its other one
        return text.split()


def _read(found: dict[str, Any], name: str, value: str, now: int) -> Word:
    text = f"{name}:{value}" if " " not in value else f'{name}:"{value}"'
    match name:
        case "state":
            if value not in STATES:
                return _wrong(text, "there is no such state", f"state:{nearest(value, STATES)}")
            found.setdefault("states", []).append(value)
        case "kind" | "lane" | "namespace":
            field = {"kind": "execution_kind", "lane": "lane_id"}.get(name, name)
            if field in found:
                return _wrong(text, f"only one {name} at a time")
            found[field] = value
        case "tag":
            key, equals, tagged = value.partition("=")
            if not equals or not key or "tag" in found:
                return _wrong(text, "one tag, as tag:key=value")
            found["tag"] = (key, tagged)
        case "since" | "until":
            at = _instant(value, now)
            if at is None:
                return _wrong(text, "a time back from now, such as 30m, 1h or 7d")
            found["created_after" if name == "since" else "created_before"] = at
        case _:
            return _wrong(text, "there is no such word", f"{nearest(name, WORDS)}:{value}")
    return Word(text=text)


def _wrong(text: str, problem: str, instead: str = "") -> Word:
    return Word(text=text, problem=problem, instead="" if instead.startswith(":") else instead)


def _unknown(word: Word, name: str, value: str, known: Sequence[str]) -> Word:
    if word.text.partition(":")[0] != name:
        return word
    guess = nearest(value, known)
    instead = f"{name}:{guess}" if guess else ""
    return Word(text=word.text, problem=f"no execution was ever of this {name}", instead=instead)


def _instant(value: str, now: int) -> int | None:
    if found := _DURATION.fullmatch(value):
        return max(0, now - int(found[1]) * _UNITS_MS[found[2]])
    return instant_in(value)


def instant_in(text: str | None) -> int | None:
    """Milliseconds, if that is what an address says."""
    return int(text) if text is not None and _INSTANT.fullmatch(text) else None


def nearest(word: str, known: Sequence[str]) -> str:
    """The known word that was most likely meant; empty if none is near.

    >>> nearest("faild", ("failed", "active"))
    'failed'
    """
    found = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return found[0] if found else ""


def without(text: str, word: Word) -> str:
    """The bar without one of its words."""
    parts = _parts(text)
    kept = [part for part in parts if part != word.text.replace('"', "")]
    return " ".join(f'"{part}"' if " " in part else part for part in kept)


def instead_of(text: str, word: Word) -> str:
    """The bar with the nearest right word in the place of a wrong one."""
    return text.replace(word.text, word.instead, 1)
