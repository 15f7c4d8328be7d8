"""Spans by OpenTelemetry, in programs that have imported it themselves.

Nothing here imports it first: a program without it pays one look into a dictionary. A submit is a
PRODUCER, and its place in the trace goes with the execution; an attempt is a CONSUMER, a child of
the submit or, when it begins late, the root of a trace that is linked to it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

from flowfabric.api.executions import CreateExecutions, NewExecution
from flowfabric.api.flows import SubmitFlow
from flowfabric.model.attempt import AttemptType
from flowfabric.model.record import Record, replace
from flowfabric.model.results import Claimed
from flowfabric.model.trace import Trace
from flowfabric.tracing import names

_API: Final = "opentelemetry.trace"
_LATE_MS: Final = 60_000  # an attempt that begins so long after the submit has a trace of its own
_made: list[Spans] = []


def spans() -> Spans | None:
    """The spans of this program, if it uses OpenTelemetry."""
    if _API not in sys.modules:
        return None
    if not _made:
        try:
            _made.append(Spans())
        except (ImportError, AttributeError):  # another thread is importing it just now
            return None
    return _made[0]


def with_trace(
    requests: Sequence[NewExecution], trace: Trace | None = None
) -> Sequence[NewExecution]:
    """Submits that are part of the trace that this code runs in, else of one that is given."""
    found = spans()
    here = None if found is None else found.here()
    here = here or trace
    return requests if here is None else [_put(each, here) for each in requests]


def _put(request: NewExecution, trace: Trace) -> NewExecution:
    """One that has a trace keeps it."""
    if request.traceparent is not None:
        return request
    return replace(request, traceparent=trace.parent, tracestate=trace.state)


def traced(request: Any) -> Any:
    """A request that submits something, as part of the trace that this code runs in; any other as
    it is."""
    if isinstance(request, NewExecution):
        return with_trace([request])[0]
    if isinstance(request, CreateExecutions):
        return replace(request, requests=with_trace(request.requests))
    return traced_flow(request) if isinstance(request, SubmitFlow) else request


def traced_flow(request: SubmitFlow, trace: Trace | None = None) -> SubmitFlow:
    """A flow whose members are part of a trace."""
    given = [each.execution for each in request.nodes]
    members = with_trace(given, trace)
    if members is given:
        return request
    pairs = zip(request.nodes, members, strict=True)
    return replace(request, nodes=[replace(each, execution=member) for each, member in pairs])


def submitted_by(requests: Sequence[NewExecution], claimed: Claimed) -> Sequence[NewExecution]:
    """What a handler submits, in a span of its own; without one it belongs to the trace of the
    handler's own submit."""
    found = spans()
    if found is None or not requests:
        return with_trace(requests, claimed.trace)
    with found.submit(requests[0].execution_kind, requests[0].lane_id, len(requests)):
        return with_trace(requests, claimed.trace)


def flow_submitted_by(request: SubmitFlow, claimed: Claimed | None = None) -> SubmitFlow:
    """The same of a flow; `claimed`: of the handler, if one submits it."""
    found, trace = spans(), None if claimed is None else claimed.trace
    if found is None or not request.nodes:
        return traced_flow(request, trace)
    lane = request.nodes[0].execution.lane_id
    with found.submit(request.flow_kind, lane, len(request.nodes)):
        return traced_flow(request, trace)


class Spans:
    """What is told to OpenTelemetry."""

    def __init__(self) -> None:
        from opentelemetry import trace
        from opentelemetry.context import Context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._trace: Any = trace
        self._context: Any = Context
        self._headers: Any = TraceContextTextMapPropagator()
        self._used: WeakKeyDictionary[Any, dict[str, int]] = WeakKeyDictionary()

    @property
    def _tracer(self) -> Any:
        """By name each time: a program may set its provider late."""
        return self._trace.get_tracer("flowfabric")

    def here(self) -> Trace | None:
        """The place in a trace at which this code runs."""
        carrier: dict[str, str] = {}
        self._headers.inject(carrier)
        parent = carrier.get("traceparent")
        return None if parent is None else Trace(parent, carrier.get("tracestate"))

    @contextmanager
    def submit(self, kind: str, lane: str, count: int = 1) -> Iterator[Any]:
        """The span of a submit, which is the current one meanwhile."""
        told = {names.SYSTEM: names.THIS_SYSTEM, names.OPERATION: names.SEND}
        more: dict[str, Any] = {names.LANE: lane, names.KIND: kind}
        if count > 1:
            more[names.COUNT] = count
        with self._tracer.start_as_current_span(
            f"submit {kind}",
            kind=self._trace.SpanKind.PRODUCER,
            attributes=told | more,
            record_exception=False,
        ) as span:
            yield span

    @contextmanager
    def process(self, claimed: Claimed, now: int, flow_id: str | None) -> Iterator[Any]:
        """The span of one run of an attempt."""
        context: Any = self._context()
        links: list[Any] = []
        if claimed.trace is not None:
            context, links = self._after(claimed.trace, now - claimed.created_at)
        told: dict[str, Any] = {
            names.SYSTEM: names.THIS_SYSTEM,
            names.OPERATION: names.PROCESS,
            names.LANE: claimed.lane_id,
            names.EXECUTION: claimed.execution_id,
            names.KIND: claimed.execution_kind,
            names.ATTEMPT: claimed.attempt_index + 1,
            names.EPOCH: claimed.lease_epoch,
            names.RETRY: claimed.attempt_type is AttemptType.RETRY,
        }
        if flow_id is not None:
            told[names.FLOW] = flow_id
        with self._tracer.start_as_current_span(
            f"process {claimed.execution_kind}",
            context=context,
            kind=self._trace.SpanKind.CONSUMER,
            attributes=told,
            links=links,
            record_exception=False,
        ) as span:
            yield span

    def _after(self, trace: Trace, waited_ms: int) -> tuple[Any, list[Any]]:
        """The context in which a span begins, and what it is linked to."""
        carrier = {"traceparent": trace.parent, "tracestate": trace.state or ""}
        context = self._headers.extract(carrier, context=self._context())
        if waited_ms <= _LATE_MS:
            return context, []
        submitted = self._trace.get_current_span(context).get_span_context()
        return self._context(), [self._trace.Link(submitted)]

    def ended(self, span: Any, outcome: str, error: str | None) -> None:
        """How a run ended. Its message may be anything, so its category alone is told."""
        span.set_attribute(names.OUTCOME, outcome)
        if error is not None:
            span.set_attribute(names.ERROR, error)
            span.set_status(self._trace.StatusCode.ERROR, error)

    def submitted(self, span: Any, answer: Record) -> None:
        """What a submit has led to."""
        execution_id = getattr(answer, "execution_id", None)
        if execution_id is not None:
            span.set_attribute(names.EXECUTION, execution_id)

    def spent(self, amounts: Mapping[str, int]) -> None:
        """Usage of a model, added up in the span that this code runs in."""
        told = {names.USAGE[each]: amounts[each] for each in amounts.keys() & names.USAGE.keys()}
        span = self._trace.get_current_span()
        if not told or not span.is_recording():
            return
        used = self._used.setdefault(span, {})
        for name, amount in told.items():
            used[name] = used.get(name, 0) + amount
            span.set_attribute(name, used[name])
