"""The checks that turn a request for an execution into a command."""

from __future__ import annotations

from typing import Any

from flowfabric import limits
from flowfabric.api.executions import NewExecution
from flowfabric.config import EngineConfig
from flowfabric.errors import InvalidInput, PayloadTooLarge
from flowfabric.kernel.execution.create import CreateExecution, fingerprint_of
from flowfabric.model.checks import (
    check_capabilities,
    check_instant,
    check_integer,
    check_lane,
    check_name,
    check_tags,
    check_text,
    clamp_priority,
)
from flowfabric.model.execution import Body
from flowfabric.model.limit_checks import check_bounds
from flowfabric.model.nesting import check_nesting
from flowfabric.model.policy import ExecutionPolicy, policy_from
from flowfabric.model.record import replace
from flowfabric.model.route import Route

_route_cache: dict[tuple[str, str, str, tuple[str, ...]], Route] = {}


def to_create(
    request: NewExecution,
    config: EngineConfig,
    execution_id: str,
    *,
    flow_id: str | None = None,
    open_group: int = 0,
) -> CreateExecution:
    """A command from a checked request, with a new id; every problem names its field."""
    policy = policy_from(request.policy)
    if request.delay_ms is not None or policy.delay_ms is not None:
        policy = _delayed(request, policy)
    route = _route(request, policy, config)
    encoding = _optional(request.payload_encoding, "payload_encoding", limits.NAME_BYTES)
    payload = check_payload(request.input_payload, encoding, config, field="input_payload")
    priority = request.priority if request.priority is not None else policy.priority
    body = Body(
        execution_id,
        payload,
        encoding,
        check_text(
            request.creator_identity,
            field="creator_identity",
            max_bytes=limits.NAME_BYTES,
            empty=True,
        ),
        _optional(request.idempotency_key, "idempotency_key", limits.IDEMPOTENCY_KEY_BYTES),
    )
    tags = check_tags(request.tags) if request.tags != {} else {}
    rank = 0 if priority is None else clamp_priority(priority)
    keyed = body.idempotency_key is not None
    bounds = check_bounds(
        _names(request.budget_ids, policy.budget_ids),
        request.quota_policy_id,
        request.concurrency_key,
    )
    return CreateExecution(
        execution_id=execution_id,
        route=route,
        priority=rank,
        policy=policy,
        body=body,
        tags=tags,
        delay_until=_instant(request.delay_until, "delay_until"),
        deadline_at=_instant(request.execution_deadline_at, "execution_deadline_at"),
        fingerprint=fingerprint_of(route, rank, policy, body, tags, bounds) if keyed else b"",
        bounds=bounds,
        flow_id=flow_id,
        open_group=open_group,
    )


def _delayed(request: NewExecution, policy: ExecutionPolicy) -> ExecutionPolicy:
    """The call's delay goes before the policy's; it is kept with the policy until it begins."""
    if request.delay_ms is None:
        return policy if request.delay_until is None else replace(policy, delay_ms=None)
    if request.delay_until is not None:
        detail = "delay_ms: give it or delay_until, not both"
        raise InvalidInput(detail, field="delay_ms")
    most = limits.DURATION_MS_MAX
    delay = check_integer(request.delay_ms, field="delay_ms", least=0, most=most)
    return replace(policy, delay_ms=delay, delay_until=None)


def _route(request: NewExecution, policy: ExecutionPolicy, config: EngineConfig) -> Route:
    """The route, checked once and shared by every request that names it."""
    needs = policy.routing_requirements.required_capabilities
    namespace = config.namespace if request.namespace is None else request.namespace
    try:
        key = (namespace, request.lane_id, request.execution_kind, needs)
        return _route_cache[key]
    except (KeyError, TypeError):
        pass
    route = Route(
        check_name(namespace, field="namespace"),
        check_lane(request.lane_id),
        check_name(request.execution_kind, field="execution_kind"),
        check_capabilities(needs, field="policy.routing_requirements.required_capabilities"),
    )
    if len(_route_cache) > limits.CREATE_MAX:
        _route_cache.clear()
    _route_cache[route.namespace, route.lane_id, route.execution_kind, needs] = route
    return route


def check_payload(
    payload: object, encoding: str | None, config: EngineConfig, *, field: str
) -> bytes:
    """Bytes within the configured limit; where they are JSON, not nested too deep."""
    data = payload if type(payload) is bytes else _as_bytes(payload, field)
    if len(data) > config.payload_bytes_max:
        raise PayloadTooLarge(
            f"{field}: {len(data)} bytes is over the limit {config.payload_bytes_max}",
            field=field,
            limit=config.payload_bytes_max,
        )
    check_nesting(data, encoding, field=field)
    return data


def _names(asked: Any, by_policy: tuple[str, ...]) -> Any:
    """Budgets of the call and of its policy; a malformed list is left for the check to refuse."""
    return (*asked, *by_policy) if by_policy and isinstance(asked, list | tuple) else asked


def _as_bytes(payload: object, field: str) -> bytes:
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise InvalidInput(f"{field}: expected bytes, got {type(payload).__name__}", field=field)
    return bytes(payload)


def _optional(value: str | None, field: str, max_bytes: int) -> str | None:
    if value is None or value == "":
        return None
    return check_text(value, field=field, max_bytes=max_bytes)


def _instant(value: int | None, field: str) -> int | None:
    return None if value is None else check_instant(value, field=field)
