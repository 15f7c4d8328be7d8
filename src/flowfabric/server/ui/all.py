"""Every page and every form of the dashboard, and the rows they are in the table of routes.

A new page has a line here, in `_MODULES`.
"""

from __future__ import annotations

from typing import Final

from flowfabric.server.routes.route import Repeat, Route, Size
from flowfabric.server.ui.assets import static
from flowfabric.server.ui.doing import approvals as doing_approvals
from flowfabric.server.ui.doing import bulk as doing_bulk
from flowfabric.server.ui.doing import execution as doing_execution
from flowfabric.server.ui.live import LiveRoutes
from flowfabric.server.ui.login import LOGIN_ROUTES
from flowfabric.server.ui.login_oidc import OIDC_ROUTES
from flowfabric.server.ui.pages import HTML, Action, Page
from flowfabric.server.ui.preferences import look_chosen
from flowfabric.server.ui.reading import (
    approvals,
    audit,
    budgets,
    bulk,
    execution,
    failures,
    finding,
    flows,
    lanes,
    overview,
    runs,
    schedules,
    system,
    workers,
)

# Each has `PAGES` and `ACTIONS`.
_MODULES: Final = (
    finding,
    overview,
    runs,
    execution,
    doing_execution,
    bulk,
    doing_bulk,
    flows,
    approvals,
    doing_approvals,
    budgets,
    lanes,
    workers,
    schedules,
    failures,
    audit,
    system,
)
PAGES: Final[tuple[Page, ...]] = tuple(page for module in _MODULES for page in module.PAGES)
ACTIONS: Final[tuple[Action, ...]] = tuple(act for module in _MODULES for act in module.ACTIONS)

_PAGES: Final = tuple(page.route() for page in PAGES)

UI_ROUTES: Final[tuple[Route, ...]] = (
    *_PAGES,
    *LiveRoutes(_PAGES).routes,
    *(action.route() for action in ACTIONS),
    *LOGIN_ROUTES,
    *OIDC_ROUTES,
    Route(
        method="GET",
        path="/ui/static/{name}",
        title="A file of the dashboard, kept for good under its name",
        handler=static,
        is_health=True,  # it needs no store, and no proof: it is the same for everybody
        is_page=True,
        media="*/*",
        tag="ui",
    ),
    Route(
        method="POST",
        path="/ui/look",
        title="Keep how pages look",
        handler=look_chosen,
        size=Size.SMALL,
        repeat=Repeat.STATE,
        is_open=True,
        is_page=True,
        media=HTML,
        tag="ui",
    ),
)
