"""Ways in: the root, the first page, and the search box of every page."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from flowfabric.server.exchange import Answer, Call
from flowfabric.server.routes.route import Reach
from flowfabric.server.routes.values import is_id, path_id
from flowfabric.server.service import Service
from flowfabric.server.ui.forms import redirect
from flowfabric.server.ui.pages import Action, Page, View


async def root(service: Service, call: Call) -> Answer:
    """A browser that was given the address alone."""
    return redirect(service, "/ui")


async def search(service: Service, call: Call) -> Answer:
    """An id leads to its execution; anything else is looked for among the runs."""
    text = dict(call.query).get("q", "").strip()
    if (wanted := id_in(text)) is not None:
        return redirect(service, f"/ui/runs/{wanted}")
    return redirect(service, f"/ui/runs?{urlencode({'q': text})}" if text else "/ui/runs")


def id_in(text: str) -> str | None:
    """The id of an execution, as a path has it, if that is what was typed."""
    if text.startswith("{fp:"):
        return path_id(text)
    return text if is_id(text) else None


def _way(path: str, title: str, view: View) -> Page:
    return Page(path=path, title=title, view=view, template="", scope=None, reach=Reach.NOTHING)


PAGES: Final = (
    _way("/", "The dashboard", root),
    _way("/ui/", "The dashboard, by an address that was typed", root),
    _way("/ui/search", "Find an execution by its id, or runs by words", search),
)
ACTIONS: Final[tuple[Action, ...]] = ()
