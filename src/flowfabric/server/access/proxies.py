"""People whom a proxy has signed in: it names them in a header, which counts only if the connection
comes from an address that is listed."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Any, Final, Protocol

from flowfabric.model.record import Record
from flowfabric.model.session import Way
from flowfabric.server.access.caller import Caller
from flowfabric.server.access.grants import Grant, grant_for
from flowfabric.server.settings import ServerSettings

PEER: Final = "flowfabric.peer"  # in the scope of a request: where its connection comes from
_NAME_BYTES: Final = 255
_GROUPS_MAX: Final = 1_000


class Shown(Protocol):
    """The parts of a request that tell of its proxy: an `exchange.Call` has them."""

    scope: MutableMapping[str, Any]

    def all_headers(self, name: bytes) -> list[bytes]:
        """Every value of a header."""
        ...


class Named(Record, frozen=True):
    """A person as a proxy names it."""

    name: str
    groups: tuple[str, ...]


def named_by_proxy(settings: ServerSettings, call: Shown) -> Named | None:
    """The person that a trusted proxy names; None if there is no such proxy, or no clear name."""
    header = settings.trusted_user_header
    if header is None or not is_trusted(settings, call.scope.get(PEER)):
        return None
    given = call.all_headers(header.lower().encode("latin-1"))
    name = given[0].decode("utf-8", "replace").strip() if len(given) == 1 else ""
    if not name.isprintable() or not 0 < len(name.encode()) <= _NAME_BYTES:
        return None
    groups = call.all_headers((settings.trusted_groups_header or "").lower().encode("latin-1"))
    words = b",".join(groups).decode("utf-8", "replace").split(",")[:_GROUPS_MAX]
    return Named(name, tuple(each.strip() for each in words if each.strip()))


def is_vouched_for(
    settings: ServerSettings, call: Shown, caller: Caller, grants: Sequence[Grant]
) -> bool:
    """Whether the session of a caller still holds: one that a proxy began is good only while the
    proxy names the same person, in groups that allow the same."""
    session = caller.session
    if session is None or session.way is not Way.PROXY:
        return True
    named = named_by_proxy(settings, call)
    if named is None or named.name != session.subject:
        return False
    return grant_for(named.groups, grants) == grant_for(session.roles, grants)


def is_trusted(settings: ServerSettings, peer: object) -> bool:
    """Whether a connection comes from a proxy that is listed, by its address or its network."""
    if not isinstance(peer, str):
        return False
    for each in settings.trusted_proxies:
        try:
            if ip_address(peer) in ip_network(each, strict=False):
                return True
        except ValueError:
            continue
    return False
