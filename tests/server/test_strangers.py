"""Whatever is sent, the answer is one of the document and never a fault of the server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from random import Random
from typing import Final

import pytest

from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.model.stream import NewFrame
from flowfabric.model.words import StreamMode
from flowfabric.server.plain import handle_text
from flowfabric.server.serve import Server
from flowfabric.server.settings import ServerSettings
from tests.support.http import NOTHING, Desk
from tests.support.lab import Lab, scenario
from tests.support.strangers import Stranger
from tests.support.waits import suspended

CASES: Final = int(os.environ.get("FF_HTTP_CASES", "1000"))
RAW: Final = int(os.environ.get("FF_HTTP_RAW", "500"))
SEED: Final = int(os.environ.get("FF_HTTP_SEED", "1"))
_PATIENCE_S: Final = 20.0


async def known(lab: Lab, desk: Desk) -> list[str]:
    """A little of everything, so that requests meet something."""
    ended, wait, running = await lab.completed(), await suspended(lab), await lab.started()
    await lab.engine.append_frame(
        running.handle, frame=NewFrame(payload=b"{}", mode=StreamMode.SUMMARY)
    )
    made = await desk.created(tags={"team.name": "a"}, input={"a": 1}, mailboxes={"inbox": None})
    full = (await desk.get(f"/v1/executions/{made}")).json["execution_id"]
    work = {"execution_kind": "work"}
    flow = {
        "nodes": [{"name": name, "execution": work} for name in "ab"],
        "edges": [{"upstream": "a", "downstream": "b"}],
    }
    members = (await desk.post("/v1/flows", flow)).json
    await desk.post("/v1/budgets", {"budget_id": "b1", "dimensions": {"usd": {"hard": 5}}})
    nightly = {
        "schedule_id": "nightly",
        "timing": {"every_ms": 60_000},
        "start": {"execution": work},
    }
    await desk.post("/v1/schedules", nightly)
    bulk = {"action": "hold", "dry_run": False}
    operation = (await desk.post("/v1/executions/bulk", bulk)).json
    ids = [made, full, ended, wait.claimed.execution_id, running.execution_id]
    names = ["b1", "w1", "inbox", "nightly", "a", str(operation["operation_id"])]
    names += [handle_text(running.handle), members["flow_id"]]
    return [*ids, *names, *members["execution_ids"].values()]


@scenario
async def test_no_request_made_from_the_document_ends_in_a_fault_or_an_unknown_answer(
    quick: Lab,
) -> None:
    desk = Desk(quick.engine, wait_max_ms=5)
    random = Random(SEED)
    stranger = Stranger(random, await known(quick, desk))
    statuses: dict[int, int] = {}
    for number in range(CASES):
        method, target, headers, body = stranger.request()
        said = (number, method, target, headers, body)
        given = NOTHING if body is None else body
        async with asyncio.timeout(_PATIENCE_S):
            reply = await desk.ask(method, target, given, headers=headers)
        assert reply.status < 500, (said, reply)
        statuses[reply.status] = statuses.get(reply.status, 0) + 1
    # A generator that is refused at the door each time would show nothing.
    assert statuses[200] > CASES / 20, statuses
    assert statuses[422] > CASES / 20, statuses


# --- bytes that are no requests -------------------------------------------------------------------

_REQUESTS: Final = (
    b"GET /v1/executions?limit=1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /v1/executions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b'Content-Length: 25\r\n\r\n{"execution_kind": "work"}',
    b"POST /v1/executions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    b'Content-Type: application/json\r\n\r\n19\r\n{"execution_kind":"work"}\r\n0\r\n\r\n',
    b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: a\r\nAuthorization: Bearer x\r\n\r\n",
    b"PATCH /v1/executions/17.0193a1f0-0000-7000-8000-000000000000 HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Length: 2\r\n\r\n{}",
)
_PIECES: Final = (
    b"\r\n",
    b"\n",
    b"\x00",
    b"Content-Length: 3\r\n",
    b"Content-Length: -1\r\n",
    b"Content-Length: 99999999999999999999\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip\r\n",
    b"Content-Encoding: gzip\r\n",
    b"Host: elsewhere\r\n",
    b"Expect: 100-continue\r\n",
    b"Connection: close\r\n",
    b"Upgrade: websocket\r\nConnection: Upgrade\r\n",
    b"HTTP/9.9",
    b"%00",
    b"%2e%2e/",
    b"\xff\xfe",
    b"X" * 5_000,
)


def mangled(random: Random) -> bytes:
    """A request with some of its bytes changed, left out, doubled or put in."""
    data = bytearray(random.choice(_REQUESTS))
    for _ in range(random.choice((1, 1, 2, 3))):
        at = random.randrange(len(data) + 1)
        match random.randrange(5):
            case 0:
                data[at:at] = random.choice(_PIECES)
            case 1:
                del data[at : at + random.choice((1, 2, 10, 50))]
            case 2:
                data[at : at + 1] = bytes([random.randrange(256)])
            case 3:
                data += bytes(data)
            case _:
                line = data.find(b"\r\n", at)
                data[line + 2 : line + 2] = random.choice(_PIECES)
        data = data or bytearray(b"?")
    return bytes(data)


async def answered(port: int, sent: bytes) -> bytes:
    """All that comes back until the server closes; this side says that it sends no more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(sent)
            await writer.drain()
            writer.write_eof()
            return await reader.read()
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_no_bytes_hang_or_break_a_server() -> None:
    async def story() -> None:
        random = Random(SEED)
        engine = open_engine("memory://", config=EngineConfig(loops=False))
        settings = ServerSettings(bind="127.0.0.1:0", wait_max_ms=5)
        async with engine, Server(engine, settings) as server:
            port = int(server.address.rpartition(":")[2])
            for number in range(RAW):
                sent = mangled(random)
                async with asyncio.timeout(_PATIENCE_S):
                    told = await answered(port, sent)
                statuses = re.findall(rb"HTTP/1\.1 (\d+)", told)
                assert all(int(each) < 500 for each in statuses), (number, sent, told)
                if number % 100 == 99:
                    whole = await answered(port, _REQUESTS[0])
                    assert whole.startswith(b"HTTP/1.1 200"), whole

    asyncio.run(story())
