"""Rows of the table for operations: what follows from the register is not said again."""

from __future__ import annotations

from typing import Any

from flowfabric.api.operation import OPERATIONS
from flowfabric.server.routes.asking import asked
from flowfabric.server.routes.route import Reach, Repeat, Route, Size


def row(method: str, path: str, operation: str, **more: Any) -> Route:
    """A route for an operation; its title is the first sentence of the request's docstring."""
    found = OPERATIONS[operation]
    values: dict[str, Any] = {
        "method": method,
        "path": path,
        "operation": operation,
        "handler": asked,
        "scope": found.scope,
        "also": () if "scope" in more else found.also,
        "title": (found.request.__doc__ or "").strip().splitlines()[0],
        "errors": found.errors,
        "repeat": Repeat.STATE if method in ("POST", "PATCH", "DELETE") else Repeat.READ,
        "size": Size.SMALL if method in ("POST", "PATCH") else Size.NONE,
        "reach": Reach.OBJECT if "{" in path else Reach.NAMED,
        **more,
    }
    return Route(**values)


def get(path: str, operation: str, **more: Any) -> Route:
    """A read."""
    return row("GET", path, operation, **more)


def post(path: str, operation: str, **more: Any) -> Route:
    """A change."""
    return row("POST", path, operation, **more)
