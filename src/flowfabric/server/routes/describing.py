"""The routes that describe all others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from flowfabric.model.record import to_json
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.openapi.document import document
from flowfabric.server.openapi.page import POLICY, page
from flowfabric.server.routes.asking import content_tag, unless_known
from flowfabric.server.routes.route import Route
from flowfabric.server.service import Service

_HTML: Final = "text/html; charset=utf-8"


class Description:
    """The document of a table of routes, made when it is first asked for."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes: tuple[Route, ...] = (
            *routes,
            Route(
                method="GET",
                path="/openapi.json",
                title="This API as OpenAPI 3.1",
                handler=self.for_programs,
                reply=dict[str, Any],
                has_etag=True,
                is_open=True,
                tag="server",
            ),
            Route(
                method="GET",
                path="/docs",
                title="This API as a page",
                handler=self.for_people,
                media=_HTML,
                has_etag=True,
                is_open=True,
                tag="server",
            ),
        )
        self._bodies: dict[str, bytes] = {}

    def document(self, version: str) -> dict[str, Any]:
        """The whole document."""
        return document(self.routes, version=version)

    async def for_programs(self, service: Service, call: Call) -> Answer:
        """As JSON."""
        body = (await self._made(service))["json"]
        return unless_known(call, Answer(body, headers=(content_tag(body),)))

    async def for_people(self, service: Service, call: Call) -> Answer:
        """As HTML."""
        body = (await self._made(service))["html"]
        headers = (
            content_tag(body),
            (b"content-security-policy", POLICY.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
        )
        return unless_known(call, Answer(body, media=_HTML.encode(), headers=headers))

    async def _made(self, service: Service) -> dict[str, bytes]:
        """In a thread: it takes a while, and a server whose loop lags refuses work."""
        if not self._bodies:
            version = service.engine.capabilities().version
            self._bodies = await asyncio.to_thread(self._written, version)
        return self._bodies

    def _written(self, version: str) -> dict[str, bytes]:
        made = self.document(version)
        return {"json": to_json(made), "html": page(made)}
