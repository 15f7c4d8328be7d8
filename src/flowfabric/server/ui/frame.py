"""What is around every page: the navigation, the caller, the line of the last form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode

from flowfabric.model.record import Record
from flowfabric.server.exchange import Call
from flowfabric.server.places import Place
from flowfabric.server.ui.forms import Flash, flash_of, prefix_of
from flowfabric.server.ui.preferences import Look, look_of

if TYPE_CHECKING:
    from flowfabric.server.service import Service

NO_COUNTS: Final[Mapping[str, str]] = {}
_NEXT_THEME: Final = {"auto": "dark", "dark": "light", "light": "auto"}


class NavEntry(Record, frozen=True, kw_only=True):
    """A place in the navigation, as this caller sees it."""

    label: str
    path: str
    icon: str
    key: str
    group: int
    is_here: bool
    count: str = ""  # how many things wait there


class Frame(Record, frozen=True, kw_only=True):
    """All that a page is given beside its own view.

    `address`: of the page, with what is after its question mark; `of`: the same as the live stream
    is asked for it; `may`: the words of the caller's scopes.
    """

    title: str
    nav: tuple[NavEntry, ...]
    address: str
    of: str
    is_live: bool
    caller: str
    has_session: bool
    is_unguarded: bool
    may: frozenset[str]
    namespaces: tuple[str, ...] | None
    now: int
    prefix: str
    look: Look
    next_theme: str
    flash: Flash | None
    request_id: str
    version: str

    @property
    def waiting(self) -> str:
        """How many things wait for people, for the title of the browser's tab."""
        return next((each.count for each in self.nav if each.count), "")


def nav_of(places: Iterable[Place], call: Call, counts: Mapping[str, str]) -> tuple[NavEntry, ...]:
    """The places that the caller may go to."""
    here = "" if call.route is None else call.route.path
    return tuple(
        NavEntry(
            label=place.nav.label,
            path=place.path,
            icon=place.nav.icon,
            key=place.nav.key,
            group=place.nav.group,
            is_here=here == place.path
            or (place.path != "/ui" and here.startswith(f"{place.path}/")),
            count=counts.get(place.path, ""),
        )
        for place in places
        if (not place.scopes or not call.caller.scopes.isdisjoint(place.scopes))
        and not (place.is_shared and call.caller.namespaces is not None)
    )


def address_of(call: Call, **changes: Any) -> str:
    """The path and the query of a request; `changes`: values to set, None to leave one out."""
    path = (call.scope.get("raw_path") or b"").decode("latin-1").partition("?")[0]
    text = call.scope.get("query_string", b"").decode("latin-1")
    if changes:
        pairs = [each for each in parse_qsl(text, True) if each[0] not in changes]
        pairs += [(name, str(value)) for name, value in changes.items() if value is not None]
        text = urlencode(pairs)
    return f"{path}?{text}" if text else path


def frame_of(
    service: Service,
    call: Call,
    *,
    title: str,
    now: int,
    of: str | None,
    counts: Mapping[str, str] = NO_COUNTS,
) -> Frame:
    """The frame of one page; `of` is None where nothing on it is live."""
    caller, look = call.caller, look_of(call)
    is_unguarded = caller.actor is None and caller.is_known
    return Frame(
        title=title,
        nav=nav_of(service.places, call, counts),
        address=address_of(call, as_of=None),
        of=of or "",
        is_live=of is not None,
        caller=caller.actor or ("this machine" if is_unguarded else ""),
        has_session=caller.session is not None,
        is_unguarded=is_unguarded,
        may=frozenset(scope.value for scope in caller.scopes),
        namespaces=None if caller.namespaces is None else tuple(sorted(caller.namespaces)),
        now=now,
        prefix=prefix_of(service),
        look=look,
        next_theme=_NEXT_THEME[look.theme],
        flash=flash_of(service, call),
        request_id=call.request_id,
        version=service.engine.capabilities().version,
    )
