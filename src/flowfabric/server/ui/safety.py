"""The headers that keep a page of the dashboard to itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from flowfabric.server.exchange import Call
    from flowfabric.server.service import Service

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "require-trusted-types-for 'script'; trusted-types ff-fragment"
)
_FEATURES: Final = (
    *("accelerometer", "camera", "display-capture", "geolocation", "gyroscope", "microphone"),
    *("payment", "usb"),
)
_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", ", ".join(f"{each}=()" for each in _FEATURES).encode()),
)
_TLS: Final = (b"strict-transport-security", b"max-age=31536000")


def safe_headers(service: Service, call: Call) -> tuple[tuple[bytes, bytes], ...]:
    """On every page. The last one only where the browser speaks TLS, to a proxy or to us."""
    is_tls = call.scope.get("scheme") == "https" or service.settings.tls_cert is not None
    return (*_HEADERS, _TLS) if is_tls or service.settings.behind_proxy else _HEADERS
