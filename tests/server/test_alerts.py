"""What is shipped for Prometheus and Grafana names only what is served, and alerts in time."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.cli import main
from flowfabric.errors import StoreUnavailable
from flowfabric.metrics.catalogue import CATALOGUE
from tests.server.test_metrics import looked, measured, scraped
from tests.support.budgets import make_budget, report
from tests.support.http import Desk
from tests.support.lab import LANE, Lab
from tests.support.rules import FOLDER, named_in, rules
from tests.support.scrape import Scrape
from tests.support.serving import get, serving

DASHBOARD: Final = json.loads((FOLDER / "grafana.json").read_text("utf-8"))
NEEDS_GPU: Final = {"routing_requirements": {"required_capabilities": ["gpu"]}}


class Incident:
    """A server, what goes wrong there, and what its scrapes say."""

    def __init__(self, lab: Lab, desk: Desk, patch: pytest.MonkeyPatch) -> None:
        self.lab = lab
        self.desk = desk
        self.patch = patch
        assert desk.service.metering is not None
        self.metering = desk.service.metering

    async def scrape(self) -> Scrape:
        return await scraped(self.desk)

    async def look(self) -> Scrape:
        return await looked(self.lab, self.desk, self.metering)


async def _waits(on: Incident) -> AsyncGenerator[None, None]:
    await on.lab.create()
    on.lab.clock.advance(400_000)
    await on.look()
    yield
    await on.lab.claim()
    await on.look()


async def _unroutable(on: Incident) -> AsyncGenerator[None, None]:
    await on.lab.create(policy=NEEDS_GPU)
    await on.look()
    yield
    await on.lab.engine.register_worker(
        worker_id="w",
        worker_instance_id="w-1",
        lanes=(LANE,),
        capabilities=("gpu",),
        liveness_ttl_ms=30_000,
    )
    await on.look()


async def _lags(on: Incident) -> AsyncGenerator[None, None]:
    on.patch.setattr(on.desk.service.pulse, "lag_s", lambda: 2.0)
    yield
    on.patch.undo()


async def _loses_leases(on: Incident) -> AsyncGenerator[None, None]:
    for _ in range(11):
        claimed = await on.lab.started()
        await on.lab.after(claimed.lease_expires_at - on.lab.now)
        await on.lab.cancel(claimed.execution_id)
    await on.look()
    yield


async def _errors(on: Incident) -> AsyncGenerator[None, None]:
    async def fails(_: Any) -> Any:
        raise StoreUnavailable("down")

    on.patch.setattr(on.lab.direct.store, "transact", fails)
    for _ in range(6):
        with pytest.raises(StoreUnavailable):
            await on.lab.create()
    yield
    on.patch.undo()


async def _down(on: Incident) -> AsyncGenerator[None, None]:
    async def fails(_: Any) -> Any:
        raise StoreUnavailable("down")

    on.patch.setattr(on.lab.direct, "call", fails)
    await on.metering.figures.turn()
    yield
    on.patch.undo()
    await on.metering.figures.turn()


async def _spent(on: Incident) -> AsyncGenerator[None, None]:
    await make_budget(on.lab, hard={"tokens": 100})
    await report(on.lab, {"tokens": 95})
    await on.look()
    yield
    await on.lab.engine.reset_budget(budget_id="b")
    await on.look()


async def _stuck(on: Incident) -> AsyncGenerator[None, None]:
    later = on.lab.now + 10
    several = [NewExecution(execution_kind="work", delay_until=later) for _ in range(501)]
    await on.lab.engine.create_executions(several)
    on.lab.clock.advance(20)
    await on.look()
    yield
    while await on.lab.engine.tick():
        continue
    await on.look()


async def _behind(on: Incident) -> AsyncGenerator[None, None]:
    on.lab.clock.advance(400_000)
    await on.metering.figures.look()
    yield
    await on.look()


INCIDENTS: Final[dict[str, Callable[[Incident], AsyncGenerator[None, None]]]] = {
    "FlowFabricWorkWaitsTooLong": _waits,
    "FlowFabricNoCapableWorker": _unroutable,
    "FlowFabricEventLoopLags": _lags,
    "FlowFabricLosesLeases": _loses_leases,
    "FlowFabricStoreErrors": _errors,
    "FlowFabricStoreDown": _down,
    "FlowFabricBudgetNearlySpent": _spent,
    "FlowFabricNothingMovesWhatIsDue": _stuck,
    "FlowFabricStatisticsAreBehind": _behind,
}


def test_every_alert_has_its_incident() -> None:
    assert [each.name for each in rules()] == list(INCIDENTS)


@pytest.mark.parametrize("name", INCIDENTS)
def test_an_alert_fires_in_its_incident_and_clears(
    quick: Lab, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (rule,) = [each for each in rules() if each.name == name]

    async def story() -> None:
        desk, metering = await measured(quick)
        on = Incident(quick, desk, monkeypatch)
        await metering.figures.turn()
        calm = await on.look()
        assert rule.fires(calm, calm) == set()
        incident = INCIDENTS[name](on)
        await anext(incident)
        during = await on.scrape()
        assert rule.fires(calm, during)
        await anext(incident, None)
        assert rule.fires(during, await on.scrape()) == set()

    quick.run(story())


def _expressions() -> dict[str, str]:
    """Every expression of the dashboard, by its panel."""
    return {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    }


def test_everything_that_the_dashboard_and_the_alerts_name_is_in_a_scrape(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    assert main(["db", "migrate", "--url", url]) == 0
    with serving(url, folder=tmp_path) as server:
        scrape = Scrape(get(server.told["address"], "/metrics").text)
    labels = {each.name: {*each.labels, "instance", "le"} for each in CATALOGUE}
    for where, expr in {**_expressions(), **{each.name: each.expr for each in rules()}}.items():
        named = named_in(expr)
        assert named, where
        for name in named:
            family = re.sub("_(bucket|sum|count)$", "", name)
            assert name in scrape.kinds or scrape.kinds.get(family) == "histogram", (where, name)
            for group in re.findall(r"by \(([^)]*)\)", expr):
                known = labels[name if name in labels else family]
                assert set(group.split(", ")) <= known, (where, name)
        for each in re.findall(r"\{(\w+)=", expr):
            assert each in labels[re.sub("_(bucket|sum|count)$", "", min(named))], where
    shown = set().union(*map(named_in, _expressions().values()))
    shown = {re.sub("_(bucket|sum|count)$", "", each) for each in shown}
    assert shown == {each.name for each in CATALOGUE}


def test_the_dashboard_has_its_panels_side_by_side() -> None:
    places = [tuple(panel["gridPos"].values()) for panel in DASHBOARD["panels"]]
    assert len(places) >= 14
    assert len(set(places)) == len(places)
    assert [panel["id"] for panel in DASHBOARD["panels"]] == list(range(1, len(places) + 1))
