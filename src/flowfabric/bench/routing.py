"""What the table of routes costs: a submit through it beside the same one in a bare application."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from statistics import median
from typing import Any

from flowfabric.api.executions import NewExecution
from flowfabric.assemble import open_engine
from flowfabric.bench.measurement import check_count
from flowfabric.model.record import from_json, to_json
from flowfabric.server.app import Application
from flowfabric.server.routes.all import ROUTES
from flowfabric.server.service import Service
from flowfabric.server.settings import ServerSettings

N = 2_000
ROUNDS = 5
_BODY = b'{"execution_kind": "bench", "input": {"bench": "' + b"x" * 88 + b'"}}'
_HEADERS = [
    (b"host", b"localhost"),
    (b"content-type", b"application/json"),
    (b"content-length", str(len(_BODY)).encode()),
]
App = Callable[[Any, Any, Any], Awaitable[None]]


def ratio_to_bare(n: int = N, rounds: int = ROUNDS) -> float:
    """Processor time of a submit in this process, without sockets, relative to a bare application
    that decodes, asks the engine in memory and encodes."""
    return asyncio.run(_ratio(n, rounds))


async def _ratio(n: int, rounds: int) -> float:
    ratios = []
    for _ in range(rounds):
        seconds = []
        for make in (_bare, _routed):
            async with open_engine("memory://") as engine:
                app = make(engine)
                before = time.process_time()
                for _ in range(n):
                    await _submitted(app)
                seconds.append(time.process_time() - before)
        ratios.append(seconds[1] / seconds[0])
    return median(ratios)


def _routed(engine: Any) -> App:
    service = Service(engine, ServerSettings(metrics=False))
    return Application(service, ROUTES)


def _bare(engine: Any) -> App:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        given = from_json((await receive())["body"], dict[str, Any], field="body")
        made = await engine.call(
            NewExecution(
                execution_kind=given["execution_kind"], input_payload=to_json(given["input"])
            )
        )
        body = to_json({"execution_id": made.execution_id})
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


async def _submitted(app: App) -> None:
    told: list[MutableMapping[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": _BODY, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        told.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/executions",
        "raw_path": b"/v1/executions",
        "query_string": b"",
        "headers": _HEADERS,
        "client": ("127.0.0.1", 1),
    }
    await app(scope, receive, send)
    check_count("status", told[0]["status"], 201)
