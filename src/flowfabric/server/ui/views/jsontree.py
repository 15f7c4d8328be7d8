"""A payload as a tree that can be folded, and what is too much to show at once."""

from __future__ import annotations

import json
from typing import Any, Final

from flowfabric.model.record import Record

SHOWN_BYTES: Final = 262_144
NODES_MAX: Final = 1_500
_DEPTH_MAX: Final = 32
_TEXT_MAX: Final = 4_000


class Node(Record, frozen=True, kw_only=True):
    """One value. `path`: how a program gets at it; `count`: of what is in it; `rest`: so many of
    these are not shown."""

    key: str
    path: str
    kind: str  # object, array, string, number, word
    text: str = ""
    href: str = ""
    children: tuple[Node, ...] = ()
    count: int = 0
    rest: int = 0
    depth: int = 0


class Payload(Record, frozen=True, kw_only=True):
    """What was stored: as a tree where it is JSON, else as text, at most the first part of it."""

    size: int
    tree: Node | None = None
    text: str = ""
    source: str = ""  # as it is edited
    is_cut: bool = False
    is_binary: bool = False


def payload_of(data: bytes | None) -> Payload | None:
    """What there is to see of a payload; None for none."""
    if not data:
        return None
    if len(data) > SHOWN_BYTES:
        text = data[:SHOWN_BYTES].decode("utf-8", "replace")
        return Payload(size=len(data), text=text, is_cut=True)
    try:
        value = json.loads(data, parse_constant=str)
    except (ValueError, RecursionError):
        return _plain(data)
    source = json.dumps(value, indent=2, ensure_ascii=False)
    return Payload(size=len(data), tree=_Builder().node(value, "", "$", 0), source=source)


def _plain(data: bytes) -> Payload:
    try:
        return Payload(size=len(data), text=data.decode("utf-8"))
    except UnicodeDecodeError:
        return Payload(size=len(data), text=data[:2_048].hex(" ", 2), is_binary=True)


class _Builder:
    """Counts what it shows."""

    def __init__(self) -> None:
        self._left = NODES_MAX

    def node(self, value: Any, key: str, path: str, depth: int) -> Node:
        self._left -= 1
        if isinstance(value, dict):
            return self._inner("object", list(value.items()), key, path, depth)
        if isinstance(value, list):
            numbered = [(str(index), each) for index, each in enumerate(value)]
            return self._inner("array", numbered, key, path, depth)
        if isinstance(value, str):
            text = value if len(value) <= _TEXT_MAX else f"{value[:_TEXT_MAX]}…"
            href = value if value.startswith("https://") and not _has_space(value) else ""
            return Node(key=key, path=path, kind="string", text=text, href=href, depth=depth)
        kind = "word" if value is None or isinstance(value, bool) else "number"
        text = json.dumps(value)
        return Node(key=key, path=path, kind=kind, text=text[:_TEXT_MAX], depth=depth)

    def _inner(
        self, kind: str, items: list[tuple[str, Any]], key: str, path: str, depth: int
    ) -> Node:
        children: list[Node] = []
        for name, each in items:
            if self._left <= 0 or depth >= _DEPTH_MAX:
                break
            step = f"[{name}]" if kind == "array" else _member(name)
            children.append(self.node(each, name, path + step, depth + 1))
        return Node(
            key=key,
            path=path,
            kind=kind,
            children=tuple(children),
            count=len(items),
            rest=len(items) - len(children),
            depth=depth,
        )


def _member(name: str) -> str:
    return f".{name}" if name.isidentifier() else f"[{json.dumps(name, ensure_ascii=False)}]"


def _has_space(text: str) -> bool:
    return len(text) > 2_000 or any(c.isspace() or not c.isprintable() for c in text)
