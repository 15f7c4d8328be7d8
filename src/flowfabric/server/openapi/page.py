"""The reference as one page of HTML: no script, and nothing from another host."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any, Final

from flowfabric.server.openapi.reference import (
    Entry,
    Field,
    Part,
    Type,
    entries_of,
    types_of,
)

_STYLE: Final = """\
:root{color-scheme:light dark;--line:#8884;--soft:#8882;--link:#2563eb}
@media(prefers-color-scheme:dark){:root{--link:#7aa7ff}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:70rem;padding:1.5rem;font:16px/1.5 system-ui,sans-serif}
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}
code,pre{font:14px/1.5 ui-monospace,SFMono-Regular,Menlo,monospace}
nav ul{columns:3 15rem;padding:0;list-style:none}
details{border:1px solid var(--line);border-radius:6px;margin:.5rem 0;padding:.5rem .8rem}
summary{cursor:pointer}summary b{display:inline-block;min-width:4.2rem}
table{border-collapse:collapse;width:100%;margin:.5rem 0}
td,th{border-top:1px solid var(--line);padding:.25rem .6rem .25rem 0;text-align:left;
vertical-align:top}
.soft{opacity:.75}h2{margin-top:2.5rem}h4{margin:.8rem 0 .2rem}
"""
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode("ascii")
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


def page(document: Mapping[str, Any]) -> bytes:
    """The whole page."""
    return "".join(_page(document)).encode()


def _page(document: Mapping[str, Any]) -> Iterator[str]:
    info = document["info"]
    entries = entries_of(document)
    yield (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(info['title'])} API</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>"
    )
    yield from _text(info["description"])
    yield '<p>For programs: <a href="openapi.json">openapi.json</a></p><nav><ul>'
    for tag in entries:
        yield f'<li><a href="#{_slug(tag)}">{escape(tag)}</a></li>'
    yield '<li><a href="#types">types</a></li></ul></nav>'
    for tag, several in entries.items():
        yield f'<h2 id="{_slug(tag)}">{escape(tag).capitalize()}</h2>'
        for entry in several:
            yield from _entry(entry)
    yield '<h2 id="types">Types</h2>'
    for each in types_of(document):
        yield from _type(each)
    yield "</body></html>\n"


def _slug(tag: str) -> str:
    return tag.replace(" ", "-")


def _text(text: str) -> Iterator[str]:
    """Paragraphs and lists of plain text."""
    for block in text.strip().split("\n\n"):
        if block.startswith("* "):
            items = block.removeprefix("* ").split("\n* ")
            yield "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"
        else:
            yield f"<p>{escape(block)}</p>"


def _entry(entry: Entry) -> Iterator[str]:
    yield (
        f'<details id="{entry.anchor}"><summary><b>{entry.method}</b> '
        f"<code>{escape(entry.path)}</code> {escape(entry.title)}</summary>"
    )
    scope = "no token" if entry.scope is None else f"scope {entry.scope}"
    yield f'<p class="soft">{scope} · a repeat is safe by {entry.repeat}</p>'
    if entry.text:
        yield from _text(entry.text)
    if entry.parameters:
        yield from _table("Parameters", entry.parameters)
    if entry.body:
        yield from _table("Body", entry.body)
    elif entry.body_type:
        yield f"<h4>Body</h4><p>{_linked(entry.body_type)}</p>"
    yield "<h4>Answers</h4><table>"
    for reply in entry.replies:
        yield f"<tr><td>{reply.status}</td><td>{_linked(reply.parts)}</td></tr>"
    yield f'</table><p class="soft">Errors: {escape(", ".join(entry.codes))}</p></details>'


def _type(each: Type) -> Iterator[str]:
    yield f'<details id="type-{each.name}"><summary><code>{each.name}</code></summary>'
    yield from _text(each.text)
    if each.words:
        yield f"<p>{' | '.join(f'<code>{escape(word)}</code>' for word in each.words)}</p>"
    if each.fields:
        yield from _table("Fields", each.fields)
    yield "</details>"


def _table(title: str, fields: Iterable[Field]) -> Iterator[str]:
    yield f"<h4>{title}</h4><table>"
    for each in fields:
        mark = "" if each.is_needed else "?"
        yield (
            f"<tr><td><code>{escape(each.name)}{mark}</code></td><td>{_linked(each.parts)}</td>"
            f"<td>{escape(each.text)}</td></tr>"
        )
    yield "</table>"


def _linked(parts: Iterable[Part]) -> str:
    return "".join(
        escape(text) if name is None else f'<a href="#type-{name}">{escape(text)}</a>'
        for text, name in parts
    )
