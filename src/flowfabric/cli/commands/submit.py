"""`ff submit`: give work."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

from flowfabric.cli.advice import kinds
from flowfabric.cli.call import Call
from flowfabric.cli.commands.show import show_result
from flowfabric.cli.exits import CommandFailed, Exit, usage
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import clean
from flowfabric.cli.values import nearest
from flowfabric.cli.watching import watch
from flowfabric.errors import WaitTimeout
from flowfabric.model.policy import ExecutionPolicy, RetryPolicy, RoutingRequirements
from flowfabric.model.results import Duplicate


async def submit(call: Call) -> Exit:
    """Create an execution; with --wait stay until it ends and answer with its result."""
    arguments = call.arguments
    payload = _payload(arguments)
    if arguments.key == "":
        # Mostly an unset shell variable; without a key a repeated command would run twice.
        raise usage("--key is empty", advice="give a key, or leave the option out")
    if call.url.startswith("memory:"):
        raise usage(
            "memory:// is forgotten when the command ends",
            advice="name a file or a Postgres database with --url",
        )
    async with call.engine(creates=True) as engine:
        known = [] if call.terminal.as_json else await kinds(engine)
        reply = await engine.create_execution(
            lane_id=arguments.lane,
            execution_kind=arguments.kind,
            input_payload=payload,
            payload_encoding="json",
            priority=arguments.priority,
            creator_identity="ff",
            idempotency_key=arguments.key,
            tags=dict(arguments.tag),
            budget_ids=tuple(arguments.budget),
            quota_policy_id=arguments.quota,
            concurrency_key=arguments.concurrency_key,
            policy=_policy(arguments),
            delay_ms=arguments.delay,
            delay_until=arguments.start_at,
        )
        if known and arguments.kind not in known:
            hint = nearest(arguments.kind, known)
            note = f"this kind is new: no live worker runs it{'; ' if hint else ''}{hint}"
            call.terminal.note(clean(note))
        call.shown.remember("execution", [reply.execution_id], is_listing=False)
        if not arguments.wait:
            return _answer(call, reply)
        call.terminal.note(reply.execution_id)
        try:
            snapshot = await watch(engine, call, reply.execution_id, timeout_ms=arguments.timeout)
        except WaitTimeout:
            raise _not_finished(reply.execution_id) from None
        data = await engine.get_execution_result(execution_id=reply.execution_id)
    return show_result(call, snapshot, data)


def _not_finished(execution_id: str) -> CommandFailed:
    return CommandFailed(
        f"{execution_id} is not finished",
        advice=f"ask again with ff result {execution_id} --wait 30s",
        exit_code=Exit.TIMEOUT,
        code="timeout",
    )


def _payload(arguments: Namespace) -> bytes:
    named: dict[str, Any] = {}
    for name, value in arguments.payload:
        if name in named:
            raise usage(f"argument {name} is given twice", advice="give each argument once")
        named[name] = value
    return json.dumps(named, ensure_ascii=False, separators=(",", ":")).encode()


def _policy(arguments: Namespace) -> ExecutionPolicy:
    retries = arguments.retries
    return ExecutionPolicy(
        retry_policy=None if not retries else RetryPolicy(max_retries=retries),
        routing_requirements=RoutingRequirements(required_capabilities=tuple(arguments.needs)),
    )


def _answer(call: Call, reply: Any) -> Exit:
    duplicate = isinstance(reply, Duplicate)
    if call.terminal.as_json:
        call.terminal.document(plain(reply) | {"duplicate": duplicate})
        return Exit.OK
    call.terminal.line(reply.execution_id)
    if duplicate:
        call.terminal.note("this key was used before: the execution it made is shown")
    return Exit.OK
