"""`ff quota`: how many may start per window and run at once."""

from __future__ import annotations

from typing import Final

from flowfabric.api.backend import EngineBackend
from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit, usage
from flowfabric.cli.grammar import FfParser, add_action, add_actions
from flowfabric.cli.show.bars import Gauge, painted
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column, clean
from flowfabric.cli.show.times import span
from flowfabric.model.bounds import DEFAULT_DIMENSION
from flowfabric.model.quota import QuotaAlreadySatisfied, QuotaPolicy, QuotaStatus
from flowfabric.sdk.limits import all_quotas, window_seconds

_COLUMNS: Final = (Column("QUOTA"), Column("STARTS"), Column("AT ONCE"), Column("JITTER"))
_KEY_COLUMNS: Final = (
    Column("KEY"),
    Column("RUNNING", right=True),
    Column("OF PLACES", shrinks=True),
    Column("STARTED", right=True),
    Column("OF STARTS", shrinks=True),
)


def add_arguments(parser: FfParser) -> None:
    """The actions; without one it lists."""
    parser.set_defaults(handler=ls)
    actions = add_actions(parser)
    for name, handler, text in (
        ("create", create, "put a quota in force"),
        ("set", change, "change limits; 0 lifts one"),
    ):
        one = add_action(actions, name, handler, text)
        _add_name(one)
        one.add_argument("--starts", type=values.number, metavar="N", help="starts per window")
        one.add_argument(
            "--per", type=values.duration_ms, metavar="TIME", help="the window (default: 1m)"
        )
        one.add_argument("--at-once", type=values.number, metavar="N", help="running at once")
        one.add_argument(
            "--jitter", type=values.duration_ms, metavar="TIME", help="spread those told to wait"
        )
    add_action(actions, "ls", ls, "list quotas")
    _add_name(add_action(actions, "show", show, "one quota, and what each key uses of it"))


def _add_name(parser: FfParser) -> None:
    parser.add_argument("name", metavar="NAME")


async def ls(call: Call) -> Exit:
    """Every quota."""
    async with call.engine() as engine:
        found = await all_quotas(engine)
    if call.terminal.as_json:
        call.terminal.document(plain(found))
    elif not found:
        call.terminal.note("no quotas yet: ff quota create NAME --starts 30 --per 10s")
    else:
        rows = [
            (policy.quota_policy_id, _starts(policy), _places(policy), _jitter(policy) or "-")
            for policy in found
        ]
        call.terminal.table(_COLUMNS, rows)
    return Exit.OK


async def show(call: Call) -> Exit:
    """One quota, a line for each key that uses it."""
    async with call.engine() as engine:
        return await _answer(call, engine, "")


async def create(call: Call) -> Exit:
    """Put a quota in force; the same again changes nothing."""
    arguments = call.arguments
    async with call.engine(creates=True) as engine:
        reply = await engine.create_quota_policy(
            quota_policy_id=arguments.name,
            window_seconds=60 if arguments.per is None else window_seconds(arguments.per / 1000),
            max_requests_per_window=arguments.starts or 0,
            max_concurrent=arguments.at_once or 0,
            jitter_ms=arguments.jitter or 0,
        )
        what = "exists already" if isinstance(reply, QuotaAlreadySatisfied) else "created"
        return await _answer(call, engine, what)


async def change(call: Call) -> Exit:
    """Change limits; executions that wait for the quota are checked at once."""
    arguments = call.arguments
    given = (arguments.per, arguments.starts, arguments.at_once, arguments.jitter)
    if all(value is None for value in given):
        raise usage("nothing to change", advice="see ff quota set --help")
    async with call.engine() as engine:
        await engine.update_quota_policy(
            quota_policy_id=arguments.name,
            window_seconds=None if arguments.per is None else window_seconds(arguments.per / 1000),
            max_requests_per_window=arguments.starts,
            max_concurrent=arguments.at_once,
            jitter_ms=arguments.jitter,
        )
        return await _answer(call, engine, "changed")


async def _answer(call: Call, engine: EngineBackend, what: str) -> Exit:
    """The quota as it is now."""
    status = await engine.get_quota_status(quota_policy_id=call.arguments.name)
    if call.terminal.as_json:
        call.terminal.document(plain(status))
        return Exit.OK
    name = clean(status.policy.quota_policy_id)
    if what:
        call.terminal.note(f"quota {name}: {what}")
    _show(call, status)
    return Exit.OK


def _show(call: Call, status: QuotaStatus) -> None:
    terminal, policy = call.terminal, status.policy
    terminal.line(terminal.paint(clean(policy.quota_policy_id), "bold"))
    facts = [
        ("starts", _starts(policy)),
        ("at once", _places(policy)),
        ("jitter", _jitter(policy)),
    ]
    terminal.facts([(label, text) for label, text in facts if text])
    if not status.gates:
        return
    terminal.line()
    drawn = terminal.is_tty
    rows = [
        (
            "(no key)" if gate.dimension == DEFAULT_DIMENSION else gate.dimension,
            gate.active,
            painted(Gauge(used=gate.active, hard=policy.active_concurrency_cap), drawn=drawn),
            gate.in_window,
            painted(Gauge(used=gate.in_window, hard=policy.max_requests_per_window), drawn=drawn),
        )
        for gate in status.gates
    ]
    terminal.table(_KEY_COLUMNS, rows)


def _starts(policy: QuotaPolicy) -> str:
    if not policy.max_requests_per_window:
        return "any"
    return f"{policy.max_requests_per_window} per {span(policy.window_ms)}"


def _places(policy: QuotaPolicy) -> str:
    return str(policy.active_concurrency_cap or "any")


def _jitter(policy: QuotaPolicy) -> str:
    return f"up to {span(policy.jitter_ms)}" if policy.jitter_ms else ""
