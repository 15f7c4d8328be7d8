"""The places that the navigation of the dashboard leads to."""

from __future__ import annotations

from flowfabric.api.operation import Scope
from flowfabric.model.record import Record


class Nav(Record, frozen=True, kw_only=True):
    """An entry of the navigation. `key`: after `g` it leads there. `group`: they are set apart."""

    label: str
    icon: str
    key: str = ""
    group: int = 0
    order: int = 0


class Place(Record, frozen=True, kw_only=True):
    """A page with its entry, for callers that have one of the scopes; without any, for all.
    `is_shared`: it is for callers of all namespaces alone."""

    path: str
    nav: Nav
    scopes: frozenset[Scope]
    is_shared: bool = False
