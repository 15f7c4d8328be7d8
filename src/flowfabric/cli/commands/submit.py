"""`ff submit`: submit work."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

from flowfabric.api.executions import NewUnique
from flowfabric.cli import values
from flowfabric.cli.advice import kinds
from flowfabric.cli.call import Call
from flowfabric.cli.exits import CommandFailed, Exit, usage
from flowfabric.cli.grammar import FfParser, add_list, words_of
from flowfabric.cli.show.executions import show_result
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import clean
from flowfabric.cli.watching import watch
from flowfabric.errors import WaitTimeout
from flowfabric.model.policy import ExecutionPolicy, RetryPolicy, RoutingRequirements, TimeoutPolicy
from flowfabric.model.results import Debounced, Duplicate, Existing
from flowfabric.model.words import HeadFailure, OnConflict, UniqueWhile


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
    _add_keys(parser)
    parser.add_argument(
        "--retries", type=values.number, metavar="N", help="tries after the first fails"
    )
    parser.add_argument(
        "--start-within", type=values.duration_ms, metavar="TIME", help="else it expires"
    )
    parser.add_argument("--wait", action="store_true", help="wait for the result and print it")
    parser.add_argument(
        "--timeout", type=values.duration_ms, metavar="TIME", help="longest wait (with --wait)"
    )
    parser.set_defaults(handler=submit)


def _add_keys(parser: FfParser) -> None:
    """Order among others, and uniqueness."""
    parser.add_argument(
        "--serial", metavar="KEY", help="those of one key run one at a time, in their order"
    )
    parser.add_argument(
        "--on-head-failure",
        choices=words_of(HeadFailure),
        default=HeadFailure.NEXT.value,
        help="with --serial: what its failure means to those behind it",
    )
    parser.add_argument(
        "--unique", metavar="KEY", help="one live execution of the kind for each key"
    )
    parser.add_argument(
        "--while",
        dest="unique_while",
        choices=words_of(UniqueWhile),
        help="with --unique: how long an execution has the key (default: unfinished)",
    )
    parser.add_argument(
        "--on-conflict",
        choices=words_of(OnConflict),
        default=OnConflict.EXISTING.value,
        help="with --unique: what becomes of this one while another has the key",
    )
    parser.add_argument(
        "--debounce",
        type=values.duration_ms,
        metavar="TIME",
        help="with --unique: start so long after the last submit",
    )
    parser.add_argument(
        "--debounce-max",
        type=values.duration_ms,
        metavar="TIME",
        help="at the latest so long after the first",
    )


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
            serial_key=arguments.serial,
            on_head_failure=arguments.on_head_failure,
            unique=_unique(arguments),
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


def _unique(arguments: Namespace) -> NewUnique | None:
    if arguments.unique is None:
        for name in ("unique_while", "debounce", "debounce_max"):
            if getattr(arguments, name) is not None:
                option = name.removeprefix("unique_").replace("_", "-")
                raise usage(f"--{option} needs --unique", advice="give --unique KEY")
        return None
    return NewUnique(
        key=arguments.unique,
        while_=arguments.unique_while,
        on_conflict=arguments.on_conflict,
        debounce_ms=arguments.debounce,
        debounce_max_ms=arguments.debounce_max,
    )


def _policy(arguments: Namespace) -> ExecutionPolicy:
    retries = arguments.retries
    return ExecutionPolicy(
        retry_policy=None if not retries else RetryPolicy(max_retries=retries),
        timeout_policy=TimeoutPolicy(start_within_ms=arguments.start_within),
        routing_requirements=RoutingRequirements(required_capabilities=tuple(arguments.needs)),
    )


def _answer(call: Call, reply: Any) -> Exit:
    duplicate = isinstance(reply, Duplicate)
    if call.terminal.as_json:
        call.terminal.document(plain(reply) | {"duplicate": duplicate})
        return Exit.OK
    call.terminal.line(reply.execution_id)
    if isinstance(reply, Existing):
        call.terminal.note("this execution has the unique key: it stands for the submit")
    elif isinstance(reply, Debounced):
        call.terminal.note("this execution has not started: it got these arguments")
    if duplicate:
        call.terminal.note("this key was used before: the execution it made is shown")
    return Exit.OK
