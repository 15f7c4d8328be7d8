"""What a server needs before it may listen: a name for it, a certificate, a token."""

from __future__ import annotations

import socket
import ssl
from ipaddress import ip_address
from typing import Any

from flowfabric.errors import InvalidInput
from flowfabric.server.settings import ServerSettings


def is_of_this_machine(listener: socket.socket) -> bool:
    """Whether only programs of this machine can reach it."""
    name: Any = listener.getsockname()
    if isinstance(name, str | bytes):
        return True
    return ip_address(name[0]).is_loopback


def check_exposed(listener: socket.socket, settings: ServerSettings) -> None:
    """Refuse to speak without TLS beyond this machine, unless a proxy does it."""
    if is_of_this_machine(listener) or settings.tls_cert is not None or settings.behind_proxy:
        return
    raise InvalidInput(
        f"bind: {settings.bind} is reached from other machines, and tokens would travel in clear "
        "text: give tls_cert and tls_key, or behind_proxy where a proxy speaks TLS for it",
        field="bind",
    )


def check_guarded(listener: socket.socket, settings: ServerSettings, *, has_tokens: bool) -> None:
    """Refuse to be reached from other machines, by a proxy too, while no token exists."""
    has_proxy = settings.behind_proxy or bool(settings.trusted_proxies)
    if has_tokens or (is_of_this_machine(listener) and not has_proxy):
        return
    if is_of_this_machine(listener):
        field = "behind_proxy" if settings.behind_proxy else "trusted_proxies"
        raise InvalidInput(
            f"{field}: a proxy brings callers of other machines, and no token exists: make one "
            "with `ff token new NAME`, or leave it out",
            field=field,
        )
    raise InvalidInput(
        f"bind: {settings.bind} is reached from other machines, and no token exists: make one with "
        "`ff token new NAME`, or bind to 127.0.0.1",
        field="bind",
    )


def check_certificate(settings: ServerSettings) -> None:
    """Refuse files that cannot be used."""
    if settings.tls_cert is None:
        return
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        detail = f"tls_cert: {settings.tls_cert} with {settings.tls_key} cannot be used ({error})"
        raise InvalidInput(detail, field="tls_cert") from None
