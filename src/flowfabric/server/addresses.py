"""Addresses that this server asks by itself."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


def is_safe(url: str) -> bool:
    """Whether nobody on the way can read or change what travels there."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    if parts.username is not None or not host or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)
