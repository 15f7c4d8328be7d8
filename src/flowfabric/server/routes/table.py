"""Which route a path means: a tree of its segments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import unquote_to_bytes

from flowfabric.errors import MalformedRequest, MethodNotAllowed, NotFound
from flowfabric.server.routes.route import Route

_NOWHERE: Final = frozenset(("", ".", ".."))  # a path is never resolved against another


class _Node:
    """What follows a beginning of paths."""

    __slots__ = ("below", "parameter", "routes")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.routes: dict[str, Route] = {}


class RouteTable:
    """All routes of a server.

    A named segment comes before a parameter, so `/executions/batch` is never an id.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._root = _Node()
        for route in self.routes:
            node = self._root
            for segment in route.path.split("/")[1:]:
                if segment.startswith("{"):
                    node.parameter = node.parameter or _Node()
                    node = node.parameter
                else:
                    node = node.below.setdefault(segment, _Node())
            if route.method in node.routes:
                raise ValueError(f"{route.method} {route.path} is entered twice")
            node.routes[route.method] = route

    def find(self, method: str, raw_path: bytes) -> tuple[Route, dict[str, str]]:
        """The route, and the values of the parameters of its path."""
        segments = raw_path.decode("ascii", "replace").split("/")[1:]
        allowed: set[str] = set()
        for routes, values in _matches(self._root, segments, 0, ()):
            route = routes.get(method) or (routes.get("GET") if method == "HEAD" else None)
            if route is not None:
                return route, dict(zip(route.parameters, values, strict=True))
            allowed.update(routes)
        if not allowed:
            raise NotFound("there is nothing at this path; GET /openapi.json lists all")
        listed = sorted(allowed | ({"HEAD"} if "GET" in allowed else set()))
        raise MethodNotAllowed(f"{method}: expected {', '.join(listed)}", allow=listed)


def _matches(
    node: _Node, segments: Sequence[str], at: int, values: tuple[str, ...]
) -> Iterator[tuple[dict[str, Route], tuple[str, ...]]]:
    """What a path may mean: a named segment comes first, so that a method it does not take may
    still be one of the thing that bears this name."""
    if at == len(segments):
        if node.routes:
            yield node.routes, values
        return
    segment = segments[at]
    if (below := node.below.get(segment)) is not None:
        yield from _matches(below, segments, at + 1, values)
    if node.parameter is not None and (value := _unquoted(segment)) not in _NOWHERE:
        yield from _matches(node.parameter, segments, at + 1, (*values, value))


def _unquoted(segment: str) -> str:
    if "%" not in segment:
        return segment
    try:
        text = unquote_to_bytes(segment).decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise MalformedRequest("path: is not valid text", field="path")
    return text
