"""A document as a page of Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from flowfabric.server.openapi.reference import Entry, Field, Part, Type, entries_of, types_of

_WIDTH: Final = 100
_COMMON: Final = """\
* A name with `?` may be left out of a request. A payload stands under its own name where it is
  JSON, else as Base64 under the name with `_base64`.
* *Repeat* is how the same request may safely be sent again: *read* changes nothing, *key* by the
  header `Idempotency-Key` or the field of this name, *fence* by the handle, *state* answers the
  same or a refusal that tells how things are.
* Of errors the codes are listed that not every path has. Each may also answer """
_TITLES: Final = {"status": "Status of an installation"}


def markdown(document: Mapping[str, Any]) -> str:
    """The page without its title."""
    by_tag = entries_of(document)
    entries = [each for several in by_tag.values() for each in several]
    usual = set.intersection(*(set(each.codes) for each in entries if each.scope))
    usual_text = ", ".join(f"`{code}`" for code in sorted(usual)) + "; see [errors](errors.md)."
    parts = [document["info"]["description"] + _wrapped(_COMMON + usual_text)]
    for tag, several in by_tag.items():
        parts.append(f"## {_TITLES.get(tag, tag.capitalize())}\n")
        parts += ["\n".join(_entry(each, usual)) for each in several]
    parts.append("## Types\n")
    parts += ["\n".join(_type(each)) for each in types_of(document)]
    return "\n".join(parts).rstrip() + "\n"


def _wrapped(text: str) -> str:
    """Bullets, each wrapped anew."""
    bullets = text.split("\n* ")
    filled = (
        textwrap.fill(
            " ".join(each.removeprefix("* ").split()),
            _WIDTH,
            initial_indent="* ",
            subsequent_indent="  ",
            break_on_hyphens=False,
            break_long_words=False,
        )
        for each in bullets
    )
    return "\n".join(filled) + "\n"


def _entry(entry: Entry, usual: set[str]) -> Iterator[str]:
    yield f"### {entry.method} {entry.path}\n"
    scope = "no token" if entry.scope is None else f"scope `{entry.scope}`"
    yield f"{entry.title}. *{scope}, repeat {entry.repeat}*\n"
    if entry.text:
        yield entry.text + "\n"
    query = [each for each in entry.parameters if not each.text.startswith("in the path")]
    lines = [*_lines("?", query), *_lines(" ", entry.body)]
    if entry.body_type:
        lines.append(f"  body: {_plain(entry.body_type)}")
    lines += [f"→ {each.status} {_plain(each.parts)}" for each in entry.replies]
    yield "```"
    yield from lines
    yield "```\n"
    own = [f"`{code}`" for code in entry.codes if code not in usual]
    if own:
        yield f"Errors: {', '.join(own)}\n"


def _lines(mark: str, fields: Iterable[Field]) -> Iterator[str]:
    for each in fields:
        note = f"  ({each.text})" if each.text else ""
        yield f"{mark} {each.name}{'' if each.is_needed else '?'}: {_plain(each.parts)}{note}"


def _plain(parts: Iterable[Part]) -> str:
    return "".join(text for text, _ in parts)


def _type(each: Type) -> Iterator[str]:
    yield f"### {each.name}\n"
    if each.text:
        yield each.text + "\n"
    yield "```"
    yield " | ".join(each.words) if each.words else "\n".join(_lines(" ", each.fields)) or "  {}"
    yield "```\n"
