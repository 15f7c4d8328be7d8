"""`ff bench`: one scenario, one store, one object."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from flowfabric.bench import (
    cycle,
    durable,
    events,
    http,
    latency,
    order,
    schedules,
    single,
    sleepers,
    stream,
    worker,
)
from flowfabric.bench.databases import open_databases
from flowfabric.bench.measurement import Measurement, MeasurementFailed
from flowfabric.errors import InvalidInput
from flowfabric.model.record import to_json

Scenario = Callable[..., Measurement]

SCENARIOS: dict[str, Scenario] = {
    "cycle": cycle.measure,
    "worker": worker.measure,
    "latency": latency.measure,
    "single": single.measure,
    "stream": stream.measure,
    "events": events.measure,
    "durable": durable.measure,
    "http": http.measure,
    "schedules": schedules.measure,
    "sleepers": sleepers.measure,
    "order": order.measure,
}


def run(
    scenario: str,
    store: str = "sqlite",
    n: int | None = None,
    url: str | None = None,
    *,
    as_json: bool = False,
    among: Mapping[str, Scenario] = SCENARIOS,
) -> int:
    """Measure and print; 0, or 1 when the figure cannot be trusted."""
    try:
        found = measure(scenario, store, n=n, url=url, among=among)
    except MeasurementFailed as error:
        sys.stderr.write(f"{scenario} on {store}: {error}\n")
        return 1
    text = to_json(found).decode() if as_json else _readable(found)
    sys.stdout.write(f"{text}\n")
    return 0


def measure(
    scenario: str,
    store: str,
    *,
    n: int | None = None,
    url: str | None = None,
    among: Mapping[str, Scenario] = SCENARIOS,
) -> Measurement:
    """One scenario on fresh databases beside `url`, or on temporary ones."""
    if scenario not in among:
        raise InvalidInput(f"scenario: one of {', '.join(among)}", field="scenario")
    with open_databases(store, url) as databases:
        return among[scenario](databases, n)


_UNITS = {"throughput_per_s": "/s", "floor_per_s": "/s", "ratio_to_floor": ""}


def _readable(found: Measurement) -> str:
    """A line per figure, then how it was measured."""
    lines = [f"{found.scenario} on {found.store}, n = {found.n:,}"]
    for name, value in found.to_dict().items():
        if isinstance(value, float):
            unit = _UNITS.get(name, " ms")
            lines.append(f"  {name:<18}{value:>12,.2f}{unit}")
    for part in (found.settings, found.extra):
        lines += [f"  {name}: {value}" for name, value in part.items()]
    return "\n".join(lines)
