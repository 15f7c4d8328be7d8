"""What a person has chosen about how pages look, kept in a cookie so that the first paint is
right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode

from flowfabric.model.record import Record
from flowfabric.server.access.origin import refuse_other_sites
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.ui.forms import (
    BACK,
    Form,
    cookie,
    cookies_of,
    fields_of,
    is_local,
    redirect,
)
from flowfabric.server.ui.views.runs import COLUMNS

if TYPE_CHECKING:
    from flowfabric.server.service import Service

COOKIE: Final = "ff_look"
_YEAR_S: Final = 365 * 24 * 3_600
_WORDS: Final = {
    "theme": ("auto", "light", "dark"),
    "zone": ("local", "utc"),
    "keys": ("on", "off"),
}
_COLUMNS_SHOWN: Final = ("id", "lane", "attempts", "age", "took", "note", "tags")


class Look(Record, frozen=True, kw_only=True):
    """How pages look for one person. `columns`: those of the list of runs."""

    theme: str = "auto"
    zone: str = "local"
    keys: str = "on"
    columns: tuple[str, ...] = _COLUMNS_SHOWN


def look_of(call: Call) -> Look:
    """What the cookie says, as far as it makes sense."""
    given = dict(parse_qsl(cookies_of(call).get(COOKIE, "").replace(".", "&")))
    chosen: dict[str, Any] = {
        name: given[name] for name, words in _WORDS.items() if given.get(name) in words
    }
    if "columns" in given:
        named = tuple(each for each in COLUMNS if each in given["columns"].split("-"))
        return Look(columns=named, **chosen)
    return Look(**chosen)


def changed(look: Look, form: Form) -> Look:
    """With what a form has chosen."""
    chosen: dict[str, Any] = {name: getattr(look, name) for name in _WORDS}
    for name, words in _WORDS.items():
        if form.text(name) in words:
            chosen[name] = form.text(name)
    columns = look.columns
    if form.flag("has_columns"):
        columns = tuple(each for each in COLUMNS if each in form.several("column"))
    return Look(columns=columns, **chosen)


async def look_chosen(service: Service, call: Call) -> Answer:
    """Keep what was chosen, and show the page again. It is for everybody, so it changes nothing but
    a cookie."""
    refuse_other_sites(call.method, call.headers)
    form = await fields_of(service, call)
    look = changed(look_of(call), form)
    told = {"theme": look.theme, "zone": look.zone, "keys": look.keys}
    text = urlencode({**told, "columns": "-".join(look.columns)}).replace("&", ".")
    back = form.text(BACK)
    kept = cookie(COOKIE, text, max_age_s=_YEAR_S, is_hidden=False)
    return redirect(service, back if is_local(back) else "/ui", kept)
