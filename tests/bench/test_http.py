"""The measures of a server: what is counted is what happened."""

from __future__ import annotations

import pytest

from flowfabric.bench import crowds, routing
from flowfabric.bench.databases import open_databases


@pytest.mark.slow
def test_waiting_workers_readers_and_memory_are_measured() -> None:
    with open_databases("sqlite", None) as databases:
        idle = crowds.idle_workers(databases, 5, 0.2)
        assert idle["workers"] == 5
        assert idle["store_calls_per_s"] >= 0
        read = crowds.event_readers(databases, 3, 0.2)
        assert (read["readers"], read["events"] % 10) == (3, 0)
        assert read["p50_ms"] >= 0
        used = crowds.memory(databases, 0.3)
        assert used["executions"] > 0
        assert used["first_mib"] > 0


def test_a_route_costs_something_beside_a_bare_application() -> None:
    assert routing.ratio_to_bare(20, 1) > 0.5
