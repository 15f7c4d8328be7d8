"""What a document of the HTTP API promises to callers, and what another one breaks of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

Schema = Mapping[str, Any]
Pair = tuple[str, str, bool]

_SAID: Final = ("description", "title", "summary", "default")  # for people, not for programs
_SUCCESS: Final = ("2", "3")
# Unions and words that may gain members: a client takes an unknown one as "other".
OPEN: Final = ("Event", "EventKind")


def promised(document: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a document that programs depend on."""
    paths = {}
    for path, methods in document["paths"].items():
        for method, about in methods.items():
            body = about.get("requestBody", {}).get("content", {}).get("application/json", {})
            paths[f"{method.upper()} {path}"] = {
                "scope": about.get("x-scope"),
                "parameters": {
                    f"{each['in']} {each['name']}": {
                        "required": each.get("required", False),
                        "schema": _bare(each["schema"]),
                    }
                    for each in about.get("parameters", ())
                },
                "request": _bare(body.get("schema")),
                "answers": {
                    status: {
                        media: _bare(each.get("schema"))
                        for media, each in answer.get("content", {}).items()
                    }
                    for status, answer in about["responses"].items()
                    if status.startswith(_SUCCESS)
                },
            }
    schemas = {name: _bare(each) for name, each in document["components"]["schemas"].items()}
    return {"version": document["info"]["version"], "paths": paths, "schemas": schemas}


def _bare(schema: Any) -> Any:
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            named = {name: _bare(each) for name, each in schema["properties"].items()}
            rest = {k: v for k, v in schema.items() if k != "properties"}
            return {**_bare(rest), "properties": named}
        return {name: _bare(each) for name, each in schema.items() if name not in _SAID}
    return [_bare(each) for each in schema] if isinstance(schema, list) else schema


def kept(path: Path) -> dict[str, Any]:
    """A document that was kept."""
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def written(promises: Mapping[str, Any]) -> str:
    """A line for each path and schema, so that differences can be read."""
    parts = []
    for group in ("paths", "schemas"):
        lines = (
            f"{json.dumps(name)}: {json.dumps(each, sort_keys=True, ensure_ascii=False)}"
            for name, each in sorted(promises[group].items())
        )
        parts.append(f"{json.dumps(group)}: {{\n" + ",\n".join(lines) + "\n}")
    return f'{{"version": {json.dumps(promises["version"])},\n' + ",\n".join(parts) + "\n}\n"


def breaks(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What a caller of the old one cannot do any more, or does not understand."""
    return sorted(set(_Comparison(old, new).found()))


class _Comparison:
    def __init__(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        self._old = old
        self._new = new
        self._seen: set[Pair] = set()

    def found(self) -> Iterator[str]:
        for name, old in self._old["paths"].items():
            new = self._new["paths"].get(name)
            if new is None:
                yield f"{name} is gone"
                continue
            if new["scope"] != old["scope"]:
                yield f"{name}: needs the scope {new['scope']}, was {old['scope']}"
            yield from self._parameters(name, old["parameters"], new["parameters"])
            if old["request"] is not None:
                yield from self._request(f"{name} body", old["request"], new["request"])
            for status, media in old["answers"].items():
                if status not in new["answers"]:
                    yield f"{name}: is not answered {status} any more"
                    continue
                for word, each in media.items():
                    if word not in new["answers"][status]:
                        yield f"{name}: {status} is not {word} any more"
                    else:
                        other = new["answers"][status][word]
                        yield from self._answer(f"{name} {status}", each, other)

    def _parameters(self, name: str, old: Schema, new: Schema) -> Iterator[str]:
        for word, each in old.items():
            if word not in new:
                yield f"{name}: the parameter {word} is gone"
            else:
                yield from self._request(f"{name} {word}", each["schema"], new[word]["schema"])
        for word, each in new.items():
            if each["required"] and not old.get(word, {}).get("required"):
                yield f"{name}: the parameter {word} is required now"

    # --- what is sent --------------------------------------------------------------------------

    def _request(self, at: str, old: Any, new: Any) -> Iterator[str]:
        """All that fitted must still fit."""
        if new is None:
            yield f"{at}: is not taken any more"
            return
        old, new, is_known = self._resolved(old, new, is_request=True)
        if is_known:
            return
        yield from _fewer(at, old, new, "is not taken any more")
        for word, each in old.get("properties", {}).items():
            if word not in new.get("properties", {}):
                yield f"{at}/{word}: is not taken any more"
            else:
                yield from self._request(f"{at}/{word}", each, new["properties"][word])
        for word in set(new.get("required", ())) - set(old.get("required", ())):
            yield f"{at}/{word}: is required now"
        yield from self._inside(at, old, new, self._request)

    # --- what is answered ----------------------------------------------------------------------

    def _answer(self, at: str, old: Any, new: Any) -> Iterator[str]:
        """All that is answered must be what a caller knows."""
        if old is None or new is None:
            return
        name = _name(old)
        old, new, is_known = self._resolved(old, new, is_request=False)
        if is_known:
            return
        if name not in OPEN:
            yield from _fewer(at, new, old, "is answered now")
        for word, each in old.get("properties", {}).items():
            if word not in new.get("properties", {}):
                yield f"{at}/{word}: is not answered any more"
            else:
                yield from self._answer(f"{at}/{word}", each, new["properties"][word])
        for word in set(old.get("required", ())) - set(new.get("required", ())):
            yield f"{at}/{word}: may be missing now"
        yield from self._inside(at, old, new, self._answer)

    # --- both ----------------------------------------------------------------------------------

    def _inside(self, at: str, old: Schema, new: Schema, compare: Any) -> Iterator[str]:
        for word in ("items", "additionalProperties"):
            if isinstance(old.get(word), dict) and isinstance(new.get(word), dict):
                yield from compare(f"{at}[]", old[word], new[word])
        for each, other in zip(
            old.get("prefixItems", ()), new.get("prefixItems", ()), strict=False
        ):
            yield from compare(at, each, other)
        for word in ("anyOf", "allOf"):
            others = {_key(each): each for each in new.get(word, ())}
            for each in old.get(word, ()):
                if (other := others.get(_key(each))) is not None:
                    yield from compare(f"{at} {_key(each)}", each, other)

    def _resolved(self, old: Any, new: Any, *, is_request: bool) -> tuple[Schema, Schema, bool]:
        pair = (_name(old), _name(new), is_request)
        is_known = bool(pair[0]) and pair in self._seen
        self._seen.add(pair)
        return _schema(self._old, old), _schema(self._new, new), is_known


def _name(schema: Any) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2] if isinstance(schema, dict) else ""


def _key(schema: Schema) -> str:
    """By what one of several alternatives is known: its class, its tag, or its kind."""
    if name := _name(schema):
        return name
    tag = schema.get("properties", {}).get("type", {}).get("const")
    if tag is not None:
        return str(tag)
    for word in ("allOf", "anyOf"):
        if word in schema:
            return "+".join(map(_key, schema[word]))
    if "type" not in schema and "required" in schema:
        return f"with {', '.join(schema['required'])}"
    return str(schema.get("type", "any"))


def _schema(promises: Mapping[str, Any], schema: Schema) -> Schema:
    while (name := _name(schema)) != "":
        schema = promises["schemas"].get(name, {})
    return schema


def _fewer(at: str, old: Schema, new: Schema, what: str) -> Iterator[str]:
    """Kinds and words of one that the other has not."""
    if "type" in old and "type" in new:
        for each in sorted(_kinds(old) - _kinds(new)):
            yield f"{at}: {each} {what}"
    if "enum" in old and "enum" in new:
        for each in old["enum"]:
            if each not in new["enum"]:
                yield f"{at}: {each!r} {what}"
    if "const" in old and "const" in new and old["const"] != new["const"]:
        yield f"{at}: {old['const']!r} {what}"
    if "anyOf" in old and "anyOf" in new:
        known = set(map(_key, new["anyOf"]))
        for each in map(_key, old["anyOf"]):
            if each not in known:
                yield f"{at}: {each} {what}"


def _kinds(schema: Schema) -> set[str]:
    found = schema["type"]
    return {found} if isinstance(found, str) else set(found)
