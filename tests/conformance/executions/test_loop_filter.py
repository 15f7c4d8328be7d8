"""A loop restricted to some tenants, or to a tag, moves only their work; the rest stays due."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.config import EngineConfig
from flowfabric.engine import own_work
from flowfabric.engine.own_work import RESCAN_MS, SETTLED_MS, OwnWork
from flowfabric.errors import InvalidInput, InvalidTagKey
from flowfabric.kernel.place.tenants import LoopFilter
from flowfabric.model.flow import TaskKind
from flowfabric.model.state import PublicState
from flowfabric.stores.tables import FLOW_TASKS
from tests.support.budgets import BUDGET, make_budget, report
from tests.support.lab import Lab, scenario
from tests.support.spoiling import busy

A: dict[str, Any] = {"namespace": "a"}
B: dict[str, Any] = {"namespace": "b"}
RED = {"team.colour": "red"}
BLUE = {"team.colour": "blue"}


def restrict(lab: Lab, *namespaces: str, tag: tuple[str, str] | None = None) -> None:
    """The loop of another engine on the same store."""
    lab.direct.own_work = OwnWork(LoopFilter(namespaces, tag))


async def delayed(lab: Lab, **fields: Any) -> str:
    return await lab.create(delay_until=lab.now + 100, **fields)


async def states(lab: Lab, *keys: str) -> list[str]:
    return [(await lab.state(key)).value for key in keys]


@scenario
async def test_only_own_work_is_moved_and_the_rest_stays_due(lab: Lab) -> None:
    await lab.configure(loop_namespaces=("a",))
    foreign, own = await delayed(lab, **B), await delayed(lab, **A)
    lab.clock.advance(100)
    assert await lab.direct.move_due() == 1
    assert await states(lab, foreign, own) == ["delayed", "waiting"]
    assert await lab.direct.move_due() == 0
    assert await lab.direct.move_due(limit=1) == 0
    restrict(lab, "c", "b")
    assert await lab.direct.move_due() == 1
    assert await states(lab, foreign) == ["waiting"]


@scenario
async def test_a_loop_without_a_filter_takes_everything(lab: Lab) -> None:
    both = [await delayed(lab, **A), await delayed(lab, **B)]
    lab.clock.advance(100)
    assert await lab.direct.move_due() == 2
    assert await states(lab, *both) == ["waiting", "waiting"]


@scenario
async def test_a_lost_lease_of_another_tenant_is_not_touched(lab: Lab) -> None:
    restrict(lab, "a")
    keys = [await lab.create(**B), await lab.create(**A)]
    for tenant in (B, A):
        await lab.claim(**tenant)
    lab.clock.advance(60_000)
    await lab.engine.tick()
    assert await states(lab, *keys) == ["active", "waiting"]


@scenario
async def test_foreign_work_in_front_hides_nothing(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_work, "PAGE_MAX", 2)
    restrict(lab, "a")
    foreign = [await delayed(lab, **B) for _ in range(7)]
    own = await delayed(lab, **A)
    lab.clock.advance(100)
    assert await lab.direct.move_due(limit=1) == 1
    assert await states(lab, own, foreign[0]) == ["waiting", "delayed"]


@scenario
async def test_foreign_work_is_no_reason_to_look_again_at_once(lab: Lab) -> None:
    restrict(lab, "a")
    await delayed(lab, **B)
    lab.clock.advance(100)
    assert (await lab.direct.next_due()).due_at is None
    await lab.create(delay_until=lab.now + 500, **A)
    assert (await lab.direct.next_due()).due_at == lab.now + 500
    await lab.create(delay_until=lab.now + 300, **B)
    assert (await lab.direct.next_due()).due_at == lab.now + 500
    lab.clock.advance(500)
    assert (await lab.direct.next_due()).due_at == lab.now
    assert await lab.direct.move_due() == 1
    assert (await lab.direct.next_due()).due_at is None


@scenario
async def test_old_foreign_work_is_stepped_over_once(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_work, "PAGE_MAX", 2)
    restrict(lab, "a")
    foreign = [await delayed(lab, **B) for _ in range(6)]
    lab.clock.advance(100 + SETTLED_MS + 1)
    assert await lab.direct.move_due() == 0
    places: dict[str, Any] = lab.direct.own_work._places
    assert places["ff_exec_due"][0] < lab.now - SETTLED_MS
    own = await delayed(lab, **A)
    lab.clock.advance(100)
    assert await lab.direct.move_due() == 1
    assert await states(lab, own, foreign[-1]) == ["waiting", "delayed"]


@scenario
async def test_work_that_gets_the_tag_later_is_found(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_work, "PAGE_MAX", 1)
    restrict(lab, tag=("team.colour", "red"))
    blue, red = await delayed(lab, tags=BLUE), await delayed(lab, tags=RED)
    plain = await delayed(lab)
    lab.clock.advance(100 + SETTLED_MS + 1)
    assert await lab.direct.move_due() == 1
    assert await states(lab, blue, red, plain) == ["delayed", "waiting", "delayed"]
    await lab.direct.move_due()
    await lab.engine.set_execution_tag(execution_id=blue, key="team.colour", value="red")
    lab.clock.advance(RESCAN_MS)
    assert await lab.direct.move_due() == 1
    assert await states(lab, blue, plain) == ["waiting", "delayed"]


@scenario
async def test_both_parts_of_a_filter_must_agree(lab: Lab) -> None:
    restrict(lab, "a", tag=("team.colour", "red"))
    keys = [await delayed(lab, tags=RED, **B), await delayed(lab, tags=BLUE, **A)]
    own = await delayed(lab, tags=RED, **A)
    lab.clock.advance(100)
    assert await lab.direct.move_due() == 1
    assert await states(lab, own, *keys) == ["waiting", "delayed", "delayed"]


@scenario
async def test_retention_deletes_only_own_executions(lab: Lab) -> None:
    kept, gone, later = [await lab.create(**each) for each in (B, A, A)]
    for key in (kept, gone):
        await lab.cancel(key)
    lab.clock.advance(lab.config.retention_ms)
    await lab.cancel(later)
    restrict(lab, "a")
    assert (await lab.direct.next_due()).due_at == lab.now
    assert await lab.engine.trim_retention() == 1
    assert await lab.engine.trim_retention() == 0
    assert await lab.engine.describe_execution(execution_id=gone) is None
    for key in (kept, later):
        assert await lab.engine.describe_execution(execution_id=key) is not None
    assert (await lab.engine.doctor()).problems == ()
    restrict(lab, "b")
    assert await lab.engine.trim_retention() == 1


@scenario
async def test_deferred_work_of_foreign_flows_is_left(lab: Lab) -> None:
    made = await busy(lab)
    restrict(lab, "a")
    assert await lab.direct.move_due() == 0
    (task,) = (await lab.dump())[FLOW_TASKS.name]
    assert task.kind is TaskKind.CANCEL_SIBLINGS
    restrict(lab, "default")
    assert await lab.direct.move_due() > 0
    assert await lab.state(made.execution_ids["b"]) is PublicState.CANCELLED


@scenario
async def test_a_budget_is_reset_by_every_engine(lab: Lab) -> None:
    """It belongs to no tenant."""
    await make_budget(lab, hard={"a": 10}, reset_interval_ms=1_000)
    await report(lab, {"a": 5})
    restrict(lab, "a")
    lab.clock.advance(1_000)
    assert (await lab.direct.next_due()).due_at == lab.now
    assert await lab.direct.move_due() == 1
    assert (await lab.engine.get_budget_status(budget_id=BUDGET)).usage == {"a": 0}


@pytest.mark.parametrize(
    ("fields", "error", "word"),
    [
        ({"loop_namespaces": "a"}, InvalidInput, "loop_namespaces"),
        ({"loop_namespaces": ("",)}, InvalidInput, "loop_namespaces"),
        ({"loop_namespaces": (5,)}, InvalidInput, "loop_namespaces"),
        ({"loop_tag": ("nodot", "x")}, InvalidTagKey, "loop_tag"),
        ({"loop_tag": "team.colour=red"}, InvalidInput, "loop_tag"),
        ({"loop_tag": ("team.colour",)}, InvalidInput, "loop_tag"),
    ],
)
def test_a_malformed_filter_is_refused(fields: dict[str, Any], error: Any, word: str) -> None:
    with pytest.raises(error, match=word):
        EngineConfig(**fields)
