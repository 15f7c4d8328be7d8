"""Three hundred hostile texts, on every page, in a real browser: none of them does anything."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import FlowEdge, FlowNode
from flowfabric.api.schedules import ScheduledStart
from flowfabric.api.waits import Fresh, SuspendRequest
from flowfabric.assemble import open_engine
from flowfabric.engine.engine import Engine
from flowfabric.errors import FlowFabricError
from flowfabric.model.log_lines import LogBatch, NewLine
from flowfabric.model.results import Claimed, Created
from flowfabric.model.schedule import Timing
from flowfabric.model.suspension import ReasonCode, Single
from flowfabric.server.routes.values import path_id
from flowfabric.server.ui.views.execution import TABS
from tests.support.hostile import HOSTILE
from tests.support.server_thread import ServerThread
from tests.ui.browser.watching import Tabs

_LISTS: Final = (
    *("", "/runs", "/flows", "/approvals?tab=all", "/failures", "/budgets", "/lanes", "/workers"),
    *("/schedules", "/audit", "/system", "/operations"),
)


async def tried(each: Awaitable[Any]) -> Any:
    """A name that may not be so is another test's."""
    try:
        return await each
    except FlowFabricError:
        return None


async def named(engine: Engine, name: str) -> None:
    """Everything that has a name, under this one."""
    await tried(engine.create_budget(budget_id=name, dimensions=[name], hard_limits=[5]))
    await tried(engine.create_quota_policy(quota_policy_id=name, max_concurrent=1))
    await tried(engine.pause_lane(lane_id=name, reason=name))
    start = ScheduledStart(execution=NewExecution(execution_kind=name))
    timing = Timing(every_ms=3_600_000)
    await tried(engine.create_schedule(schedule_id=name, timing=timing, start=start))
    words: dict[str, Any] = {"lanes": ("default",), "kinds": (name,), "liveness_ttl_ms": 60_000}
    worker: dict[str, Any] = {
        "worker_id": name,
        "worker_instance_id": name,
        "host": name,
        "version": name,
    }
    await tried(engine.register_worker(**words, **worker))


async def claimed(engine: Engine) -> Claimed:
    words: dict[str, Any] = {"worker_id": "w", "worker_instance_id": "w-1", "lease_ttl_ms": 60_000}
    (found,) = await engine.claim(lanes=("default",), **words)
    return found


async def failed(engine: Engine) -> str:
    """A run with all of them in its input, its log, its progress and its reason."""
    data = json.dumps({text: [text, {"inner": text}] for text in HOSTILE}).encode()
    made = await engine.create_execution(execution_kind="brief", input_payload=data)
    assert isinstance(made, Created)
    run = await claimed(engine)
    at = await engine.server_time_ms()
    for begin in range(0, len(HOSTILE), 100):
        lines = [NewLine(message=text, at=at) for text in HOSTILE[begin : begin + 100]]
        await engine.append_logs(run.handle, logs=LogBatch(lines=lines))
    await engine.progress(run.handle, percent=5, message="\n".join(HOSTILE[:40]))
    reason = "\n".join(HOSTILE)[:8_000]
    await engine.fail(run.handle, reason=reason, failure_class="permanent", category="x")
    return made.execution_id


async def waits(engine: Engine, text: str) -> str:
    made = await engine.create_execution(execution_kind=text)
    assert isinstance(made, Created)
    run = await claimed(engine)
    await engine.progress(run.handle, message=text)
    condition = Single(text, "approved")
    request = SuspendRequest(
        resume_condition=condition,
        waitpoints=(Fresh(text),),
        reason_code=ReasonCode.WAITING_FOR_APPROVAL,
    )
    await engine.suspend(run.handle, request)
    return made.execution_id


async def planted(url: str) -> list[str]:
    """Plant them in a new store; the pages that show them."""
    engine = open_engine(url)
    await engine.start(migrate=True)
    try:
        broken = await failed(engine)
        text = "<img src=x onerror=alert(1)>"
        wait = await waits(engine, text)
        names = cycle(HOSTILE)
        nodes = [
            FlowNode(name=name, execution=NewExecution(execution_kind=name, lane_id="flows"))
            for name in ("<script>alert(1)</script>", '"><svg onload=alert(1)>', "{{7*7}}")
        ]
        edges = [FlowEdge(upstream=nodes[0].name, downstream=each.name) for each in nodes[1:]]
        flow = await engine.submit_flow(flow_kind=text, nodes=nodes, edges=edges)
        for name in HOSTILE[::12]:
            await named(engine, name)
        for number in range(len(HOSTILE)):
            tags = {f"key.n{number}": next(names)}
            await tried(engine.create_execution(execution_kind=HOSTILE[number], tags=tags))
            if number >= 2 * len(HOSTILE) // 3:
                await tried(engine.create_execution(execution_kind="brief", tags=tags))
        await engine.tick()
        while await engine.roll_up():
            continue
        groups = (await engine.list_failure_groups()).items
    finally:
        await engine.close()
    run = path_id(broken)
    return [
        *(f"/ui{page}" for page in _LISTS),
        *(f"/ui/runs/{run}?tab={tab}" for tab, _ in TABS),
        *(f"/ui/flows/{flow.flow_id}?tab={tab}" for tab in ("graph", "list", "waterfall")),
        *(f"/ui/runs?q={quote(text)}" for text in HOSTILE[::60]),
        *(f"/ui/failures/{each.fingerprint}?namespace={each.namespace}" for each in groups),
        f"/ui/runs/{path_id(wait)}",
        f"/ui/approvals/{path_id(wait)}/{quote(text, safe='')}?decision=approved",
    ]


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[tuple[ServerThread, list[str]]]:
    url = f"sqlite:///{tmp_path / 'hostile.db'}"
    pages = asyncio.run(planted(url))
    server = ServerThread(url, rate_address=100_000, rate_expensive=1_000)
    yield server, pages
    server.close()


def test_30_no_hostile_text_does_anything_on_any_page(
    hostile: tuple[ServerThread, list[str]], tabs: Tabs
) -> None:
    """`tabs` fails at its end if there was a dialog, a broken policy or any other complaint."""
    server, pages = hostile
    page = tabs.open(viewport={"width": 360, "height": 780})
    foreign: list[str] = []
    page.on(
        "request",
        lambda asked: None if asked.url.startswith(server.address) else foreign.append(asked.url),
    )
    for path in pages:
        reply = page.goto(server.address + path)
        assert reply is not None
        assert reply.status == 200, path
        assert page.evaluate("() => document.querySelectorAll('main img, main iframe').length") == 0
        wide = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{path} is {wide} px too wide"
    assert not foreign
