"""The names a server answers to: a page of another site must not reach it by a name of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from flowfabric.errors import MisdirectedRequest
from flowfabric.server.settings import ServerSettings

if TYPE_CHECKING:
    from flowfabric.server.exchange import Call

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class Hosts:
    """The allowed values of `Host`."""

    def __init__(self, settings: ServerSettings) -> None:
        named = set(settings.allowed_hosts)
        if settings.public_url is not None:
            named.add(urlsplit(settings.public_url).hostname or "")
        bound = host_of(settings.bind)
        self._allowed = {name.lower() for name in LOOPBACK | named | {bound}}
        self._is_any = "*" in named
        self._seen: set[bytes] = set()

    def check(self, call: Call) -> None:
        """Refuse a request for another host, and one that names none or several."""
        if self._is_any:
            return
        value = call.headers.get(b"host", b"")
        if value in self._seen and len(call.all_headers(b"host")) == 1:
            return
        name = host_of(value.decode("latin-1")).lower()
        if name not in self._allowed or len(call.all_headers(b"host")) != 1:
            raise MisdirectedRequest(f"Host: {name!s:.100} is none of this server's names")
        if len(self._seen) < 100:
            self._seen.add(value)


def host_of(address: str) -> str:
    """The name in host:port, [address]:port or a path of a socket."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    if address.startswith(("unix:", "fd:")):
        return "localhost"
    return address.rpartition(":")[0] if address.count(":") == 1 else address
