"""The two ways a summary changes: by a merge patch (RFC 7396), or by appending to text and lists.

Both give a new value and leave the given ones alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_ESCAPED: Final = (("~1", "/"), ("~0", "~"))  # of a JSON pointer, in this order


def merge_patch(target: Any, patch: Any) -> Any:
    """The target with a merge patch applied, as RFC 7396 says.

    >>> merge_patch({"a": 1, "b": {"c": 2}}, {"a": None, "b": {"d": 3}})
    {'b': {'c': 2, 'd': 3}}
    """
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


class CannotAppend(ValueError):
    """The steps of an append do not fit the document; the text says where."""


def append_all(document: Mapping[str, Any], steps: Any) -> dict[str, Any]:
    """The document with `{path, value}` steps applied: text is added to text, a list to a list.

    A path is a JSON pointer through objects; what is missing on the way is made.

    >>> append_all({"log": "a"}, [{"path": "/log", "value": "b"}, {"path": "/n/x", "value": [1]}])
    {'log': 'ab', 'n': {'x': [1]}}
    """
    if not isinstance(steps, list):
        raise CannotAppend("expected a list of {path, value}")
    changed = dict(document)
    for at, step in enumerate(steps):
        if not isinstance(step, Mapping) or set(step) != {"path", "value"}:
            raise CannotAppend(f"step {at}: expected {{path, value}}")
        keys, value = _keys_of(step["path"], at), step["value"]
        if not isinstance(value, str | list):
            raise CannotAppend(f"step {at}: only text and lists can be appended")
        _append(changed, keys, value, at)
    return changed


def _keys_of(path: Any, at: int) -> list[str]:
    if not isinstance(path, str) or not path.startswith("/"):
        raise CannotAppend(f"step {at}: expected a path such as /answer")
    keys = path[1:].split("/")
    for escaped, plain in _ESCAPED:
        keys = [key.replace(escaped, plain) for key in keys]
    return keys


def _append(changed: dict[str, Any], keys: list[str], value: str | list[Any], at: int) -> None:
    *way, last = keys
    parent = changed
    for key in way:
        below = parent.get(key, {})
        if not isinstance(below, Mapping):
            raise CannotAppend(f"step {at}: {key!r:.40} is no object")
        parent[key] = below = dict(below)
        parent = below
    known = parent.get(last)
    if known is None:
        parent[last] = value
    elif isinstance(known, str) and isinstance(value, str):
        parent[last] = known + value
    elif isinstance(known, list) and isinstance(value, list):
        parent[last] = [*known, *value]
    else:
        raise CannotAppend(f"step {at}: {last!r:.40} is of another type")


def is_deeper(value: Any, levels: int) -> bool:
    """Whether objects and lists nest deeper than so many levels below this value."""
    layer = [value]
    for _ in range(levels + 1):
        layer = [below for each in layer for below in _below(each)]
        if not layer:
            return False
    return any(isinstance(each, Mapping | list) for each in layer)


def _below(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else []
