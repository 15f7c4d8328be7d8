"""How executions ended: at once, or as soon as they have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowfabric import limits
from flowfabric.api.executions import DescribeExecution, ReadOutcomes
from flowfabric.api.flows import DescribeFlow
from flowfabric.api.hints import end_topic, wait_event
from flowfabric.api.operation import Scope
from flowfabric.clock import stopwatch
from flowfabric.errors import InvalidInput, NotFound, WaitTimeout
from flowfabric.model.record import Record
from flowfabric.model.results import ExecutionSnapshot, Outcome
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.instants import duration_ms
from flowfabric.server.patience import Stopping
from flowfabric.server.plain import to_body
from flowfabric.server.routes.asking import ask
from flowfabric.server.routes.forms import body_of, unknown_parameter
from flowfabric.server.routes.route import Reach, Repeat, Route, Size
from flowfabric.server.routes.values import full_id
from flowfabric.server.service import Service
from flowfabric.server.shapes import shape_of

_LOOK_S: Final = 5.0  # hints may be lost


def wait_of(service: Service, call: Call) -> int:
    """The one parameter of this query."""
    given = [text for word, text in call.query if word == "wait"]
    other = next((word for word, _ in call.query if word != "wait"), None)
    if other is not None:
        raise unknown_parameter(other, {"wait": None})
    if len(given) > 1:
        raise InvalidInput("wait: is given twice", field="wait")
    call.query.clear()
    return duration_ms(given[0], field="wait", most_ms=service.settings.wait_max_ms) if given else 0


async def outcome_by(
    service: Service, call: Call, execution_id: str, wait_ms: int
) -> Outcome | None:
    """How it ended, or nothing when the time is up, or the server stops."""
    try:
        with service.waiting(call.caller):
            waited = service.endings.outcome(execution_id, wait_ms)
            return await service.patience.while_there(call, waited)
    except (WaitTimeout, Stopping):
        return None


async def outcome(service: Service, call: Call) -> Answer:
    """How it ended, with the result; 202 with the snapshot while it has not."""
    wait_ms = wait_of(service, call)
    found = await snapshot_of(service, call)
    ended = await outcome_by(service, call, found.execution_id, wait_ms)
    if ended is not None:
        return Answer(to_body(ended))
    return Answer(to_body(await snapshot_of(service, call)), status=WaitTimeout.status)


async def snapshot_of(service: Service, call: Call) -> ExecutionSnapshot:
    """The execution that the path names."""
    execution_id = full_id(call.params["execution_id"])
    found = await ask(service, call, DescribeExecution(execution_id=execution_id))
    if found is None:
        raise await _absent(service, call, execution_id)
    return found


async def _absent(service: Service, call: Call, execution_id: str) -> NotFound:
    """With a hint where the id is that of a flow."""
    given = call.params["execution_id"]
    is_bare = execution_id.endswith(given.lower()) and given != execution_id
    if is_bare and await ask(service, call, DescribeFlow(flow_id=given.lower())) is not None:
        hint = f"execution: this is the id of a flow; GET /v1/flows/{given.lower()} reads it"
        return NotFound(hint, entity="execution")
    return NotFound(f"execution {execution_id!s:.100}", entity="execution")


class Outcomes(Record, frozen=True, kw_only=True):
    """How executions ended, by id; those that have not are left out."""

    outcomes: dict[str, Outcome]


class OutcomesAsked(Record, frozen=True, kw_only=True):
    """Which ends are waited for, how long, and how many are enough to answer."""

    execution_ids: Sequence[str]
    wait_ms: int = 0
    at_least: int = 1


async def outcomes(service: Service, call: Call) -> Answer:
    """Those of many executions that have ended: one long poll for all of them."""
    asked_for: OutcomesAsked = shape_of(OutcomesAsked).read(await body_of(service, call))
    most = service.settings.wait_max_ms
    if not 0 <= asked_for.wait_ms <= most:
        raise InvalidInput(f"wait_ms: expected 0 to {most}", field="wait_ms")
    if not 1 <= asked_for.at_least <= limits.PAGE_MAX:
        raise InvalidInput(f"at_least: expected 1 to {limits.PAGE_MAX}", field="at_least")
    if len(asked_for.execution_ids) > limits.PAGE_MAX:
        detail = f"execution_ids: at most {limits.PAGE_MAX}"
        raise InvalidInput(detail, field="execution_ids")
    ids = [full_id(each) for each in asked_for.execution_ids]
    request = ReadOutcomes(execution_ids=ids)
    if asked_for.wait_ms == 0:
        return Answer(to_body(Outcomes(outcomes=await ask(service, call, request))))
    with service.waiting(call.caller):
        try:
            waited = _several(service, call, request, asked_for)
            found = await service.patience.while_there(call, waited)
        except Stopping:
            found = await ask(service, call, request)
    return Answer(to_body(Outcomes(outcomes=found)))


async def _several(
    service: Service, call: Call, request: ReadOutcomes, asked_for: OutcomesAsked
) -> dict[str, Outcome]:
    """Look, and look again when one of them may have ended."""
    until = stopwatch() + asked_for.wait_ms / 1000
    enough = min(asked_for.at_least, len(set(request.execution_ids)))
    with service.engine.listen(tuple(map(end_topic, request.execution_ids))) as bell:
        while True:
            found = await ask(service, call, request)
            left = until - stopwatch()
            if len(found) >= enough or left <= 0:
                return found
            await wait_event(bell, min(left, _LOOK_S))


OUTCOME_ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/executions/{execution_id}/outcome",
        title="How an execution ended; 202 with the snapshot while it has not",
        asks=("describe_execution", "wait_for_outcome"),
        scope=Scope.READ,
        reach=Reach.OBJECT,
        handler=outcome,
        statuses={"ExecutionSnapshot": 202},
        reply=Outcome | ExecutionSnapshot,
        errors=(NotFound,),
        own_query={"wait": "how long to wait for the end, with a unit: 25s"},
    ),
    Route(
        method="POST",
        path="/v1/executions/outcomes",
        title="Those of many executions that have ended",
        asks=("read_outcomes",),
        scope=Scope.READ,
        reach=Reach.NAMED,
        handler=outcomes,
        size=Size.BATCH,
        repeat=Repeat.READ,
        body=OutcomesAsked,
        reply=Outcomes,
    ),
)
