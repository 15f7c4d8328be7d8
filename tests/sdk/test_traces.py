"""Traces: a submit, its attempts and its children are one picture in a collector."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pytest

from flowfabric import Context, Fabric, SyncContext
from flowfabric.api.executions import NewExecution
from flowfabric.model.trace import Trace
from flowfabric.tracing import names
from flowfabric.tracing import spans as tracing
from tests.sdk.workshop import within, working
from tests.support.behind import behind_a_proxy

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

CONVENTIONS: Final = {
    "messaging.system": "flowfabric",
    "messaging.destination.name": "default",
}


@cache
def exporter() -> InMemorySpanExporter:
    """The one of this process: a provider keeps what is added to it, and later tests trace, too.

    Imported here: a process that has imported it is traced from then on.
    """
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    made, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made))
    trace.set_tracer_provider(provider)
    return made


class Collector:
    """What a collector would have received."""

    def __init__(self) -> None:
        self._exporter = exporter()
        self._exporter._stopped = False
        from opentelemetry import trace

        self.trace = trace
        self.tracer = trace.get_tracer("tests")

    def named(self, name: str) -> list[ReadableSpan]:
        """The spans of a name, in the order in which they began."""
        found = [each for each in self._exporter.get_finished_spans() if each.name == name]
        return sorted(found, key=lambda each: each.start_time or 0)

    def close(self) -> None:
        self._exporter.clear()
        self._exporter._stopped = True  # what other tests trace is dropped


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def ids(span: ReadableSpan) -> tuple[int, int]:
    """Of the trace, and of the span."""
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    trace_id, _ = ids(span)
    return span.parent is not None and (trace_id, span.parent.span_id) == ids(parent)


def test_a_submit_in_a_traced_request_is_one_picture_with_its_children_and_retry(
    collector: Collector,
) -> None:
    """By a worker behind a server: ids, kinds of span, and attributes as stated."""
    tries: list[int] = []

    async def main() -> str:
        async with behind_a_proxy() as (_, _, proxy, _):
            ff = Fabric(proxy.address)

            @ff.task
            async def part(number: int) -> int:
                return number

            @ff.task(retries=1, backoff="1ms")
            async def whole(ctx: Context) -> int:
                tries.append(1)
                if len(tries) == 1:
                    raise ValueError("planted-secret")
                children = [await ctx.spawn(part, number) for number in (1, 2)]
                return sum(await ctx.gather(*children))

            async with ff, working(ff):
                with collector.tracer.start_as_current_span("request"):
                    run = await whole.submit()
                assert await within(run.result()) == 3
                return run.id

    run_id = asyncio.run(main())
    (request,), (submit,) = collector.named("request"), collector.named("submit whole")
    assert is_child(submit, request)
    runs, children = collector.named("process whole"), collector.named("process part")
    failed, *others = runs
    assert all(is_child(each, submit) for each in runs)
    kinds = collector.trace.SpanKind
    assert (submit.kind, failed.kind) == (kinds.PRODUCER, kinds.CONSUMER)
    told: Any = submit.attributes
    expected: dict[str, Any] = {**CONVENTIONS, "messaging.message.id": run_id}
    assert told.items() >= {**expected, "messaging.operation.type": "send"}.items()
    told = failed.attributes
    expected |= {"messaging.operation.type": "process", "flowfabric.attempt": 1}
    expected |= {"flowfabric.retry": False, "error.type": "ValueError"}
    assert told.items() >= expected.items()
    assert failed.status.status_code is collector.trace.StatusCode.ERROR
    told = others[0].attributes
    assert (told[names.ATTEMPT], told[names.RETRY]) == (2, True)
    assert (others[-1].attributes or {})[names.OUTCOME] == "completed"
    producers = collector.named("submit part")
    assert [each.kind for each in producers] == [kinds.PRODUCER] * 2
    assert all(any(is_child(each, run) for run in others) for each in producers)
    assert len(children) == 2
    assert all(any(is_child(each, spawn) for spawn in producers) for each in children)
    assert all(names.FLOW in (each.attributes or {}) for each in children)
    assert "planted-secret" not in "".join(each.to_json() for each in [request, submit, *runs])


def test_an_attempt_that_begins_late_has_a_trace_of_its_own_with_a_link(
    collector: Collector,
) -> None:
    ff = Fabric("memory://")

    @ff.task
    def work() -> None:
        """In a thread."""

    async def main() -> Any:
        async with ff:
            await work.submit()
            engine = await ff.start()
            (claimed,) = await engine.claim(
                lanes=["default"], worker_id="w", worker_instance_id="w-1"
            )
            await engine.complete(claimed.handle)
            return claimed

    claimed = asyncio.run(main())
    found = tracing.spans()
    assert found is not None
    for waited_ms in (60_000, 60_001):
        with found.process(claimed, claimed.created_at + waited_ms, None):
            pass
    (submit,), (soon, late) = collector.named("submit work"), collector.named("process work")
    assert is_child(soon, submit)
    assert soon.links == ()
    assert late.parent is None
    (link,) = late.links
    assert (link.context.trace_id, link.context.span_id) == ids(submit)


def test_spending_tokens_adds_usage_of_a_model(collector: Collector) -> None:
    ff = Fabric("memory://")

    @ff.task
    async def brief(ctx: Context) -> None:
        for used in (30, 40):
            async with ctx.spend("gpt", tokens=100, usd=1) as spend:
                spend.actual(tokens=used)

    @ff.task
    def plain(ctx: SyncContext) -> None:
        with ctx.spend("gpt", output_tokens=5):
            pass

    async def main() -> None:
        async with ff, working(ff):
            limits = {"tokens": 1_000, "usd": 10, "output_tokens": 9}
            await ff.create_budget("gpt", hard=limits)
            await within((await brief.submit()).result())
            await within((await plain.submit()).result())

    asyncio.run(main())
    (span,) = collector.named("process brief")
    told: Any = span.attributes
    assert {name: told[name] for name in told if name.startswith("gen_ai.")} == {
        "gen_ai.usage.total_tokens": 70
    }
    (sync,) = collector.named("process plain")
    assert (sync.attributes or {})["gen_ai.usage.output_tokens"] == 5


def test_a_flow_and_many_at_once_are_traced(collector: Collector) -> None:
    ff = Fabric("memory://")

    @ff.task
    async def work(number: int) -> None: ...

    async def main() -> list[Any]:
        async with ff:
            with collector.tracer.start_as_current_span("request"):
                await ff.submit_many(work, [1, 2])
                flow = ff.flow("deploy")
                flow.add(work.call(3))
                await flow.submit()
            engine = await ff.start()
            return list(
                await engine.claim(
                    lanes=["default"], worker_id="w", worker_instance_id="w-1", limit=9
                )
            )

    claimed = asyncio.run(main())
    (many,), (flow,) = collector.named("submit work"), collector.named("submit deploy")
    assert (many.attributes or {})[names.COUNT] == 2
    wanted = [f"{ids(each)[1]:016x}" for each in (many, many, flow)]
    assert sorted(each.trace.parent.split("-")[2] for each in claimed) == sorted(wanted)


def test_without_a_span_of_its_own_a_child_belongs_to_the_trace_of_its_parent() -> None:
    request = NewExecution(execution_kind="x")
    trace = Trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=1")
    (carried,) = tracing.with_trace([request], trace)
    assert (carried.traceparent, carried.tracestate) == (trace.parent, trace.state)
    (own,) = tracing.with_trace([carried], Trace("other"))
    assert own is carried


def test_nothing_is_imported_unless_the_program_does() -> None:
    """A program that submits and works, in a process of its own."""
    program = """
import asyncio, sys
from flowfabric import Fabric, Worker

ff = Fabric("memory://")

@ff.task
async def work() -> int:
    return 1

async def main():
    async with ff:
        worker = Worker(ff)
        running = asyncio.create_task(worker.run(handle_signals=False))
        assert await (await work.submit()).result() == 1
        worker.stop()
        await running

asyncio.run(main())
unwanted = ("opentelemetry", "prometheus_client")
print([name for name in sys.modules if name.split(".")[0] in unwanted])
"""
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert said.stdout.strip() == "[]"
