"""`ff submit`: submit work."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from flowfabric.api.executions import NewUnique
from flowfabric.cli import values
from flowfabric.cli.advice import kinds
from flowfabric.cli.call import Call
from flowfabric.cli.exits import CommandFailed, Exit, usage
from flowfabric.cli.grammar import FfParser, add_list, words_of
from flowfabric.cli.new_work import add_work_options, fields_of_work, payload_of, policy_of_work
from flowfabric.cli.show.executions import show_result
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import clean
from flowfabric.cli.watching import watch
from flowfabric.errors import WaitTimeout
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
    add_work_options(parser)
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--delay", type=values.duration_ms, metavar="TIME", help="start in 10m")
    begin.add_argument(
        "--start-at", type=values.instant, metavar="WHEN", help="not before 2026-11-16T08:00"
    )
    _add_keys(parser)
    parser.add_argument("--wait", action="store_true", help="wait for the result and print it")
    parser.add_argument(
        "--timeout", type=values.duration_ms, metavar="TIME", help="longest wait (with --wait)"
    )
    parser.set_defaults(handler=submit)


def _add_keys(parser: FfParser) -> None:
    """Order among others, and uniqueness."""
    parser.add_argument(
        "--fair", metavar="KEY", help="those of one key share the lane with those of others"
    )
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
    payload = payload_of(arguments.payload)
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
            execution_kind=arguments.kind,
            input_payload=payload,
            payload_encoding="json",
            creator_identity="ff",
            idempotency_key=arguments.key,
            fair_key=arguments.fair,
            serial_key=arguments.serial,
            on_head_failure=arguments.on_head_failure,
            unique=_unique(arguments),
            policy=policy_of_work(arguments),
            delay_until=arguments.start_at,
            **fields_of_work(arguments),
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
