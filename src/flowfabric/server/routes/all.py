"""Every route of a server."""

from __future__ import annotations

from typing import Final

from flowfabric.server.routes.describing import Description
from flowfabric.server.routes.executions import EXECUTION_ROUTES
from flowfabric.server.routes.flows import FLOW_ROUTES
from flowfabric.server.routes.happenings import HAPPENING_ROUTES
from flowfabric.server.routes.limits import LIMIT_ROUTES
from flowfabric.server.routes.links import LINK_ROUTES
from flowfabric.server.routes.operating import OPERATING_ROUTES
from flowfabric.server.routes.outcomes import OUTCOME_ROUTES
from flowfabric.server.routes.own import OWN_ROUTES
from flowfabric.server.routes.route import Route
from flowfabric.server.routes.schedules import ADMIN_ROUTES, SCHEDULE_ROUTES
from flowfabric.server.routes.tokens import TOKEN_ROUTES
from flowfabric.server.routes.waits import WAIT_ROUTES
from flowfabric.server.routes.workers import WORKER_ROUTES
from flowfabric.server.ui.all import UI_ROUTES

DESCRIPTION: Final = Description(
    (
        *EXECUTION_ROUTES,
        *OUTCOME_ROUTES,
        *OPERATING_ROUTES,
        *FLOW_ROUTES,
        *WAIT_ROUTES,
        *LINK_ROUTES,
        *HAPPENING_ROUTES,
        *LIMIT_ROUTES,
        *SCHEDULE_ROUTES,
        *ADMIN_ROUTES,
        *WORKER_ROUTES,
        *TOKEN_ROUTES,
        *OWN_ROUTES,
    )
)
# The API, and with it what is for people.
ROUTES: Final[tuple[Route, ...]] = DESCRIPTION.routes
ALL_ROUTES: Final[tuple[Route, ...]] = (*ROUTES, *UI_ROUTES)
