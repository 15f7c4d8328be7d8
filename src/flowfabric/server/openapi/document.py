"""The OpenAPI document of a table of routes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Union, get_args, get_origin

from flowfabric import errors
from flowfabric.api.operation import COMMON_ERRORS, OPERATIONS, Kind
from flowfabric.errors import FlowFabricError
from flowfabric.server.openapi.schemas import PROBLEM, Schema, Schemas, described, reference
from flowfabric.server.routes.forms import Form, Nothing
from flowfabric.server.routes.route import Route, Size
from flowfabric.server.routes.values import Param
from flowfabric.server.shapes import IS_INSTANT

JSON: Final = "application/json"
_PROBLEM_JSON: Final = "application/problem+json"
_COMMANDS: Final = "/v1/commands"
_RESPONSES: Final = "#/components/responses/"
_PROBLEM_OF: Final = "Problem"
_HAS_BODY: Final = ("POST", "PATCH", "PUT")
_INTRODUCTION: Final = """\
Durable execution over HTTP. Each request is one operation of the engine, with the same meaning as
on the store.

* Bodies are JSON in UTF-8. Unknown fields and parameters are refused (422), with the nearest name.
* Answers have every field; what is not set is `null`. More fields may join them later.
* An object that is one of several kinds tells its kind as `type`.
* Instants are integers, UTC milliseconds; requests may also give RFC 3339 text with an offset.
* Ids in paths may be written as `17.0193a1f0-…` for `{fp:17}:0193a1f0-…`.
* `HEAD` answers as `GET`, without a body.
* Every error is a problem (RFC 9457) with a `code`; `retryable` says whether the same request may
  succeed later.
"""

_EVERYWHERE: Final = (
    errors.MalformedRequest,
    errors.UriTooLong,
    errors.HeadersTooLarge,
    errors.MisdirectedRequest,
    errors.NotAcceptable,
    errors.RateLimited,
    errors.Overloaded,
    errors.Draining,
    errors.StoreUnavailable,
    errors.StoreError,
)
_OF_CALLERS: Final = (errors.Unauthorized, errors.MissingScope, errors.MissingNamespace)
_OF_BODIES: Final = (
    errors.MalformedJson,
    errors.UnsupportedMediaType,
    errors.PayloadTooLarge,
    errors.InvalidInput,
    errors.CrossSiteRequest,
)
_PROBLEM: Final[Schema] = {
    "type": "object",
    "description": "What went wrong (RFC 9457); an error may have fields of its own beside these.",
    "properties": {
        "type": {"type": "string", "description": "`urn:flowfabric:error:` and the code"},
        "title": {"type": "string", "description": "what to do about it"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
        "retryable": {"type": "boolean"},
        "request_id": {"type": "string"},
        "retry_after_ms": {"type": ["integer", "null"]},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "pointer": {"type": "string"},
                    "detail": {"type": "string"},
                    "suggestion": {"type": ["string", "null"]},
                },
                "required": ["pointer", "detail"],
            },
        },
    },
    "required": ["type", "title", "status", "code", "detail", "retryable"],
    "additionalProperties": True,
}


def document(routes: Iterable[Route], *, version: str) -> dict[str, Any]:
    """The whole document, for JSON."""
    return _Writer(tuple(routes)).document(version)


class _Writer:
    """Writes one document: answers first, so that their classes have their own names."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = routes
        self._named = Counter(each.operation for each in routes if each.operation)
        self._codes: dict[int, set[str]] = {}
        self._answers = Schemas()
        self._responses = {each.name: self._responses_of(each, Form(each)) for each in routes}
        self._requests = Schemas(is_request=True, taken=self._answers.components)

    def document(self, version: str) -> dict[str, Any]:
        paths: dict[str, dict[str, Any]] = {}
        for route in self._routes:
            paths.setdefault(route.path, {})[route.method.lower()] = self._operation(route)
        # A class of requests that is the same as one of answers is that one.
        requests = {
            name: schema
            for name, schema in self._requests.components.items()
            if schema != self._answers.components.get(name.removesuffix("Given"))
        }
        schemas = {PROBLEM: _PROBLEM, **self._answers.components, **requests}
        return {
            "openapi": "3.1.0",
            "info": {"title": "FlowFabric", "version": version, "description": _INTRODUCTION},
            "tags": [{"name": tag} for tag in dict.fromkeys(each.tag for each in self._routes)],
            "paths": paths,
            "components": {
                "schemas": dict(sorted(schemas.items())),
                "responses": self._problems(),
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
        }

    # --- one route -----------------------------------------------------------------------------

    def _operation(self, route: Route) -> dict[str, Any]:
        form = Form(route)
        found: dict[str, Any] = {
            "operationId": self._id_of(route),
            "summary": route.title,
            "tags": [route.tag],
            "x-repeat": route.repeat.value,
        }
        if route.operation and (text := described(route.asked().request)) != route.title:
            found["description"] = text
        if route.scope is not None:
            found["security"] = [{"token": []}]
            found["x-scope"] = route.scope.value
        if parameters := [*self._parameters(route, form)]:
            found["parameters"] = parameters
        if route.method in _HAS_BODY and route.size is not Size.NONE:
            found["requestBody"] = self._body(route, form)
        found["responses"] = self._responses[route.name]
        found["x-errors"] = [each.code for each in errors_of(route, form)]
        return found

    def _id_of(self, route: Route) -> str:
        if route.operation and self._named[route.operation] == 1:
            return route.operation
        words = re.findall(r"\w+", route.path.replace("{", "by_"))
        return "_".join([route.method.lower(), *words])

    def _parameters(self, route: Route, form: Form) -> Iterable[Schema]:
        for name in route.parameters:
            yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for word, param in form.query.items():
            yield self._parameter(route, word, param)
        for word, text in route.own_query.items():
            about = {"name": word, "in": "query", "description": text}
            yield {**about, "schema": {"type": "string"}}
        yield from _headers(route, form)

    def _parameter(self, route: Route, word: str, param: Param) -> Schema:
        found: Schema = {"name": word, "in": "query", "schema": self._query_schema(param)}
        if param.is_needed and param.field not in route.defaults:
            found["required"] = True
        return found

    def _query_schema(self, param: Param) -> Schema:
        if param.hint == tuple[str, str]:
            found: Schema = {"type": "string", "description": "key:value"}
        elif param.word == "wait" or (param.hint is int and param.field.endswith("_ms")):
            found = {"type": "string", "description": "a duration: 20s, 1500ms"}
        elif param.hint is int and IS_INSTANT.search(param.field):
            found = {"type": "string", "description": "UTC milliseconds, or RFC 3339 text"}
        else:
            found = self._requests.of(param.hint)
        return {"type": "array", "items": found} if param.is_list else found

    def _body(self, route: Route, form: Form) -> Schema:
        schema = self._commands() if route.path == _COMMANDS else self._body_schema(form)
        needed = bool(schema.get("required") or schema.get("allOf"))
        found: Schema = {"content": {JSON: {"schema": schema}}}
        return {"required": True, **found} if needed or "$ref" in schema else found

    def _body_schema(self, form: Form) -> Schema:
        if form.kind is Nothing:
            return {"type": "object", "additionalProperties": False}
        if set(form.body_fields) == set(form.kind.__struct_fields__) - {"connection"}:
            return self._requests.of(form.kind)
        return self._requests.fields(form.kind, form.body_fields)

    def _commands(self) -> Schema:
        """Every operation that crosses a wire, by the word of its `type`."""
        several = []
        for operation in OPERATIONS.values():
            if operation.is_local:
                continue
            own = self._requests.fields(operation.request)
            own["properties"] = {"type": {"const": operation.name}, **own["properties"]}
            own["required"] = ["type", *own.get("required", ())]
            several.append({"title": operation.name, **own})
        items = {"type": "array", "maxItems": 1000, "items": {"anyOf": several}}
        return {
            "type": "object",
            "properties": {"items": items},
            "required": ["items"],
            "additionalProperties": False,
        }

    # --- answers -------------------------------------------------------------------------------

    def _responses_of(self, route: Route, form: Form) -> dict[str, Any]:
        found: dict[int, dict[str, Any]] = {}
        for status, schemas in self._replies(route).items():
            found[status] = self._answer(route, status, schemas)
        if route.is_whole or route.has_etag:
            found[304] = {"description": "The client has this very answer already."}
        for kind in errors_of(route, form):
            self._codes.setdefault(kind.status, set()).add(kind.code)
            found.setdefault(kind.status, {"$ref": f"{_RESPONSES}{_PROBLEM_OF}{kind.status}"})
        return {str(status): about for status, about in sorted(found.items())}

    def _problems(self) -> dict[str, Any]:
        """The answer of each status of errors; `x-errors` of a path lists its codes."""
        return {
            f"{_PROBLEM_OF}{status}": {
                "description": ", ".join(sorted(codes)),
                "content": {_PROBLEM_JSON: {"schema": reference(PROBLEM)}},
            }
            for status, codes in sorted(self._codes.items())
        }

    def _replies(self, route: Route) -> dict[int, list[Schema]]:
        """What is answered, by status."""
        if route.path == _COMMANDS:
            items = {"type": "array", "items": {}}
            return {200: [_object({"items": items})]}
        reply = route.reply
        if reply is None:
            reply = route.asked().reply if route.operation else Any
        found: dict[int, list[Schema]] = {}
        for member in _members(reply):
            if member is type(None):
                if route.absent is None:
                    found.setdefault(204, [])
                continue
            schema = self._with_more(route, self._shown(member))
            for status in statuses_of(route, member):
                found.setdefault(status, []).append(schema)
        return found

    def _shown(self, member: Any) -> Schema:
        """As `shown` puts what is no object by itself."""
        schema = self._answers.of(member)
        if schema.get("type") == "array":
            return _object({"items": schema})
        if member in (str, int) or schema.get("type") in ("string", "integer"):
            return _object({"value": schema})
        return schema

    def _with_more(self, route: Route, schema: Schema) -> Schema:
        if not route.more:
            return schema
        more = {name: self._answers.of(hint) for name, hint in route.more.items()}
        return {"allOf": [schema, {"type": "object", "properties": more}]}

    def _answer(self, route: Route, status: int, schemas: Sequence[Schema]) -> dict[str, Any]:
        found: dict[str, Any] = {"description": HTTPStatus(status).phrase}
        if schemas:
            schema = schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}
            found["content"] = {route.media: {"schema": schema} if route.media == JSON else {}}
            if status == 200:
                found["content"].update({media: {} for media in route.other_media})
        if (route.revision is not None or route.has_etag) and status == 200:
            found["headers"] = {"ETag": {"schema": {"type": "string"}}}
        return found


def statuses_of(route: Route, member: Any) -> tuple[int, ...]:
    """The statuses with which a kind of reply may be answered."""
    name = getattr(member, "__name__", "")
    return (route.statuses.get(name, 200), *route.other_statuses)


def _members(reply: Any) -> tuple[Any, ...]:
    return get_args(reply) if get_origin(reply) is Union or _is_union(reply) else (reply,)


def _is_union(reply: Any) -> bool:
    return type(reply).__name__ == "UnionType"


def _object(properties: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "properties": dict(properties), "required": list(properties)}


def _headers(route: Route, form: Form) -> Iterable[Schema]:
    text: Schema = {"schema": {"type": "string"}}
    if "idempotency_key" in form.body_fields or route.takes_key:
        yield {"name": "Idempotency-Key", "in": "header", **text}
    if route.if_match is not None:
        about: Schema = {"name": "If-Match", "in": "header", **text}
        yield {**about, "required": True} if route.is_match_needed else about
    if route.is_whole or route.has_etag:
        yield {"name": "If-None-Match", "in": "header", **text}
    if route.streams:
        yield {"name": "Last-Event-ID", "in": "header", **text}


def errors_of(route: Route, form: Form | None = None) -> list[type[FlowFabricError]]:
    """Every error that a route may be answered with, by its code."""
    found = {each.code: each for each in _errors(route, form or Form(route))}
    found.pop(errors.WaitTimeout.code, None)  # a wait in vain is an answer, not an error
    return [found[code] for code in sorted(found)]


def _errors(route: Route, form: Form) -> Iterator[type[FlowFabricError]]:
    yield from _EVERYWHERE
    yield from route.errors
    named = [OPERATIONS[name] for name in (route.operation, *route.asks) if name]
    for each in named:
        yield from each.errors
    reads = form.query or form.body_fields or route.own_query or route.parameters
    waits = "wait" in route.own_query or any(each.kind is Kind.WAIT for each in named)
    for is_so, several in (
        (not (route.is_health or route.is_open), _OF_CALLERS),
        (named, COMMON_ERRORS),
        (reads, (errors.InvalidInput,)),
        ("cursor" in form.query, (errors.InvalidCursor,)),
        (route.method in _HAS_BODY, _OF_BODIES),
        (route.is_match_needed, (errors.RevisionRequired,)),
        (waits, (errors.TooManyWaits,)),
        (route.streams, (errors.TooManyStreams,)),
        (route.absent is not None, (errors.NotFound,)),
    ):
        if is_so:
            yield from several
