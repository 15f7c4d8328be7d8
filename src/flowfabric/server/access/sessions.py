"""Sessions of browsers: their cookie, and the proof that a change comes from a page of ours.

* `text_of(settings, call)`: the text in the cookie of a request. A request that shows a token has
  none: its cookies are not looked at.
* `call.caller.session`: the session that it opened, if any (`guard.TokenGuard` reads it).
* `csrf_of(settings, call)`: what every form of this caller carries as its field `csrf`.
* `require_own_page(settings, call, most)`: refuses a change by cookie without that proof.
  `Service.admit` asks for it before any handler is called, so no route can forget to.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

from flowfabric.errors import CrossSiteRequest
from flowfabric.ids import new_secret_bytes
from flowfabric.server.access.caller import Caller
from flowfabric.server.access.origin import comes_from_own_page
from flowfabric.server.settings import ServerSettings

CSRF: Final = "csrf"
CSRF_HEADER: Final = b"x-csrf-token"
COOKIE: Final = "__Host-ff"
PLAIN_COOKIE: Final = "ff"  # without TLS, which only programs of this machine reach
FORM: Final = b"application/x-www-form-urlencoded"
_COOKIE_BYTES: Final = 16_384
_PURPOSE: Final = b"flowfabric form"
# Of forms without a session, while everything is open to this machine.
_secret = [new_secret_bytes(32)]


class Asked(Protocol):
    """The parts of a request that tell of its session: an `exchange.Call` has them."""

    scope: MutableMapping[str, Any]
    caller: Caller

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """The last value of each header."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether it comes from a program of this machine, and not through a proxy."""
        ...

    def header(self, name: bytes) -> str | None:
        """One header as text."""
        ...

    def all_headers(self, name: bytes) -> list[bytes]:
        """Every value of a header."""
        ...

    async def kept_body(self, most: int) -> bytes:
        """The body, which can be read again."""
        ...


def is_secure(settings: ServerSettings, call: Asked) -> bool:
    """Whether browsers reach this server by TLS, or from elsewhere, as far as it can tell."""
    has_proxy = settings.behind_proxy or (settings.public_url or "").startswith("https:")
    return has_proxy or call.scope.get("scheme") == "https" or not call.is_local


def cookie_name(settings: ServerSettings, call: Asked) -> str:
    """The only name that is looked at: by its prefix no other host can have set it."""
    return COOKIE if is_secure(settings, call) else PLAIN_COOKIE


def text_of(settings: ServerSettings, call: Asked) -> str | None:
    """The text of the session in the cookies of a request; None where there is none, or several."""
    if b"authorization" in call.headers:
        return None
    return cookie_of(call, cookie_name(settings, call))


def cookie_of(call: Asked, name: str) -> str | None:
    """The value of a cookie; None where there is none, or several."""
    given = b";".join(call.all_headers(b"cookie"))
    if not given or len(given) > _COOKIE_BYTES:
        return None
    pairs = (each.strip().partition("=") for each in given.decode("latin-1").split(";"))
    found = [value for key, _, value in pairs if key == name]
    return found[0] if len(found) == 1 and found[0] else None


def set_cookie(
    settings: ServerSettings, call: Asked, text: str, life_ms: int
) -> tuple[bytes, bytes]:
    """The header that gives a browser its session; an empty text takes it away."""
    return cookie_header(
        cookie_name(settings, call), text, life_ms // 1_000, is_secure=is_secure(settings, call)
    )


def cookie_header(name: str, text: str, life_s: int, *, is_secure: bool) -> tuple[bytes, bytes]:
    """The header that sets a cookie which only this server is shown, and no script."""
    secure = "; Secure" if is_secure else ""
    value = f"{name}={text}; Path=/; Max-Age={life_s}; HttpOnly; SameSite=Lax{secure}"
    return (b"set-cookie", value.encode("ascii"))


# --- forms ---------------------------------------------------------------------------------------


def csrf_of(settings: ServerSettings, call: Asked) -> str:
    """What each form of this caller carries: it follows from the text of the session, which no page
    of another site knows. It ends with the session."""
    text = text_of(settings, call)
    key = _secret[0] if text is None else text.encode("latin-1")
    return hmac.digest(key, _PURPOSE, "sha256").hex()


def share_secret(secret: bytes) -> None:
    """Take the secret of forms that several processes of one server have together: what one of
    them has shown is sent to another."""
    _secret[0] = secret


def is_csrf(settings: ServerSettings, call: Asked, given: str) -> bool:
    """Whether a form carries what it must."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), csrf_of(settings, call).encode())


async def require_own_page(settings: ServerSettings, call: Asked, most: int) -> None:
    """Refuse a change that a browser's cookie would allow, unless a page of ours asks for it: it
    says so, and it has what only such a page has, in a header or a field of its form.

    `most`: how many bytes the form may have.
    """
    if not comes_from_own_page(call.headers):
        raise CrossSiteRequest("a change by cookie must come from a page of this server")
    given = call.header(CSRF_HEADER)
    if given is None and call.headers.get(b"content-type", b"").partition(b";")[0] == FORM:
        given = await _field(call, most)
    if given is None or not is_csrf(settings, call, given):
        raise CrossSiteRequest("this form is not from its page, or the page is too old: reload it")


async def _field(call: Asked, most: int) -> str | None:
    body = await call.kept_body(most)
    try:
        return dict(parse_qsl(body.decode("ascii"), True, errors="strict")).get(CSRF)
    except (ValueError, UnicodeDecodeError):
        return None
