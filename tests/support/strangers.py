"""Requests made at random from the OpenAPI document: most of them nearly right."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final
from urllib.parse import quote

from tests.support.contract import document, resolved

Schema = Mapping[str, Any]

_TEXTS: Final = (
    "",
    "a",
    "work",
    "default",
    "team.name",
    "k:v",
    "\x00",
    "\n",
    "é🙂",
    "x" * 70,
    "y" * 300,
    "../..",
    "%",
    "null",
    "2026-03-29T02:30:00+02:00",
    "1ms",
    "25s",
    "AAAA",
    "-_-_",
    "now",
    "1-0",
    "0:0-0",
)
_NUMBERS: Final = (0, 1, -1, 2, 5, 100, 1_000, 1_001, 60_000, 10**12, 10**15, 2**31, 2**63 - 1)
_BEYOND: Final = (2**63, -(2**63), 10**30, 1.5, 1e300)
_DEPTH: Final = 5


class Stranger:
    """A caller that knows the document and some ids, and is careless."""

    def __init__(self, random: Random, known: Sequence[str]) -> None:
        self._random = random
        self._known = known  # ids, keys and cursors
        self._routes = [
            (method.upper(), path, about)
            for path, methods in document()["paths"].items()
            for method, about in methods.items()
        ]

    def request(self) -> tuple[str, str, dict[str, str], bytes | None]:
        """A method, a target, headers and a body."""
        random = self._random
        method, path, about = random.choice(self._routes)
        headers: dict[str, str] = {}
        query: list[str] = []
        for each in about.get("parameters", ()):
            if each["in"] == "path":
                path = path.replace(f"{{{each['name']}}}", quote(self._text(), safe=""))
            elif each["in"] == "header" and random.random() < 0.4:
                headers[each["name"]] = random.choice(('"1"', "*", "k1", "W/7", "x" * 50))
            elif each["in"] == "query" and random.random() < 0.3:
                word = f"{each['name']}={quote(self._word(each['schema']))}"
                query += [word] * random.choice((1, 1, 1, 2))
        if random.random() < 0.03:
            query.append("strange=1")
        if random.random() < 0.02:
            method = random.choice(("GET", "POST", "PUT", "DELETE", "HEAD", "BREW"))
        body = self._body(about) if "requestBody" in about else None
        return method, "?".join([path, "&".join(query)] if query else [path]), headers, body

    def _body(self, about: Mapping[str, Any]) -> bytes | None:
        random = self._random
        if random.random() < 0.05:
            return None
        schema = about["requestBody"]["content"]["application/json"]["schema"]
        body = json.dumps(self.value(schema)).encode()
        if random.random() < 0.05:
            at = random.randrange(len(body))
            body = body[:at] + bytes([random.randrange(256)]) + body[at + 1 :]
        return body

    # --- values --------------------------------------------------------------------------------

    def value(self, schema: Schema, depth: int = 0) -> Any:
        """Something that fits a schema, nearly always."""
        random = self._random
        schema = resolved(schema)
        if random.random() < 0.01:
            return random.choice((None, [], {}, "", 0, True, -1.5, [[]], {"type": "x"}))
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return "strange" if random.random() < 0.05 else random.choice(schema["enum"])
        if "anyOf" in schema:
            return self.value(random.choice(schema["anyOf"]), depth)
        kinds = schema.get("type", "object" if "properties" in schema else "any")
        kind = random.choice(kinds) if isinstance(kinds, list) else kinds
        made: Any = getattr(self, f"_{kind}")(schema, depth)
        return made

    def _any(self, schema: Schema, depth: int) -> Any:
        return self._random.choice((None, 1, "text", {"a": [1, 2.5]}, [], 2**62))

    def _null(self, schema: Schema, depth: int) -> None:
        return None

    def _boolean(self, schema: Schema, depth: int) -> bool:
        return self._random.random() < 0.5

    def _integer(self, schema: Schema, depth: int) -> Any:
        return self._random.choice(_BEYOND if self._random.random() < 0.05 else _NUMBERS)

    def _number(self, schema: Schema, depth: int) -> Any:
        return self._random.choice((0, 1, 0.5, -2.5, 1e300))

    def _string(self, schema: Schema, depth: int) -> str:
        return self._text()

    def _array(self, schema: Schema, depth: int) -> list[Any]:
        if "prefixItems" in schema:
            return [self.value(each, depth + 1) for each in schema["prefixItems"]]
        count = 0 if depth >= _DEPTH else self._random.choice((0, 1, 1, 2, 3))
        return [self.value(schema["items"], depth + 1) for _ in range(count)]

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        random = self._random
        needed = set(schema.get("required", ()))
        for each in schema.get("allOf", ()):
            needed |= set(random.choice(each["anyOf"])["required"])
        share = 0.25 if depth < _DEPTH else 0.0
        found = {
            name: self.value(one, depth + 1)
            for name, one in schema.get("properties", {}).items()
            if (name in needed and random.random() > 0.02) or random.random() < share
        }
        values = schema.get("additionalProperties")
        if isinstance(values, dict) and depth < _DEPTH:
            for _ in range(random.choice((0, 1, 2))):
                found[self._text()] = self.value(values, depth + 1)
        if random.random() < 0.02:
            found["strange"] = 1
        return found

    def _text(self) -> str:
        return self._random.choice(self._known if self._random.random() < 0.6 else _TEXTS)

    def _word(self, schema: Schema) -> str:
        schema = resolved(schema)
        if schema.get("type") == "array":
            schema = schema["items"]
        value = self.value(schema)
        return value if isinstance(value, str) else json.dumps(value)
