"""Log lines belong to their requests, and nobody's secrets are in them, in answers or metrics."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from io import StringIO
from typing import Any, Final

import pytest

from flowfabric.cli.logs import JsonLines
from flowfabric.server import service
from flowfabric.server.lines import about_request
from tests.support.http import Desk
from tests.support.lab import Lab, scenario

PLANTED: Final = "planted-s3cret"


@pytest.fixture
def log() -> Iterator[StringIO]:
    """All that the process logs, as `ff serve` writes it."""
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(about_request))
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


def lines(log: StringIO, logger: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in log.getvalue().splitlines()]
    return [each for each in found if each["logger"] == logger]


def test_what_a_library_logs_while_a_request_is_answered_has_the_id_of_that_request(
    quick: Lab, log: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = quick.direct.call

    async def logged(request: Any) -> Any:
        logging.getLogger("some.library").warning("began")
        await asyncio.sleep(0)
        logging.getLogger("some.library").warning("ended")
        return await call(request)

    async def story() -> None:
        desk = Desk(quick.direct)
        monkeypatch.setattr(quick.direct, "call", logged)
        asks = [desk.get("/v1/lanes", headers={"x-request-id": f"mine-{n}"}) for n in range(3)]
        await asyncio.gather(*map(asyncio.ensure_future, asks))
        logging.getLogger("some.library").warning("of nobody")

    quick.run(story())
    found = lines(log, "some.library")
    ids = [each.get("request_id") for each in found]
    assert ids[:3] == ["mine-0", "mine-1", "mine-2"]  # they are answered at once
    assert ids[-1] is None
    assert {ids.count(f"mine-{n}") for n in range(3)} == {(len(ids) - 1) // 3}


def test_the_line_of_a_defect_has_the_id_of_its_request(
    quick: Lab, log: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        desk = Desk(quick.direct)

        async def broken(_: Any) -> Any:
            raise ZeroDivisionError

        monkeypatch.setattr(quick.direct, "call", broken)
        answer = await desk.get("/v1/lanes", headers={"x-request-id": "mine"})
        assert answer.status == 500

    quick.run(story())
    (line,) = [each for each in lines(log, "flowfabric.server") if "traceback" in each]
    assert line["request_id"] == "mine"


@scenario
async def test_planted_secrets_are_in_no_line_no_answer_and_no_metric(
    quick: Lab, log: StringIO
) -> None:
    desk = Desk(quick.direct)
    secret = {"authorization": f"Bearer {PLANTED}", "cookie": f"session={PLANTED}"}
    told = [
        await desk.get("/v1/lanes", headers=secret),
        await desk.get(f"/v1/lanes?token={PLANTED}"),
        await desk.get(f"/v1/nowhere/{PLANTED}"),
        await desk.post(
            "/v1/executions", {"execution_kind": "work", "input": {"password": PLANTED}}
        ),
        await desk.post("/v1/executions", f'{{"execution_kind": "{PLANTED}'.encode()),
        await desk.post("/v1/commands", {"items": [{"type": "claim", "lanes": PLANTED}]}),
        await desk.get("/metrics"),
    ]
    assert {each.status for each in told} >= {200, 201, 401, 404, 422}
    assert all(PLANTED.encode() not in each.body for each in told), told
    assert PLANTED not in log.getvalue()
    assert '"route": "none"' in log.getvalue()


@scenario
async def test_a_store_that_hangs_makes_it_unready_and_it_comes_back_by_itself(
    quick: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(quick.direct)
    assert (await desk.get("/readyz")).status == 200

    async def hangs(_: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(quick.direct, "call", hangs)
    monkeypatch.setattr(service, "_STORE_S", 0.01)  # a second, which leaves one for the network
    unready = await desk.get("/readyz")
    assert (unready.status, unready.json["checks"]["store"]) == (503, False)
    assert (await desk.get("/livez")).status == 200
    monkeypatch.setattr(quick.direct, "call", type(quick.direct).call.__get__(quick.direct))
    assert (await desk.get("/readyz")).status == 200
