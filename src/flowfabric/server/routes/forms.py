"""How a request is made of a path, a query, headers and a body, for each route."""

from __future__ import annotations

import base64
import difflib
import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, get_type_hints

from flowfabric.api.operation import Request
from flowfabric.api.page import Page
from flowfabric.errors import (
    InvalidCursor,
    InvalidInput,
    MalformedJson,
    RevisionRequired,
    UnsupportedMediaType,
)
from flowfabric.model.record import Record, defaults_of, replace
from flowfabric.server.exchange import Call
from flowfabric.server.plain import WORDS
from flowfabric.server.routes.route import Route
from flowfabric.server.routes.values import Param, params_of
from flowfabric.server.service import Service
from flowfabric.server.shapes import Shape, missing, shape_of

_JSON: Final = "application/json"
_CHARSETS: Final = ("", "charset=utf-8", 'charset="utf-8"')
_KEY: Final = "idempotency_key"
_WAIT: Final = "wait"  # a request that waits says so
_NO_FILTER: Final = ("cursor", "limit", "wait_ms")


class Nothing(Record, frozen=True, kw_only=True):
    """The body of a request that has none."""


class Form:
    """What one route reads, and from where."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.kind: type[Record] = route.asked().request if route.operation else Nothing
        if route.body is not None:
            self.kind = route.body
        self._fixed = dict(route.fixed)
        apart = {*self._fixed, *route.hidden} | ({route.if_match} - {None})
        fields = [each for each in self.kind.__struct_fields__ if each not in apart]
        in_path = [each for each in route.parameters if each in fields]
        self._in_path = {each.field: each for each in params_of(self.kind, in_path)}
        self.path_params = [self._in_path.get(each) for each in route.parameters]
        rest = [each for each in fields if each not in in_path]
        names = rest if route.method in ("GET", "DELETE") else list(route.query)
        self.query = {each.word: each for each in params_of(self.kind, names)}
        hints = get_type_hints(self.kind)
        self._filters = {
            each.inside: hints[each.inside] for each in self.query.values() if each.inside
        }
        self.body_fields = () if names is rest else tuple(n for n in rest if n not in names)
        self.without = frozenset(set(self.kind.__struct_fields__) - set(self.body_fields))
        self._takes_key = _KEY in self.body_fields
        defaults = defaults_of(self.kind)  # it resolves every annotation, so never for a request
        self._needed = [each for each in self.kind.__struct_fields__ if each not in defaults]

    @cached_property
    def shape(self) -> Shape | None:
        """How the body is read; None where a route takes none."""
        if self.route.method in ("GET", "DELETE"):
            return None
        return shape_of(self.kind, without=self.without)

    async def read(self, service: Service, call: Call) -> Request[Any]:
        """The request."""
        values: dict[str, Any] = {**self.route.defaults, **self._fixed}
        if _WAIT in self.query:
            values[self.query[_WAIT].field] = 0
        for name, param in self._in_path.items():
            values[name] = param.read(call.params[name])
        read_query(call, self.query, values)
        for name, kind in self._filters.items():
            values[name] = kind(**values.get(name, {}))
        if self.shape is not None:
            given = await body_of(service, call)
            values.update(self._body_values(self.shape, given, call))
        if self.route.if_match is not None:
            values[self.route.if_match] = revision_of(call, is_needed=self.route.is_match_needed)
        self._complete(values)
        made: Request[Any] = self.kind(**values)  # type: ignore[assignment]
        return self._unsealed(made, call)

    def _body_values(self, shape: Shape, body: bytes, call: Call) -> dict[str, Any]:
        values: dict[str, Any] = shape.read(body)
        key = call.header(b"idempotency-key")
        if key is not None and self._takes_key:
            if values.get(_KEY) not in (None, key):
                detail = f"{_KEY}: the header Idempotency-Key has another one"
                raise InvalidInput(detail, field=_KEY)
            values[_KEY] = key
        return values

    def _complete(self, values: Mapping[str, Any]) -> None:
        for name in self._needed:
            if name not in values:
                raise missing(WORDS.get(name, name))

    # --- cursors -------------------------------------------------------------------------------

    def _unsealed(self, request: Request[Any], call: Call) -> Request[Any]:
        """A cursor is good for the filter it was answered to."""
        cursor = getattr(request, "cursor", None)
        if cursor is None:
            return request
        plain, _, mark = cursor.rpartition(".")
        if not plain or mark != _mark(request, call):
            raise InvalidCursor("cursor: not one of this listing and filter", field="cursor")
        return replace(request, cursor=plain)

    def sealed(self, page: Page[Any], request: Request[Any], call: Call) -> Page[Any]:
        """The page with a cursor that knows its filter."""
        if page.next_cursor is None:
            return page
        return replace(page, next_cursor=f"{page.next_cursor}.{_mark(request, call)}")


_FORMS: Final[dict[int, Form]] = {}


def form_of(route: Route) -> Form:
    """The form of a route, made once. A form keeps its route, so that no other has its `id`."""
    found = _FORMS.get(id(route))
    if found is None:
        found = _FORMS[id(route)] = Form(route)
    return found


def read_query(call: Call, params: Mapping[str, Param], values: dict[str, Any]) -> None:
    """Read the parameters of a query into values; each may stand once unless it is a list."""
    seen: set[str] = set()
    for word, text in call.query:
        param = params.get(word)
        if param is None:
            raise unknown_parameter(word, params)
        target = values if param.inside is None else values.setdefault(param.inside, {})
        if param.is_list:
            target[param.field] = (*target.get(param.field, ()), param.read(text))
        elif word in seen:
            raise InvalidInput(f"{word}: is given twice", field=word)
        else:
            target[param.field] = param.read(text)
        seen.add(word)


def unknown_parameter(word: str, known: Mapping[str, Any]) -> InvalidInput:
    """Names the nearest one that there is."""
    near = difflib.get_close_matches(word, known, 1)
    hint = f", did you mean {near[0]}?" if near else ""
    item = {
        "pointer": f"?{word:.200}",
        "detail": "unknown parameter",
        "suggestion": near[0] if near else None,
    }
    return InvalidInput(
        f"{word:.200}: there is no such parameter{hint}", field=f"{word:.200}", errors=[item]
    )


async def body_of(service: Service, call: Call) -> bytes:
    """The body as JSON; none at all is an empty object."""
    given = call.header(b"content-type")
    if given is not None:
        media, _, options = given.partition(";")
        if media.strip().lower() != _JSON or options.strip().lower() not in _CHARSETS:
            detail = f"Content-Type: expected {_JSON} in UTF-8, got {given!s:.100}"
            raise UnsupportedMediaType(detail, field="Content-Type")
    body = await call.body(service.body_limit(call.row.size))
    if body:
        return body
    if given is not None:
        raise MalformedJson("body: is empty, and no JSON", field="body", line=1, column=1)
    return b"{}"


def revision_of(call: Call, *, is_needed: bool) -> int | None:
    """The revision that the header If-Match gives."""
    text = call.header(b"if-match")
    if text is None:
        if is_needed:
            raise RevisionRequired("If-Match: is missing", field="If-Match")
        return None
    number = text.strip().removeprefix("W/").strip('"')
    if not number.isascii() or not number.isdigit() or len(number) > 18:
        raise InvalidInput('If-Match: expected an ETag such as "7"', field="If-Match")
    return int(number)


def etag(revision: object) -> bytes:
    """A revision as the header ETag has it."""
    return f'"{revision}"'.encode()


def _mark(request: Request[Any], call: Call) -> str:
    """Some letters for a listing with its filter."""
    names = (each for each in request.__struct_fields__ if each not in _NO_FILTER)
    parts = [repr(getattr(request, each)) for each in names]
    digest = hashlib.blake2b("\0".join([call.row.path, *parts]).encode(), digest_size=6).digest()
    return base64.urlsafe_b64encode(digest).decode("ascii")
