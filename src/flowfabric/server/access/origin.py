"""Where a change comes from: a page of another site must not make one by somebody's browser.

A browser that is on the same machine reaches a server on loopback, and sends what any page tells it
to. It cannot be told to send a token; so a request that shows one comes from a program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from flowfabric.errors import CrossSiteRequest

if TYPE_CHECKING:
    from flowfabric.server.exchange import Call

_SAFE: Final = ("GET", "HEAD", "OPTIONS")
_OWN: Final = ("same-origin", "none")  # a page of our own, or no page at all


def refuse_other_sites(call: Call) -> None:
    """Refuse a change that another site's page asks for."""
    if call.method in _SAFE or b"authorization" in call.headers:
        return
    site = call.header(b"sec-fetch-site")
    if site is not None and site not in _OWN:
        raise CrossSiteRequest("a page of another site may change nothing here")
    origin = call.header(b"origin")
    if origin is not None and not _is_ours(origin, call.header(b"host") or ""):
        raise CrossSiteRequest("Origin: is not this server's")


def _is_ours(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower() != ""
    except ValueError:
        return False
