"""How state machines are run, and how a corner of one is visited more often."""

from __future__ import annotations

import inspect
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RULE_MARKER, run_state_machine_as_test

from tests.property.budget import budget
from tests.property.histories import Histories

STEPS = budget("FF_PARITY_STEPS", 30)
SEEDS = range(5)  # the rarest planted fault is missed by one seed in ten, never by all


def try_histories(machine: Any, histories: int, *, shrink: bool = True) -> None:
    """Run a state machine so many times; a failure is shrunk and printed as a program."""
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=histories,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            phases=phases,
            report_multiple_bugs=False,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def is_noticed(machine: Any, histories: int = 400) -> bool:
    """Whether some history fails. Always the same histories, so that luck decides nothing."""
    for number in SEEDS:
        try:
            try_histories(seed(number)(machine), histories, shrink=False)
        except AssertionError:
            return True
    return False


def only(machine: type[Histories], rules: str) -> type[Histories]:
    """The same machine with fewer rules: what they do to each other is found sooner."""
    members = inspect.getmembers(machine)
    unwanted = {name: None for name, value in members if hasattr(value, RULE_MARKER)}
    unwanted["furnish"] = None
    for name in rules.split():
        del unwanted[name]
    return type("Only", (machine,), unwanted)
