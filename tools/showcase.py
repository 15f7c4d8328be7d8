"""A store with a story to look at: the work of an agent product, three hours of it.

It is written through the engine's operations, with a clock that starts in the past and is moved on.
`tools/screenshots.py` draws it, and the tests in a browser read it.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any, Final

from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import FlowEdge, FlowNode
from flowfabric.api.schedules import ScheduledStart
from flowfabric.api.waits import Fresh, Signal, SuspendRequest
from flowfabric.assemble import open_engine
from flowfabric.clock import ManualClock, SystemClock
from flowfabric.engine.engine import Engine
from flowfabric.model.flow import OnSatisfied, Quorum
from flowfabric.model.log_lines import LogBatch, NewLine
from flowfabric.model.policy import ExecutionPolicy, FixedBackoff, RetryPolicy
from flowfabric.model.results import Claimed
from flowfabric.model.schedule import Timing
from flowfabric.model.suspension import AnyOf, Count, CountKind, ReasonCode, Single

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
_TOPICS: Final = ("solar", "tidal power", "heat pumps", "grid storage", "wind", "fusion")
_KINDS: Final = (("research", "agents"), ("summarise", "agents"), ("embed", "default"))
_LANES: Final = ("default", "agents", "mail")
_RATE: Final = "RateLimitError: 429 from api.models.example: slow down"
_TIMEOUT: Final = "TimeoutError: the model did not answer within 30 s"
_SCHEMA: Final = json.dumps(
    {
        "type": "object",
        "properties": {
            "title": {"type": "string", "maxLength": 80},
            "channel": {"enum": ["web", "mail"]},
        },
        "required": ["title", "channel"],
    }
)


class Showcase:
    """An engine on a store, and a present that moves by what is done."""

    def __init__(self, url: str, *, minutes: int) -> None:
        self.minutes = minutes
        self.clock = ManualClock(SystemClock().now_ms() - minutes * MINUTE_MS)
        self.engine: Engine = open_engine(url, clock=self.clock)
        self._todo: deque[str] = deque()

    async def create(self, kind: str, topic: str, **fields: Any) -> str:
        """A new run's id."""
        made = await self.engine.create_execution(
            execution_kind=kind,
            input_payload=json.dumps({"topic": topic, "words": 400}).encode(),
            creator_identity="web",
            **fields,
        )
        return made.execution_id

    async def claim(self, *lanes: str, worker: str = "agent-1", limit: int = 1) -> list[Claimed]:
        """What a worker gets."""
        return await self.engine.claim(
            lanes=lanes or _LANES,
            worker_id=worker.partition("-")[0],
            worker_instance_id=worker,
            lease_ttl_ms=HOUR_MS,
            limit=limit,
        )

    # --- what goes on by itself ------------------------------------------------------------------

    async def minute(self, at: int) -> None:
        """A minute of everyday work."""
        many = 2 + (at * 7) % 5
        for number in range(many):
            kind, lane = _KINDS[(at + number) % 3]
            topic = _TOPICS[(at * 3 + number) % 6]
            await self.create(kind, topic, lane_id=lane, tags={"team.name": "energy"})
        for number, claimed in enumerate(await self.claim(limit=many + 2)):
            self.clock.advance(700 + (at * 977 + number * 331) % 4_000)
            if (at + number) % 13 == 5 and claimed.lane_id != "mail":
                reason = _TIMEOUT if at % 3 == 0 else _RATE
                await self.engine.fail(
                    claimed.handle, reason=reason, failure_class="permanent", category="model"
                )
                continue
            await self.engine.complete(claimed.handle, result=b'{"text":"...","sources":7}')
            tokens = 400 + (at * 131 + number * 17) % 600
            await self.engine.record_spend(
                budget_id="gpt", execution_id=claimed.execution_id, deltas={"tokens": tokens}
            )
        await self.engine.tick()
        await self.counted()

    # --- what is worth looking at ----------------------------------------------------------------

    async def limits(self) -> None:
        """Budgets, a quota, schedules and a lane that is paused."""
        every_day: dict[str, Any] = {"reset_interval_ms": 24 * HOUR_MS}
        hard = 3_735 * self.minutes
        await self.engine.create_budget(
            budget_id="gpt",
            dimensions=["tokens"],
            hard_limits=[hard],
            soft_limits=[hard * 4 // 5],
            **every_day,
        )
        await self.engine.create_budget(
            budget_id="mail", dimensions=["messages"], hard_limits=[5_000], soft_limits=[0]
        )
        await self.engine.create_quota_policy(
            quota_policy_id="model-calls",
            window_seconds=60,
            max_requests_per_window=120,
            max_concurrent=8,
        )
        for name, cron in (("morning-report", "0 7 * * 1-5"), ("reindex", "*/30 * * * *")):
            work = NewExecution(execution_kind=name, lane_id="mail")
            await self.engine.create_schedule(
                schedule_id=name,
                timing=Timing(cron=(cron,), tz="Europe/Berlin"),
                start=ScheduledStart(execution=work),
            )

    async def retried(self) -> str:
        """A run that failed once, waited and succeeded, with a log."""
        policy = ExecutionPolicy(retry_policy=RetryPolicy(backoff=FixedBackoff(delay_ms=9_000)))
        key = await self.create(
            "research", "solar", lane_id="agents", policy=policy, budget_ids=("gpt",)
        )
        self.clock.advance(2_500)
        (claimed,) = await self.claim("agents")
        await self._said(claimed, "reading 12 sources", "drafting")
        self.clock.advance(4_100)
        await self.engine.fail(
            claimed.handle, reason=_RATE, failure_class="transient", category="model"
        )
        await self._on(9_200)
        self.clock.advance(1_800)
        (claimed,) = await self.claim("agents", worker="agent-2")
        await self.engine.progress(claimed.handle, percent=60, message="drafting")
        await self._said(claimed, "the model answers again", "600 words")
        self.clock.advance(6_300)
        result = {"title": "Solar in 2026", "words": 640, "sources": ["iea", "irena"]}
        await self.engine.complete(claimed.handle, result=json.dumps(result).encode())
        return key

    async def approval(self, topic: str, *, decided: bool = False) -> str:
        """A run that waits for two people, one of which may have decided."""
        key = await self.create("publish", topic, lane_id="review")
        (claimed,) = await self.claim("review")
        await self.engine.progress(claimed.handle, percent=80, message=f"draft: all about {topic}")
        yes = Count(2, CountKind.DISTINCT_SOURCES, ("publish",), "approved")
        outcome = await self.engine.suspend(
            claimed.handle,
            SuspendRequest(
                resume_condition=AnyOf((yes, Single("publish", "rejected"))),
                waitpoints=(Fresh("publish", payload_type=_SCHEMA),),
                reason_code=ReasonCode.WAITING_FOR_APPROVAL,
                timeout_at=self.clock.now_ms() + 48 * HOUR_MS,
                timeout_behavior="cancel",
            ),
        )
        if decided:
            await self.engine.deliver_signal(
                Signal(
                    execution_id=key,
                    waitpoint_id=outcome.waitpoints[0].waitpoint_id,
                    token=outcome.waitpoints[0].token,
                    signal_name="approved",
                    source_type="user",
                    source_identity="ada",
                    payload=b'{"title":"Solar in 2026","channel":"web"}',
                )
            )
        return key

    async def race(self) -> str:
        """A flow whose judge takes two of three answers, and cancels the third."""
        names = ("gpt", "opus", "local")
        judge = Quorum(2, OnSatisfied.CANCEL_REMAINING)
        nodes = [
            self._node("collect"),
            *(self._node(f"ask-{name}", "ask") for name in names),
            FlowNode(name="judge", execution=self._work("judge"), join=judge),
            self._node("translate"),
            self._node("publish"),
        ]
        edges = [
            *(FlowEdge(upstream="collect", downstream=f"ask-{name}") for name in names),
            *(FlowEdge(upstream=f"ask-{name}", downstream="judge") for name in names),
            FlowEdge(upstream="judge", downstream="translate"),
            FlowEdge(upstream="translate", downstream="publish"),
        ]
        made = await self.engine.submit_flow(flow_kind="answer", nodes=nodes, edges=edges)
        for most in (1, 2, 1):
            for claimed in await self.claim("agents", limit=most):
                self.clock.advance(3_400)
                await self.engine.complete(claimed.handle, result=b'"a good answer"')
            await self._on(100)
        await self.claim("agents", worker="agent-2")
        return str(made.flow_id)

    async def present(self) -> None:
        """What runs and waits now, and those that offer to do it."""
        for number in range(3):
            await self.create("research", _TOPICS[number], lane_id="agents", priority=5)
            self.clock.advance(900)
        await self.claim("agents", worker="agent-1", limit=2)
        needs = {"routing_requirements": {"required_capabilities": ["gpu"]}}
        for topic in _TOPICS[:3]:
            await self.create("render", topic, policy=needs)
        await self.create("remind", "wind", delay_ms=6 * HOUR_MS)
        await self.engine.pause_lane(lane_id="mail", reason="the mail provider is down")

    async def workers(self) -> None:
        """Those that say that they are there."""
        for number in (1, 2, 3):
            await self.engine.register_worker(
                worker_id="agent",
                worker_instance_id=f"agent-{number}",
                lanes=("agents", "default"),
                kinds=("research", "summarise", "embed", "judge"),
                liveness_ttl_ms=10 * MINUTE_MS,
                concurrency=8,
                host=f"node-{number}.internal",
                version="2026.11.2",
            )

    async def counted(self) -> None:
        """The statistics of what has happened."""
        while await self.engine.roll_up():
            continue

    # --- words -----------------------------------------------------------------------------------

    async def _on(self, by_ms: int) -> None:
        self.clock.advance(by_ms)
        await self.engine.tick()

    async def _said(self, claimed: Claimed, *texts: str) -> None:
        lines = [
            NewLine(message=text, at=self.clock.now_ms() + 300 * at, logger="agent")
            for at, text in enumerate(texts)
        ]
        await self.engine.append_logs(claimed.handle, logs=LogBatch(lines=lines))

    def _work(self, kind: str) -> NewExecution:
        return NewExecution(execution_kind=kind, lane_id="agents")

    def _node(self, name: str, kind: str = "") -> FlowNode:
        return FlowNode(name=name, execution=self._work(kind or name))


async def tell(url: str, *, minutes: int = 180) -> dict[str, str]:
    """Write the story to a store; the ids of what is worth a page of its own."""
    show = Showcase(url, minutes=minutes)
    await show.engine.start(migrate=True)
    try:
        begun = show.clock.now_ms()
        await show.limits()
        for at in range(minutes - 3):
            await show.minute(at)
            show.clock.set(max(show.clock.now_ms(), begun + (at + 1) * MINUTE_MS))
        told = {"run": await show.retried(), "flow": await show.race()}
        told["wait"] = await show.approval("solar", decided=True)
        await show.approval("tidal power")
        await show.present()
        show.clock.set(SystemClock().now_ms())
        await show.workers()
        await show.counted()
        return told
    finally:
        await show.engine.close()
