"""A part of an id finds what it belongs to, on every store."""

from __future__ import annotations

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import FlowNode
from flowfabric.errors import InvalidInput
from flowfabric.ids import new_uuid7s, partition_of
from flowfabric.model.flow_results import FlowSubmitted
from tests.support.lab import Lab, scenario


async def some(lab: Lab, count: int = 5) -> list[str]:
    made = await lab.engine.create_executions([NewExecution(execution_kind="k")] * count)
    return [each.execution_id for each in made]


@scenario
async def test_every_beginning_that_is_unique_finds_its_execution(lab: Lab) -> None:
    ids = await some(lab)
    for each in ids:
        uuid = each[-36:]
        others = [other[-36:] for other in ids if other != each]
        for length in range(4, 37):
            beginning = uuid[:length]
            found = await lab.engine.find_executions(part=beginning)
            if not any(other.startswith(beginning) for other in others):
                assert found == (each,), beginning
            assert each in found


@scenario
async def test_every_end_finds_its_execution_with_or_without_dashes(lab: Lab) -> None:
    for each in await some(lab):
        uuid = each[-36:]
        for length in range(8, 37):
            assert await lab.engine.find_executions(part=uuid[-length:]) == (each,)
        assert await lab.engine.find_executions(part=uuid.replace("-", "")[-20:].upper()) == (each,)


@scenario
async def test_a_part_of_several_ids_finds_them_newest_first(lab: Lab) -> None:
    ids = await some(lab, 12)
    newest_first = tuple(sorted(ids, key=lambda each: each[-36:], reverse=True))
    shared = ids[0][-36:][:9]
    assert await lab.engine.find_executions(part=shared, limit=20) == newest_first
    assert await lab.engine.find_executions(part=shared, limit=3) == newest_first[:3]


@scenario
async def test_a_bare_uuid_finds_its_partition(lab: Lab) -> None:
    """A member of a flow has the partition of its flow, not of its own UUID."""
    nodes = [FlowNode(name=str(n), execution=NewExecution(execution_kind="k")) for n in range(4)]
    made = await lab.engine.submit_flow(flow_kind="f", nodes=nodes)
    assert isinstance(made, FlowSubmitted)
    for wire in made.execution_ids.values():
        assert await lab.engine.find_executions(part=wire[-36:]) == (wire,)
        assert wire.startswith(f"{{fp:{partition_of(made.flow_id)}}}:")


@scenario
async def test_flows_are_found_by_beginning_and_end(lab: Lab) -> None:
    flows = sorted(new_uuid7s(4), reverse=True)
    for flow_id in flows:
        await lab.engine.create_flow(flow_id=flow_id, flow_kind="f", namespace="default")
    for flow_id in flows:
        assert await lab.engine.find_flows(part=flow_id) == (flow_id,)
        assert await lab.engine.find_flows(part=flow_id[-8:]) == (flow_id,)
        assert await lab.engine.find_flows(part=flow_id[-15:]) == (flow_id,)
        assert await lab.engine.find_flows(part=flow_id[:24]) == (flow_id,)
    assert await lab.engine.find_flows(part=flows[0][:9]) == tuple(flows)
    assert await lab.engine.find_flows(part="ffffffff") == ()


@scenario
async def test_text_that_cannot_be_part_of_an_id_is_refused(lab: Lab) -> None:
    for part in ("", "abc", "xyz1", "0" * 33, "{fp:1}", "----", "0193%", "0193_"):
        for find in (lab.engine.find_executions, lab.engine.find_flows):
            with pytest.raises(InvalidInput, match="part: "):
                await find(part=part)
    assert await lab.engine.find_executions(part="0193ffff") == ()


@scenario
async def test_a_count_is_what_the_listing_has(lab: Lab) -> None:
    engine = lab.engine
    for kind, lane in (("a", "x"), ("a", "y"), ("b", "x")):
        await lab.create(kind, lane_id=lane, tags={"team.name": kind})
    lab.clock.advance(1000)
    await lab.create("a", lane_id="x", namespace="other", delay_until=lab.now + 60_000)
    for filters in (
        {},
        {"execution_kind": "a"},
        {"lane_id": "x"},
        {"namespace": "other"},
        {"namespace": "nowhere"},
        {"states": ("waiting",)},
        {"states": ("delayed", "completed")},
        {"tag": ("team.name", "a")},
        {"created_after": lab.now},
        {"created_before": lab.now, "lane_id": "x", "states": ["waiting"]},
    ):
        page = await engine.list_executions(**filters)
        assert await engine.count_listed(**filters) == len(page.items), filters
    assert await engine.count_listed() == 4
    assert [await engine.count_listed(at_most=most) for most in (1, 3, 4, 9)] == [1, 3, 4, 4]
    assert await engine.count_listed(states=["waiting", "completed"], at_most=1) == 1
    with pytest.raises(InvalidInput, match="at_most"):
        await engine.count_listed(at_most=0)


@scenario
async def test_kinds_are_those_ever_created(lab: Lab) -> None:
    for kind, namespace in (("b", "default"), ("a", "default"), ("c", "other")):
        await lab.create(kind, namespace=namespace)
    assert (await lab.engine.list_kinds()).items == ("a", "b", "c")
    assert (await lab.engine.list_kinds(namespace="other")).items == ("c",)
    assert (await lab.engine.list_kinds(namespace="nobody")).items == ()
