"""`ff submit`: submit work."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

from flowfabric.cli import values
from flowfabric.cli.advice import kinds
from flowfabric.cli.call import Call
from flowfabric.cli.exits import CommandFailed, Exit, usage
from flowfabric.cli.grammar import FfParser, add_list
from flowfabric.cli.show.executions import show_result
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import clean
from flowfabric.cli.watching import watch
from flowfabric.errors import WaitTimeout
from flowfabric.model.policy import ExecutionPolicy, RetryPolicy, RoutingRequirements
from flowfabric.model.results import Duplicate


def add_arguments(parser: FfParser) -> None:
    """The task, its times and its limits."""
    parser.add_argument("kind", metavar="KIND", help="the name of the task")
    add_list(
        parser,
        "payload",
        values.argument,
        least="*",
        metavar="ARGUMENT",
        text="name=text or name:=json",
    )
    parser.add_argument("--key", metavar="KEY", help="idempotency key: the same key runs once")
    parser.add_argument("--priority", type=values.integer, metavar="N", help="higher runs sooner")
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--delay", type=values.duration_ms, metavar="TIME", help="start in 10m")
    begin.add_argument(
        "--start-at", type=values.instant, metavar="WHEN", help="not before 2026-11-16T08:00"
    )
    parser.add_argument("--lane", default="default", metavar="LANE", help="default: default")
    parser.add_argument(
        "--tag", action="append", type=values.tag, default=[], metavar="K=V", help="repeat"
    )
    parser.add_argument(
        "--needs", action="append", default=[], metavar="WORD", help="needed capability (repeat)"
    )
    parser.add_argument(
        "--budget", action="append", default=[], metavar="NAME", help="spends from it (repeat)"
    )
    parser.add_argument("--quota", metavar="NAME", help="admitted under this quota")
    parser.add_argument(
        "--concurrency-key", metavar="KEY", help="the quota's limits hold for each key by itself"
    )
    parser.add_argument(
        "--retries", type=values.number, metavar="N", help="tries after the first fails"
    )
    parser.add_argument("--wait", action="store_true", help="wait for the result and print it")
    parser.add_argument(
        "--timeout", type=values.duration_ms, metavar="TIME", help="longest wait (with --wait)"
    )
    parser.set_defaults(handler=submit)


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
            hint = values.nearest(arguments.kind, known)
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
