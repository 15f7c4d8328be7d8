"""kill -9 of the engines that move a bulk operation: each execution is acted on exactly once.

FF_CHAOS_KILLS=200 at night.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowfabric import limits
from flowfabric.api.executions import NewExecution
from flowfabric.assemble import open_engine
from flowfabric.clock import monotonic
from flowfabric.config import EngineConfig
from flowfabric.model.bulk import BulkOperation, BulkState
from flowfabric.model.event import OperatorEventType
from tests.chaos.processes import PATIENCE_S, crew
from tests.chaos.verdict import check_store
from tests.property.budget import budget

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

KEEPER = "tests.chaos.keeper_process"
KILLS = budget("FF_CHAOS_KILLS", 3)
EXECUTIONS = limits.OPERATION_PIECE * 2 * (KILLS + 1)


@pytest.fixture(params=("sqlite", "postgres"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'chaos.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as each:
        yield each


def test_an_operation_outlives_its_engines(url: str, runner: asyncio.Runner) -> None:
    engine = open_engine(url, config=EngineConfig(loops=False, pool_size=2))
    runner.run(engine.start(migrate=True))
    for _ in range(0, EXECUTIONS, 1_000):
        many = min(1_000, EXECUTIONS)
        runner.run(engine.create_executions([NewExecution(execution_kind="work")] * many))
    begun = runner.run(engine.start_operation(action="cancel", reason="enough", actor="ada"))
    assert isinstance(begun, BulkOperation)

    def look() -> BulkOperation:
        found = runner.run(engine.describe_operation(operation_id=begun.operation_id))
        assert found is not None
        return found

    seen, kills, deadline = 0, 0, monotonic() + PATIENCE_S
    with crew(url) as keepers:
        hired = [keepers.hire("keep", KEEPER) for _ in range(2)]
        while not look().is_over:
            assert monotonic() < deadline, f"in vain: {look()}"
            keepers.listen(0.01)
            if kills < KILLS and (now := look().handled) > seen:
                seen, kills = now, kills + 1
                for each in hired:  # in the middle of a piece, mostly
                    keepers.kill(each)
                hired = [keepers.hire("keep", KEEPER) for _ in range(2)]
    dump = runner.run(engine.store.dump())
    audit = runner.run(engine.doctor())
    ended = look()
    runner.run(engine.close())

    number = len(dump["executions"])
    assert kills == KILLS
    assert (ended.state, ended.matched, ended.done) == (BulkState.DONE, number, number)
    assert (ended.unchanged, ended.refused) == (0, {})
    events = Counter((each.event_type, each.subject) for each in dump["operator_events"])
    assert set(events.values()) == {1}, "each is acted on once"
    cancels = [kind for kind, _ in events if kind is OperatorEventType.CANCELLED]
    assert (len(cancels), len(dump["completion_events"])) == (number, number)
    assert {each.public_state.value for each in dump["executions"]} == {"cancelled"}
    of_it = {each.details.get("operation_id") for each in dump["operator_events"]}
    assert of_it == {None, begun.operation_id}  # none: those of the operation itself
    check_store(dump)
    assert audit.problems == ()
