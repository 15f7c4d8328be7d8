"""Which route a path means: a tree of its segments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
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
        values: list[str] = []
        node: _Node | None = self._root
        for segment in raw_path.decode("ascii", "replace").split("/")[1:]:
            if node is None:
                break
            following = node.below.get(segment)
            if following is None:
                following = node.parameter
                values.append(_unquoted(segment))
            node = following
        if node is None or not node.routes or not _NOWHERE.isdisjoint(values):
            raise NotFound("there is nothing at this path; GET /openapi.json lists all")
        route = node.routes.get(method)
        if route is None and method == "HEAD":
            route = node.routes.get("GET")
        if route is None:
            allowed = sorted(node.routes)
            raise MethodNotAllowed(f"{method}: expected {', '.join(allowed)}", allow=allowed)
        return route, dict(zip(route.parameters, values, strict=True))


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


def found_by(routes: Iterable[Route]) -> dict[str, list[Route]]:
    """The routes by their tag, as a reference lists them."""
    grouped: dict[str, list[Any]] = {}
    for route in routes:
        grouped.setdefault(route.tag, []).append(route)
    return grouped
