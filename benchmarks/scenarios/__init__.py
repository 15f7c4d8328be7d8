"""Every scenario of the report: those of `ff bench`, and those that need a checkout."""

from __future__ import annotations

from benchmarks.scenarios import (
    admission,
    backlog,
    cycle,
    flow,
    idle,
    statistics,
    suspend,
    usage,
    wal,
)
from flowfabric.bench import latency, worker
from flowfabric.bench.main import Scenario

SCENARIOS: dict[str, Scenario] = {
    "cycle": cycle.measure,
    "worker": worker.measure,
    "latency": latency.measure,
    "idle": idle.measure,
    "backlog": backlog.measure,
    "usage": usage.measure,
    "admission": admission.measure,
    "suspend": suspend.measure,
    "flow": flow.measure,
    "wal": wal.measure,
    "statistics": statistics.measure,
}
