"""The checks that turn a request for an execution into a command."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final

from flowfabric import limits
from flowfabric.api.executions import NewExecution, NewHook
from flowfabric.api.flows import CreateFlow, SubmitFlow
from flowfabric.config import EngineConfig
from flowfabric.engine.operations.ties import ties_of
from flowfabric.errors import InvalidInput, PayloadTooLarge
from flowfabric.kernel.execution.create import CreateExecution, fingerprint_of
from flowfabric.kernel.order.unique import CreateUnique
from flowfabric.kernel.wait.schema import check_schema
from flowfabric.model.checks import (
    check_capabilities,
    check_flag,
    check_instant,
    check_integer,
    check_lane,
    check_name,
    check_tags,
    check_text,
    clamp_priority,
    named_within,
)
from flowfabric.model.execution import Body
from flowfabric.model.limit_checks import check_bounds
from flowfabric.model.nesting import check_nesting
from flowfabric.model.policy import ExecutionPolicy, policy_from
from flowfabric.model.record import replace
from flowfabric.model.route import Route
from flowfabric.model.successor import FlowHooks, Hook, Hooks, Role, Successor
from flowfabric.model.ties import UNTIED, Ties
from flowfabric.model.trace import read_trace, trace_text

HOOKS: Final = (Role.ON_SUCCESS.value, Role.ON_FAILURE.value, Role.ON_END.value)
_route_cache: dict[
    tuple[str, str, str, tuple[str, ...]], Route
] = {}  # What ties an execution to others, and how most requests have it.
_tying: Final = attrgetter(*HOOKS, "unique", "fair_key", "serial_key", "on_head_failure")
_LOOSE: Final = _tying(NewExecution(execution_kind="any"))

_hook_cache: dict[tuple[int, str], tuple[NewHook, Hook]] = {}


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
        _trace(request),
    )
    tags = check_tags(request.tags) if request.tags != {} else {}
    rank = 0 if priority is None else clamp_priority(priority)
    keyed = body.idempotency_key is not None
    bounds = check_bounds(
        _names(request.budget_ids, policy.budget_ids),
        request.quota_policy_id,
        request.concurrency_key,
    )
    ties = _ties(request, route, body, config)
    print_ = fingerprint_of(route, rank, policy, body, tags, bounds, ties) if keyed else b""
    unique = {} if ties.unique is None else {"unique": ties.unique}
    kind: Any = CreateExecution if ties.unique is None else CreateUnique
    made: CreateExecution = kind(
        execution_id=execution_id,
        route=route,
        priority=rank,
        policy=policy,
        body=body,
        tags=tags,
        delay_until=_instant(request.delay_until, "delay_until"),
        deadline_at=_instant(request.execution_deadline_at, "execution_deadline_at"),
        fingerprint=print_,
        bounds=bounds,
        flow_id=flow_id,
        open_group=open_group,
        ties=ties,
        mailboxes=_mailboxes(request.mailboxes) if request.mailboxes != {} else (),
        **unique,
    )
    return made


def _trace(request: NewExecution) -> str | None:
    """Mostly there is none; one that is not sound is none."""
    if request.traceparent is None:
        return None
    trace = read_trace(request.traceparent, request.tracestate)
    return None if trace is None else trace_text(trace)


def _ties(request: NewExecution, route: Route, body: Body, config: EngineConfig) -> Ties:
    """How it is bound to others outside of its flow; mostly not at all."""
    if request.undo_stops is False and _tying(request) == _LOOSE:
        return UNTIED
    hooks = _hooks(request, route.namespace, config)
    ties = ties_of(request)
    if request.undo_stops is not False:
        stops = check_flag(request.undo_stops, field="undo_stops")
        ties = replace(ties, undo_stops=stops) if stops else ties
    if not hooks:
        return ties
    return replace(ties, hooks=Hooks(**hooks, key=body.idempotency_key))


def flow_hooks(
    request: SubmitFlow | CreateFlow, namespace: str, config: EngineConfig
) -> FlowHooks | None:
    """The hooks of a flow, checked; mostly there are none. One that is built step by step has no
    idempotency key for them to be told."""
    hooks = _hooks(request, namespace, config)
    if not hooks:
        return None
    return FlowHooks(
        on_success=hooks.get(Role.ON_SUCCESS),
        on_failure=hooks.get(Role.ON_FAILURE),
        on_end=hooks.get(Role.ON_END),
        key=request.idempotency_key if isinstance(request, SubmitFlow) else None,
    )


def _hooks(
    request: NewExecution | SubmitFlow | CreateFlow, namespace: str, config: EngineConfig
) -> dict[str, Hook]:
    return {
        name: _hook(hook, name, namespace, config)
        for name in HOOKS
        if (hook := getattr(request, name)) is not None
    }


def _hook(hook: object, field: str, namespace: str, config: EngineConfig) -> Hook:
    """A hook, checked once and shared by every request that has the same one."""
    key = (id(hook), namespace)
    known = _hook_cache.get(key)
    if known is not None and known[0] is hook:
        return known[1]
    made = _new_hook(hook, field, namespace, config)
    if isinstance(hook, NewHook) and _cannot_change(hook):
        if len(_hook_cache) >= limits.CREATE_MAX:
            _hook_cache.clear()
        _hook_cache[key] = (hook, made)  # while it is kept, no other has its id
    return made


def _cannot_change(hook: NewHook) -> bool:
    """Whether a hook stays as it is: a list or a dictionary may be changed by its owner."""
    is_fixed = hook.policy is None or isinstance(hook.policy, ExecutionPolicy)
    return is_fixed and type(hook.budget_ids) is tuple and hook.mailboxes == {}


def _new_hook(hook: object, field: str, namespace: str, config: EngineConfig) -> Hook:
    """A hook, checked as the execution that it is to become, in the namespace of the other one."""
    if not isinstance(hook, NewHook):
        raise InvalidInput(f"{field}: expected a NewHook, got {type(hook).__name__}", field=field)
    if hook.argument is not None:
        check_name(hook.argument, field=f"{field}.argument")
    same = {name: getattr(hook, name) for name in NewHook.__struct_fields__ if name != "argument"}
    with named_within(field):
        made = to_create(NewExecution(**same, namespace=namespace), config, "")
    return Hook(to_successor(made), hook.argument)


def to_successor(create: CreateExecution) -> Successor:
    """What is kept of an execution that is to be created later."""
    return Successor(
        route=create.route,
        priority=create.priority,
        policy=create.policy,
        bounds=create.bounds,
        mailboxes=create.mailboxes,
    )


def _mailboxes(given: Any) -> tuple[tuple[str, str | None], ...]:
    """Mailboxes by name, each with the schema of its messages, if it has one."""
    field = "mailboxes"
    if not isinstance(given, Mapping):
        detail = f"{field}: expected schemas by names, got {type(given).__name__}"
        raise InvalidInput(detail, field=field)
    if len(given) > limits.MAILBOXES_MAX:
        raise InvalidInput(f"{field}: more than {limits.MAILBOXES_MAX}", field=field)
    return tuple(
        (check_mailbox(name, field=field), check_schema(schema, field=f"{field}.{name}"))
        for name, schema in sorted(given.items(), key=lambda pair: str(pair[0]))
    )


def check_mailbox(name: object, *, field: str = "mailbox") -> str:
    """The name of a mailbox."""
    return check_text(name, field=field, max_bytes=limits.MAILBOX_NAME_BYTES)


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
