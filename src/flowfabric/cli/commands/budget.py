"""`ff budget`: spending limits and usage."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Any, Final

from flowfabric.api.backend import EngineBackend
from flowfabric.cli import values
from flowfabric.cli.asking import add_asking
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit, usage
from flowfabric.cli.grammar import FfParser, add_action, add_actions, words_of
from flowfabric.cli.references import execution_of, flow_of
from flowfabric.cli.show.bars import Gauge, painted
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column, clean
from flowfabric.cli.show.times import both, relative, span
from flowfabric.errors import InvalidInput
from flowfabric.model.budget import (
    BudgetAlreadySatisfied,
    BudgetPolicy,
    BudgetStatus,
    EnforcementMode,
    HardAction,
    ScopeType,
    SoftAction,
)
from flowfabric.sdk.limits import all_budgets, check_raise, read_scope

_DIMENSION_COLUMNS: Final = (
    Column("DIMENSION"),
    Column("USAGE", shrinks=True),
    Column("USED", right=True),
    Column("HELD", right=True),
    Column("SOFT", right=True),
    Column("HARD", right=True),
)
_COLUMNS: Final = (
    Column("BUDGET"),
    *_DIMENSION_COLUMNS,
    Column("ON HARD"),
    Column("RESETS", shrinks=True),
)


def add_arguments(parser: FfParser) -> None:
    """The actions; without one it lists."""
    parser.set_defaults(handler=ls)
    actions = add_actions(parser)
    creating = add_action(actions, "create", create, "put a budget in force")
    _add_name(creating)
    creating.add_argument(
        "--scope", metavar="SCOPE", help="lane:L, namespace:N, execution:ID or flow:ID"
    )
    _add_policy(creating)
    add_action(actions, "ls", ls, "list budgets with their usage")
    _add_name(add_action(actions, "show", show, "one budget: limits, usage, breaches"))
    changing = add_action(actions, "set", change, "change limits and what they do; 0 lifts one")
    _add_name(changing)
    _add_policy(changing)
    raising = add_action(actions, "raise", increase, "raise hard limits")
    _add_name(raising)
    raising.add_argument(
        "limits",
        nargs="+",
        type=values.raised,
        metavar="DIMENSION=N",
        help="the new limit, or +N for so much more",
    )
    _add_name(add_action(actions, "reset", reset, "count from zero again"))
    add_asking(actions)


def _add_policy(parser: FfParser) -> None:
    for option, text in (("--hard", "never more than this"), ("--soft", "tell from here on")):
        parser.add_argument(
            option,
            action="append",
            default=[],
            type=values.limit,
            metavar="DIMENSION=N",
            help=f"{text} (repeat)",
        )
    parser.add_argument(
        "--on-hard", choices=words_of(HardAction), help="at a hard limit (default: block)"
    )
    parser.add_argument(
        "--on-soft", choices=words_of(SoftAction), help="over a soft limit (default: warn)"
    )
    parser.add_argument(
        "--mode", choices=words_of(EnforcementMode), help="advisory: hard limits only warn"
    )
    parser.add_argument(
        "--every", type=values.duration_ms, metavar="TIME", help="reset by itself; 0 for never"
    )


def _add_name(parser: FfParser) -> None:
    parser.add_argument("name", metavar="NAME")


async def ls(call: Call) -> Exit:
    """Every budget, a line for each of its dimensions."""
    async with call.engine() as engine:
        found = await all_budgets(engine)
        now = await engine.server_time_ms()
    if call.terminal.as_json:
        call.terminal.document(plain(found))
    elif not found:
        call.terminal.note("no budgets yet: ff budget create NAME --hard tokens=1000")
    else:
        rows = [
            (status.budget_id, *line, _policy(status).on_hard_limit.value, _resets(status, now))
            for status in found
            for line in _lines(status, drawn=call.terminal.is_tty) or [("-", *[""] * 5)]
        ]
        call.terminal.table(_COLUMNS, rows)
    return Exit.OK


async def show(call: Call) -> Exit:
    """One budget."""
    async with call.engine() as engine:
        status = await engine.get_budget_status(budget_id=call.arguments.name)
        now = await engine.server_time_ms()
    if call.terminal.as_json:
        call.terminal.document(plain(status))
    else:
        _show(call, status, now)
    return Exit.OK


async def create(call: Call) -> Exit:
    """Put a budget in force; the same again changes nothing."""
    arguments = call.arguments
    hard, soft = _limits(arguments.hard, "--hard"), _limits(arguments.soft, "--soft")
    dimensions = sorted({*hard, *soft})
    scope_type, scope_id = _scope(arguments.scope)
    async with call.engine(creates=True) as engine:
        if scope_type is ScopeType.EXECUTION:
            scope_id = await execution_of(call, engine, scope_id)
        elif scope_type is ScopeType.FLOW:
            scope_id = await flow_of(call, engine, scope_id)
        reply = await engine.create_budget(
            budget_id=arguments.name,
            dimensions=dimensions,
            hard_limits=[hard.get(each, 0) for each in dimensions],
            soft_limits=[soft.get(each, 0) for each in dimensions],
            scope_type=scope_type,
            scope_id=scope_id,
            enforcement_mode=arguments.mode or "strict",
            on_hard_limit=arguments.on_hard or "block",
            on_soft_limit=arguments.on_soft or "warn",
            reset_interval_ms=arguments.every or 0,
        )
        what = "exists already" if isinstance(reply, BudgetAlreadySatisfied) else "created"
        return await _answer(call, engine, what)


def _scope(text: str | None) -> tuple[ScopeType, str]:
    """`lane:gpu` in its parts; of an execution or a flow the typed reference."""
    scope_type, scope_id = read_scope(text)
    if scope_type not in (ScopeType.EXECUTION, ScopeType.FLOW):
        return scope_type, scope_id
    try:
        return scope_type, values.reference(scope_id)
    except ArgumentTypeError as error:
        raise usage(f"--scope: {error}", advice="see ff budget create --help") from None


async def change(call: Call) -> Exit:
    """Change limits and their effects."""
    arguments = call.arguments
    hard, soft = _limits(arguments.hard, "--hard"), _limits(arguments.soft, "--soft")
    words: dict[str, Any] = {
        "hard_limits": hard or None,
        "soft_limits": soft or None,
        "enforcement_mode": arguments.mode,
        "on_hard_limit": arguments.on_hard,
        "on_soft_limit": arguments.on_soft,
        "reset_interval_ms": arguments.every,
    }
    if all(value is None for value in words.values()):
        raise usage("nothing to change", advice="see ff budget set --help")
    async with call.engine() as engine:
        await engine.update_budget(budget_id=arguments.name, **words)
        return await _answer(call, engine, "changed")


async def increase(call: Call) -> Exit:
    """Higher hard limits; executions that wait for room continue at once."""
    name = call.arguments.name
    async with call.engine() as engine:
        status = await engine.get_budget_status(budget_id=name)
        old = _policy(status).hard_limits
        hard = {
            dimension: amount + (old.get(dimension, 0) if is_more else 0)
            for dimension, (is_more, amount) in _limits(call.arguments.limits, "").items()
        }
        try:
            check_raise(status, hard)
        except InvalidInput as error:
            advice = f"ff budget set {name} --hard lowers and adds limits"
            raise usage(error.detail.partition(";")[0], advice=advice) from None
        await engine.update_budget(budget_id=name, hard_limits=hard)
        return await _answer(call, engine, "raised")


async def reset(call: Call) -> Exit:
    """Count from zero."""
    async with call.engine() as engine:
        await engine.reset_budget(budget_id=call.arguments.name)
        return await _answer(call, engine, "reset")


async def _answer(call: Call, engine: EngineBackend, what: str) -> Exit:
    """The budget as it is now."""
    status = await engine.get_budget_status(budget_id=call.arguments.name)
    now = await engine.server_time_ms()
    if call.terminal.as_json:
        call.terminal.document(plain(status))
    else:
        call.terminal.note(f"budget {clean(status.budget_id)}: {what}")
        _show(call, status, now)
    return Exit.OK


def _show(call: Call, status: BudgetStatus, now: int) -> None:
    terminal, policy = call.terminal, _policy(status)
    gauges = list(gauges_of(status).values())
    word, style = "open", "green"
    if any(gauge.is_full for gauge in gauges):
        word, style = "full", "red"
    elif any(gauge.is_over_soft for gauge in gauges):
        word, style = "over its soft limit", "yellow"
    name = terminal.paint(clean(status.budget_id), "bold")
    terminal.line(f"{name}  {terminal.paint(word, style)}")
    terminal.facts([(label, clean(text)) for label, text in _facts(status, policy, now) if text])
    lines = _lines(status, drawn=terminal.is_tty)
    if lines:
        terminal.line()
        terminal.table(_DIMENSION_COLUMNS, lines)


def _facts(status: BudgetStatus, policy: BudgetPolicy, now: int) -> list[tuple[str, str]]:
    scope = policy.scope_type.value
    if policy.scope_type is not ScopeType.FREE:
        scope = f"{scope} {policy.scope_id}"
    last = ""
    if status.last_breach_at is not None:
        last = f"{status.last_breach_dim}, {both(status.last_breach_at, now)}"
    every = span(policy.reset_interval_ms) if policy.reset_interval_ms else ""
    return [
        ("scope", "free: whatever names it" if policy.scope_type is ScopeType.FREE else scope),
        ("mode", policy.enforcement_mode.value),
        ("on hard", policy.on_hard_limit.value),
        ("on soft", policy.on_soft_limit.value),
        ("resets", f"every {every}, {both(status.next_reset_at, now)}" if every else ""),
        ("was reset", both(status.last_reset_at, now)),
        ("breaches", f"{status.breach_count} hard, {status.soft_breach_count} soft"),
        ("last", last),
        ("allowed", _allowed(status)),
    ]


def _allowed(status: BudgetStatus) -> str:
    """Allowances that people gave in this period, beyond the limits."""
    hard = [f"{name} {amount} beyond hard" for name, amount in sorted(status.allowed.items())]
    soft = [f"{name} {amount} beyond soft" for name, amount in sorted(status.soft_allowed.items())]
    return ", ".join((*hard, *soft))


def gauges_of(status: BudgetStatus) -> dict[str, Gauge]:
    """Every dimension that is limited or used."""
    policy = _policy(status)
    names = sorted({*policy.hard_limits, *policy.soft_limits, *status.usage, *status.held})
    return {
        name: Gauge(
            used=status.usage.get(name, 0),
            held=status.held.get(name, 0),
            hard=policy.hard_limits.get(name, 0),
            soft=policy.soft_limits.get(name, 0),
        )
        for name in names
    }


def _lines(status: BudgetStatus, *, drawn: bool) -> list[tuple[object, ...]]:
    return [
        (
            name,
            painted(gauge, drawn=drawn),
            gauge.used,
            gauge.held,
            gauge.soft or "-",
            gauge.hard or "-",
        )
        for name, gauge in gauges_of(status).items()
    ]


def _resets(status: BudgetStatus, now: int) -> str:
    return relative(status.next_reset_at, now)


def _policy(status: BudgetStatus) -> BudgetPolicy:
    return status.policy or BudgetPolicy()


def _limits(pairs: list[tuple[str, Any]], option: str) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for name, value in pairs:
        if name in limits:
            raise usage(f"{option} {name} is given twice".strip(), advice="give each once")
        limits[name] = value
    return limits
