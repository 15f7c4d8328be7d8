"""Forms: their proof, their fields, and the line that tells what a form has done.

The seam to sessions is two functions, and only they know where a caller's proof comes from:

* `csrf_of(service, call)`: the text that every form of this caller carries. It follows from the
  session of the browser, or without one from a secret of this process.
* `login_of(call)`: where a browser is sent that has proved nothing.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, urlsplit

from flowfabric.errors import (
    CrossSiteRequest,
    FlowFabricError,
    InvalidInput,
    MalformedRequest,
    UnsupportedMediaType,
)
from flowfabric.model.record import Record, from_json, to_json
from flowfabric.server.access import sessions
from flowfabric.server.exchange import Answer, Call

if TYPE_CHECKING:
    from flowfabric.server.service import Service

BACK: Final = "back"
FLASH: Final = "ff_flash"
_FORM: Final = b"application/x-www-form-urlencoded"
_FIELDS_MAX: Final = 1_200  # a page of rows, each of them selected, and what is said of them
_FLASH_CHARS: Final = 900  # browsers keep cookies of four kilobytes
_SEEN_S: Final = 30


# --- the seam to sessions ------------------------------------------------------------------------


def csrf_of(service: Service, call: Call) -> str:
    """What a form of this caller carries, so that no other site's page can make it up."""
    return sessions.csrf_of(service.settings, call)


def login_of(call: Call) -> str:
    """Where a browser is sent that has proved nothing, and then back to what it asked for."""
    asked = call.scope.get("raw_path", b"").decode("latin-1").partition("?")[0]
    query = call.scope.get("query_string", b"").decode("latin-1")
    wanted = f"{asked}?{query}" if query else asked
    wanted = wanted if call.method in ("GET", "HEAD") else "/ui"
    return f"/ui/login?next={quote(wanted, safe='/')}"


# --- fields --------------------------------------------------------------------------------------


class Form:
    """The fields of a form, as a browser sends them."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = pairs

    def text(self, name: str, default: str = "") -> str:
        """One field, without the space around it."""
        return self.raw(name, default).strip()

    def raw(self, name: str, default: str = "") -> str:
        """One field as it was typed; browsers send each line's end as CR LF."""
        found = next((value for key, value in self._pairs if key == name), default)
        return found.replace("\r\n", "\n")

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Every field, in the order of the page."""
        return tuple(self._pairs)

    def several(self, name: str) -> tuple[str, ...]:
        """Each value of a field that is there many times."""
        return tuple(value for key, value in self._pairs if key == name)

    def flag(self, name: str) -> bool:
        """Whether a box is ticked."""
        return self.text(name) not in ("", "false", "off")

    def number(self, name: str, *, least: int, most: int) -> int | None:
        """A whole number; None where nothing was typed."""
        text = self.text(name)
        if not text:
            return None
        try:
            value = int(text) if len(text) < 20 else most + 1
        except ValueError:
            raise InvalidInput(f"{name}: expected a whole number", field=name) from None
        if not least <= value <= most:
            raise InvalidInput(f"{name}: expected {least} to {most}", field=name)
        return value


async def fields_of(service: Service, call: Call) -> Form:
    """The form that was sent, wherever it comes from."""
    media = call.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media != _FORM:
        raise UnsupportedMediaType("Content-Type: expected a form", field="Content-Type")
    body = await call.body(service.body_limit(call.row.size))
    try:
        pairs = parse_qsl(body.decode("ascii"), True, True, "utf-8", "strict", _FIELDS_MAX)
    except (ValueError, UnicodeDecodeError):
        raise MalformedRequest("body: is no form", field="body") from None
    return Form(pairs)


async def form_of(service: Service, call: Call) -> Form:
    """The form that was sent, if it comes from a page of this server."""
    form = await fields_of(service, call)
    # A browser cannot be told to send a token, so a program that shows one needs no other proof.
    if b"authorization" not in call.headers:
        expected = csrf_of(service, call).encode()
        if not hmac.compare_digest(form.text(sessions.CSRF).encode(), expected):
            raise CrossSiteRequest("this form is not from its page, or the page is too old")
    return form


# --- what became of it ---------------------------------------------------------------------------


class Done(Record, frozen=True, kw_only=True):
    """What a form has done, in a sentence. `to`: the page to show next, if not the one that the
    form was on; `undo`: the path of a form that takes it back."""

    text: str
    to: str | None = None
    undo: str | None = None


class Flash(Record, frozen=True, kw_only=True):
    """A line at the top of the next page, shown once."""

    text: str
    request_id: str
    is_refusal: bool = False
    undo: str | None = None


def is_local(path: str) -> bool:
    """Whether an address leads to a page of this dashboard and nowhere else."""
    if not path.startswith("/ui") or path[3:4] not in ("", "/", "?"):
        return False
    return "\\" not in path and "//" not in path.partition("?")[0] and path.isprintable()


def prefix_of(service: Service) -> str:
    """What a proxy puts before the paths of this server, without a slash at its end."""
    url = service.settings.public_url
    return "" if url is None else urlsplit(url).path.rstrip("/")


def redirect(service: Service, to: str, *headers: tuple[bytes, bytes]) -> Answer:
    """Another page instead of this one."""
    place = quote(prefix_of(service) + to, safe="/?&=%:;,+~.-_#@!$'()*")
    told = ((b"location", place.encode()), (b"cache-control", b"no-store"), *headers)
    return Answer(status=303, media=b"text/plain", headers=told)


def after(service: Service, call: Call, form: Form, done: Done) -> Answer:
    """The page to show next, with a line that says what has happened."""
    flash = Flash(text=done.text, request_id=call.request_id, undo=done.undo)
    return redirect(service, done.to or _back(form), _flash(service, call, flash))


def refused_form(service: Service, call: Call, form: Form, error: Exception) -> Answer:
    """The page that the form was on, with the text of the refusal. What the caller may not do at
    all, and what is no refusal, is answered as on every page."""
    if not isinstance(error, FlowFabricError) or error.status in (401, 403):
        raise error
    if (error.status >= 500 and not error.retryable) or not is_local(form.text(BACK)):
        raise error
    text = f"{error.detail or error.code}. {error.advice}"
    flash = Flash(text=text, request_id=call.request_id, is_refusal=True)
    return redirect(service, _back(form), _flash(service, call, flash))


def _back(form: Form) -> str:
    back = form.text(BACK)
    return back if is_local(back) else "/ui"


def _flash(service: Service, call: Call, flash: Flash) -> tuple[bytes, bytes]:
    """In a cookie, with a proof that it is ours: it may offer a form, and programs on other ports
    and hosts beside this one can set cookies, too."""
    short = Flash(
        text=flash.text[:_FLASH_CHARS],
        request_id=flash.request_id,
        is_refusal=flash.is_refusal,
        undo=flash.undo,
    )
    text = base64.urlsafe_b64encode(to_json(short)).decode("ascii")
    return cookie(FLASH, f"{_proof(service, call, text)}.{text}", max_age_s=_SEEN_S)


def _proof(service: Service, call: Call, text: str) -> str:
    key = csrf_of(service, call).encode()
    return hmac.digest(key, f"flash {text}".encode("utf-8", "replace"), "sha256").hex()


def flash_of(service: Service, call: Call) -> Flash | None:
    """The line that the last form of this caller has left, if any."""
    proof, _, text = cookies_of(call).get(FLASH, "").partition(".")
    if not text or not hmac.compare_digest(proof.encode(), _proof(service, call, text).encode()):
        return None
    try:
        found = from_json(base64.urlsafe_b64decode(text), Flash, field="flash")
    except (FlowFabricError, ValueError):
        return None
    # Another site of this domain may set a cookie, too: it must not name what a button does.
    return found if found.undo is None or is_local(found.undo) else None


def cookies_of(call: Call) -> Mapping[str, str]:
    """The cookies of a request; none where they cannot be read."""
    try:
        found: SimpleCookie = SimpleCookie(call.header(b"cookie") or "")
    except CookieError:
        return {}
    return {name: morsel.value for name, morsel in found.items()}


def cookie(name: str, value: str, *, max_age_s: int, is_hidden: bool = True) -> tuple[bytes, bytes]:
    """A header that sets a cookie for the dashboard alone. It is no credential."""
    hidden = "; HttpOnly" if is_hidden else ""
    text = f"{name}={value}; Path=/; Max-Age={max_age_s}; SameSite=Lax{hidden}"
    return (b"set-cookie", text.encode("ascii"))
