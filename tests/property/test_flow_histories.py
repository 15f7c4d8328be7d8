"""What is true of flows at every moment of a random history, replays and children included.

Judged from the records alone, with no rule of the kernel, so that a wrong rule is noticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from flowfabric.model.record import replace
from flowfabric.model.state import PublicState
from flowfabric.stores.tables import FLOW_TASKS
from tests.property.budget import budget
from tests.property.flow_checks import (
    check_ends,
    check_fired_once,
    check_flows,
    check_sibling_cancels,
)
from tests.property.flowing import WholeFlowHistories
from tests.property.machines import only, try_histories
from tests.property.mint import SWITCH
from tests.property.seat import CONFIG, Seat

Dump = dict[str, list[Any]]
HISTORIES = budget("FF_PARITY_HISTORIES", 40)
LONG_MS = 1_000_000_000
ENDS = (
    PublicState.COMPLETED,
    PublicState.FAILED,
    PublicState.CANCELLED,
    PublicState.EXPIRED,
    PublicState.SKIPPED,
)


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as each:
        yield each


@pytest.fixture(autouse=True)
def minted(monkeypatch: pytest.MonkeyPatch) -> None:
    SWITCH.install(monkeypatch)


class Watched(WholeFlowHistories):
    """A history on the memory store, looked at after every step; nothing is swept or purged."""

    horizon_ms = 1_000_000

    def __init__(self, runner: asyncio.Runner) -> None:
        self.before: Dump = {}
        config = replace(CONFIG, retention_ms=LONG_MS, event_retention_ms=LONG_MS)
        super().__init__(runner, (Seat("memory://", config),))

    def dump(self) -> Dump:
        return self.runner.run(self.seats[0].engine.store.dump())

    def after_step(self) -> None:
        dump = self.dump()
        check_flows(dump, self.now)
        check_fired_once(self.before, dump)
        check_sibling_cancels(self.before, dump)
        check_ends(dump)
        self.before = dump

    def teardown(self) -> None:
        """Later everything owed is done."""
        try:
            for _ in range(20):
                self.move_clocks(self.now + 60_000)
                self.do(lambda seat: seat.engine.tick())
            assert not self.before[FLOW_TASKS.name]
            report = self.runner.run(self.seats[0].engine.doctor())
            said = [each for each in report.problems if each.code == "flows"]
            assert not [each for each in said if "nobody will cancel it" not in each.detail]
        finally:
            super().teardown()


CORNERS = {
    "ends": "submit_flow work_off claim complete fail cancel cascade resolve_edge small_tick tick "
    "tick_at_deadline",
    "built in steps": "create_flow add_new add_again stage apply_edge add_dependency set_policy "
    "work_off claim complete fail cancel tick resolve_edge cascade cancel_flow",
    "replays": "submit_flow work_off cancel replay replay_all small_tick tick tick_at_deadline "
    "stage apply_edge hold_or_release",
    "cancels": "submit_flow create_flow add_new work_off claim cancel_flow cancel_header "
    "cancel_member replay small_tick tick tick_at_deadline spawn wait_children",
    "children": "create submit_flow claim work_off spawn wait_children complete fail cancel replay "
    "replay_all revoke add_dependency add_new small_tick tick tick_at_deadline",
}


@pytest.mark.parametrize("corner", CORNERS)
def test_flows_at_every_step(corner: str, runner: asyncio.Runner) -> None:
    machine: Any = only(Watched, CORNERS[corner])
    try_histories(lambda: machine(runner), HISTORIES)


def test_flows_at_every_step_of_anything(runner: asyncio.Runner) -> None:
    try_histories(lambda: Watched(runner), HISTORIES)
