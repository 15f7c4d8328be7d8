"""Every route of a server."""

from __future__ import annotations

from typing import Final

from flowfabric.server.routes.own import OWN_ROUTES
from flowfabric.server.routes.route import Route

ROUTES: Final[tuple[Route, ...]] = (*OWN_ROUTES,)
