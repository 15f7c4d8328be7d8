"""Versions of code: which one an execution belongs to, and which ones have recorded something."""

from __future__ import annotations

from typing import Final

from flowfabric import limits
from flowfabric.errors import InvalidInput
from flowfabric.model.checks import check_text
from flowfabric.model.record import Record
from flowfabric.model.route import Route
from flowfabric.model.shown import shown
from flowfabric.model.state import PublicState

_PIN: Final = "task:"


class CodeUse(Record, frozen=True):
    """The code of one execution that has not ended.

    `pinned`: the version it belongs to, if to one. `version`: of the code that began its journal.
    `markers`: the changes of the code that apply to it.
    """

    execution_id: str
    execution_kind: str
    public_state: PublicState
    has_journal: bool
    pinned: str | None = None
    version: str | None = None
    markers: tuple[str, ...] = ()


class Repinned(Record, frozen=True, tag=True):
    """The execution belongs to this version now."""

    execution_id: str
    version: str


def check_version(value: object, *, field: str) -> str:
    """The version of a task: a word, since it becomes a part of a capability."""
    text = check_text(value, field=field, max_bytes=limits.VERSION_BYTES)
    if "," in text or "@" in text or any(character.isspace() for character in text):
        detail = f"{field}: {shown(text)} contains a space, a comma or @"
        raise InvalidInput(detail, field=field)
    return text


def pin_of(kind: str, version: str) -> str:
    """The capability of workers that have this version of a task.

    >>> pin_of("brief", "2")
    'task:brief@2'
    """
    return f"{_PIN}{kind}@{version}"


def versioned(capability: str) -> tuple[str, str] | None:
    """The task and the version that a capability stands for, if it does.

    >>> versioned("task:brief@2"), versioned("gpu")
    (('brief', '2'), None)
    """
    kind, _, version = capability.removeprefix(_PIN).rpartition("@")
    return (kind, version) if kind and capability == pin_of(kind, version) else None


def pinned_version(route: Route) -> str | None:
    """The version to which the executions of a route belong, if to one."""
    prefix = pin_of(route.execution_kind, "")
    found = (each for each in route.required_capabilities if each.startswith(prefix))
    return next((each.removeprefix(prefix) for each in found), None)


def repinned(route: Route, version: str) -> Route:
    """The same route for another version."""
    prefix = pin_of(route.execution_kind, "")
    others = [each for each in route.required_capabilities if not each.startswith(prefix)]
    capabilities = tuple(sorted((*others, pin_of(route.execution_kind, version))))
    return Route(route.namespace, route.lane_id, route.execution_kind, capabilities)
