"""Where a change comes from: a page of another site must not make one by somebody's browser.

A browser that is on the same machine reaches a server on loopback, and sends what any page tells it
to. It cannot be told to send a token; so a request that shows one comes from a program. Links have
a proof of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from flowfabric.errors import CrossSiteRequest

SAFE: Final = ("GET", "HEAD", "OPTIONS")
_OWN: Final = (b"same-origin", b"none")  # a page of our own, or no page at all


def refuse_other_sites(method: str, headers: Mapping[bytes, bytes]) -> None:
    """Refuse a change that another site's page asks for."""
    if method in SAFE or b"authorization" in headers:
        return
    site = headers.get(b"sec-fetch-site")
    if site is not None:  # it is the better proof: a page without a referrer has no origin either
        if site not in _OWN:
            raise CrossSiteRequest("a page of another site may change nothing here")
        return
    origin = headers.get(b"origin")
    if origin is not None and not _is_ours(origin, headers.get(b"host", b"")):
        raise CrossSiteRequest("Origin: is not this server's")


def comes_from_own_page(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request says that a page of this very server asks for it."""
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site == b"same-origin"
    return _is_ours(headers.get(b"origin", b""), headers.get(b"host", b""))


def _is_ours(origin: bytes, host: bytes) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower() != b""
    except ValueError:
        return False
