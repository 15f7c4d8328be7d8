"""The pages of flows: the list, a flow drawn node by node, folded, and what is done to one."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import quote

import pytest

from flowfabric.model.feed import EventKind
from flowfabric.model.flow import OnSatisfied, Quorum
from flowfabric.server.routes.values import path_id
from flowfabric.server.streams.watches import topics_of
from flowfabric.server.ui.views.flow import flow_of
from flowfabric.server.ui.views.flow_address import asked_of
from tests.support.flows import Graph, arrows, edge, node, pump, submit
from tests.support.following import Follower
from tests.support.http import Desk
from tests.support.lab import Lab, scenario
from tests.support.pages import Document, sent, shown

CANCEL = OnSatisfied.CANCEL_REMAINING
HOSTILE = "<script>alert(1)</script>\"'&amp;\x1b[31m\u202egnp."
NAME = HOSTILE.replace("\x1b", "")  # a name has no control characters


@pytest.fixture
def lab(quick: Lab) -> Lab:
    """In memory: the store is not the point."""
    return quick


def text_of(page: Document) -> str:
    return " ".join(" ".join(page.texts).split())


def drawn(page: Document) -> list[str]:
    """What each box says, from its name to its line."""
    boxes = [each for each in page.all("a") if "g-box" in each.attributes.get("class", "")]
    return [" ".join(each.text.split()) for each in boxes]


def address(graph: Graph, **query: str) -> str:
    pairs = "&".join(f"{name}={quote(value)}" for name, value in query.items())
    return f"/ui/flows/{graph.flow_id}{'?' if pairs else ''}{pairs}"


async def wide(lab: Lab, size: int = 210) -> Graph:
    names = [f"page{at:03}" for at in range(size)]
    return await submit(
        lab,
        [node("begin", kind="list"), *(node(each, kind="fetch") for each in names), node("end")],
        [*(edge("begin", each) for each in names), *(edge(each, "end") for each in names)],
    )


# --- the list ----------------------------------------------------------------------------------


@scenario
async def test_flows_are_listed_newest_first_and_filtered_by_their_address(lab: Lab) -> None:
    desk = Desk(lab.engine)
    page = await shown(desk, "/ui/flows")
    assert "No flows yet" in text_of(page)
    done = await submit(lab, "a", flow_kind="import")
    await done.complete("a")
    live = await submit(lab, "ab", flow_kind="deploy")
    page = await shown(desk, "/ui/flows")
    rows = [each.attributes["data-id"] for each in page.all("tr") if "data-id" in each.attributes]
    assert rows == [live.flow_id, done.flow_id]
    assert "1/1" in text_of(page)
    page = await shown(desk, "/ui/flows?status=completed")
    assert "deploy" not in text_of(page)
    assert "import" in text_of(page)
    page = await shown(desk, "/ui/flows?status=failed")
    assert "No flow fits" in text_of(page)
    assert "deploy" in text_of(await shown(desk, "/ui/flows?status=nonsense"))


@scenario
async def test_a_long_list_of_flows_has_pages(lab: Lab) -> None:
    desk = Desk(lab.engine)
    for _ in range(51):
        await lab.engine.create_flow()
    page = await shown(desk, "/ui/flows")
    (following,) = [a["href"] for t, a in page.elements if a.get("rel") == "next"]
    page = await shown(desk, following)
    assert len([each for each in page.all("tr") if "data-id" in each.attributes]) == 1


@scenario
async def test_a_caller_of_several_namespaces_sees_one_and_chooses(lab: Lab) -> None:
    for name in "abc":
        await lab.engine.create_flow(flow_kind=f"of-{name}", namespace=name)
    made = await lab.engine.create_access_token(name="x", scopes=("read",), namespaces=("a", "b"))
    bearer = {"Authorization": f"Bearer {made.token.reveal()}"}
    desk = Desk(lab.engine)
    for path, kind in (("/ui/flows", "of-a"), ("/ui/flows?namespace=b", "of-b")):
        page = await shown(desk, path, headers=bearer)
        assert [each.text for each in page.all("b") if each.text.startswith("of-")] == [kind]
        assert [each.text for each in page.all("a") if each.text in "abc"] == ["a", "b"]
    await shown(desk, "/ui/flows?namespace=c", 403, headers=bearer)


# --- a flow node by node -----------------------------------------------------------------------


@scenario
async def test_a_flow_says_how_far_it_is_and_draws_its_nodes(lab: Lab) -> None:
    graph = await submit(lab, "abcd", arrows("a>b>d", "a>c>d"), flow_kind="deploy")
    await graph.complete("a")
    await graph.start("b", "c")
    await graph.fail("c")
    desk = Desk(lab.engine)
    page = await shown(desk, address(graph))
    assert "3/4 ended" in text_of(page)  # the failure has the last one skipped
    assert "1 running, 1 failed." in text_of(page)
    said = drawn(page)
    assert any("✕cfailed" in each for each in said), said
    assert any("↷dskipped · c failed" in each for each in said), said
    assert "Critical path a → b" in text_of(page)
    texts = text_of(await shown(desk, address(graph, tab="list")))
    assert "it broke" in texts
    page = await shown(desk, address(graph, tab="waterfall"))
    rows = [each for each in page.all("a") if "g-row" in each.attributes.get("class", "")]
    assert len(rows) == 4


@scenario
async def test_the_data_of_a_drawing_tells_what_each_node_waits_for(lab: Lab) -> None:
    graph = await submit(lab, "abcd", arrows("a>d", "b>d", "c>d"))
    page = await shown(Desk(lab.engine), address(graph))
    rows = [" ".join(each.text.split()) for each in page.all("tr")]
    assert any(each.startswith("d") and "a, b, c" in each for each in rows), rows


@scenario
async def test_a_quorum_shows_who_won_and_who_was_not_needed(lab: Lab) -> None:
    graph = await submit(
        lab,
        ["m1", "m2", "m3", node("race", Quorum(2, CANCEL))],
        arrows("m1>race", "m2>race", "m3>race"),
    )
    await graph.complete("m1", "m2")
    await pump(lab)
    page = await shown(Desk(lab.engine), address(graph))
    text = text_of(page)
    assert "quorum 2/2 of 3:" in text
    assert "m1 completed" in text
    assert "m3 cancelled, not needed" in text
    assert any("⊘m3cancelled · not needed" in each for each in drawn(page))


@scenario
async def test_a_node_is_looked_at_with_why_and_what_it_is_next_to(lab: Lab) -> None:
    graph = await submit(lab, "abcde", arrows("a>b>c>d", "e>c"))
    await graph.complete("a")
    desk = Desk(lab.engine)
    page = await shown(desk, address(graph, node=path_id(graph.ids["c"])))
    text = text_of(page)
    assert "waits for 2 of 2 upstreams, all must succeed: b (waiting), e (active)" in text
    boxes = [each for each in page.all("a") if "g-box" in each.attributes.get("class", "")]
    lit = {
        light: sum(f"g-{light}" in each.attributes["class"].split() for each in boxes)
        for light in ("at", "above", "below")
    }
    assert lit == {"at": 1, "above": 3, "below": 1}
    other = await submit(lab, "x")
    page = await shown(desk, address(graph, node=path_id(other.ids["x"])))
    assert "not in this flow" in text_of(page)


@scenario
async def test_a_filter_leaves_out_of_lists_and_makes_faint_in_drawings(lab: Lab) -> None:
    graph = await submit(lab, "abc", arrows("a>b", "a>c"))
    await graph.complete("a")
    await graph.fail("b")
    desk = Desk(lab.engine)
    page = await shown(desk, address(graph, only="failed"))
    faint = [
        each for each in page.all("a") if "g-faint" in each.attributes.get("class", "").split()
    ]
    assert len(faint) == 2
    page = await shown(desk, address(graph, only="failed", tab="list"))
    assert len([each for each in page.all("tr") if "data-id" in each.attributes]) == 1
    page = await shown(desk, address(graph, only="blocking", tab="list"))
    assert "c" in [each.text for each in page.all("b")]


# --- folded ------------------------------------------------------------------------------------


@scenario
async def test_two_hundred_nodes_are_folded_and_a_fold_is_opened(lab: Lab) -> None:
    graph = await wide(lab)
    await graph.complete("begin", "page000", "page001")
    await graph.fail("page002")
    desk = Desk(lab.engine)
    page = await shown(desk, address(graph))
    said = drawn(page)
    assert len(said) == 3
    assert any("fetch ×210" in each and "✕1" in each and "✓2" in each for each in said), said
    page = await shown(desk, address(graph, fold="1.fetch"))
    rows = [each for each in page.all("tr") if "data-id" in each.attributes]
    assert len(rows) == 50
    (following,) = [a["href"] for t, a in page.elements if a.get("rel") == "next"]
    assert "fold=1.fetch" in following
    await shown(desk, following)
    page = await shown(desk, address(graph, fold="1.fetch", state="failed"))
    assert [each.text for each in page.all("b") if each.text.startswith("page")] == ["page002"]
    page = await shown(desk, address(graph, only="failed"))
    assert [each.text for each in page.all("b") if each.text.startswith("page")] == ["page002"]
    page = await shown(desk, address(graph, node=path_id(graph.ids["page002"])))
    assert "it broke" in text_of(page)
    assert "0 of 210" not in text_of(page)


@scenario
async def test_few_nodes_are_folded_on_demand(lab: Lab) -> None:
    graph = await submit(lab, "abc", arrows("a>b", "a>c"))
    page = await shown(Desk(lab.engine), address(graph, alike="1"))
    assert [each.rpartition(":")[0] for each in drawn(page)] != []
    assert len(drawn(page)) == 2


# --- what is done ------------------------------------------------------------------------------


@scenario
async def test_a_flow_is_cancelled_by_a_policy_with_its_count(lab: Lab) -> None:
    graph = await submit(lab, "abc", arrows("a>b>c"))
    await graph.start("a")
    desk = Desk(lab.engine)
    page = await shown(desk, address(graph))
    assert "All 3 that have not ended" in text_of(page)
    assert "At most the 2 that do not run" in text_of(page)
    path = f"/ui/flows/{graph.flow_id}/cancel"
    reply = await sent(desk, path, page, policy="cancel_pending", reason="enough")
    assert (reply.status, reply.headers["location"]) == (303, address(graph))
    found = await graph.snapshot()
    assert (found.cancel_reason, await graph.state("a")) == ("enough", "active")
    page = await shown(desk, address(graph))
    assert "enough · cancel pending" in text_of(page)
    assert not [a for t, a in page.elements if t == "form" and a.get("action") == path]


@scenario
async def test_what_a_flow_has_lost_is_run_again(lab: Lab) -> None:
    graph = await submit(lab, "abc", arrows("a>b>c"))
    await graph.complete("a")
    await graph.fail("b")
    desk = Desk(lab.engine)
    page = await shown(desk, address(graph))
    reply = await sent(desk, f"/ui/flows/{graph.flow_id}/retry", page, reason="again")
    assert reply.status == 303
    assert (await graph.states())["b"] == "waiting"
    page = await shown(desk, address(graph))
    assert "Retry failed" not in text_of(page)
    cookie = reply.headers["set-cookie"].partition(";")[0]
    page = await shown(desk, address(graph), headers={"Cookie": cookie})
    assert "1 node run again." in text_of(page)


@scenario
async def test_a_policy_that_is_none_is_refused(lab: Lab) -> None:
    graph = await submit(lab, "a")
    desk = Desk(lab.engine)
    page = await shown(desk, address(graph))
    await sent(desk, f"/ui/flows/{graph.flow_id}/cancel", page, policy="everything")
    assert await graph.state("a") == "waiting"


@scenario
async def test_an_end_redraws_the_page_of_its_flow(lab: Lab) -> None:
    graph = await submit(lab, "ab", arrows("a>b"))
    desk = Desk(lab.engine)
    page = await shown(desk, address(graph))
    body = next(attributes for tag, attributes in page.elements if tag == "body")
    had = [f"{a['data-part']}:{a['data-v']}" for _, a in page.elements if "data-part" in a]
    follower = Follower(
        desk, f"/ui/live?of={quote(body['data-live'], safe='')}&have={','.join(had)}"
    )
    while not desk.service.watches:  # noqa: ASYNC110 - what is looked at has no event of its own
        await asyncio.sleep(0.001)
    await graph.complete("a")
    await follower.until(1)
    sent_parts = {part["name"]: part["html"] for part in follower.events[0].data["parts"]}
    assert "1/2 ended" in sent_parts["flow_head"]
    assert "✓" in sent_parts["flow"]
    await follower.leave()


@scenario
async def test_a_beginning_rings_for_the_flows_of_its_partition(lab: Lab) -> None:
    graph = await submit(lab, "ab", arrows("a>b"))
    found = await lab.engine.describe_flow_graph(flow_id=graph.flow_id)
    topics = flow_of(found, asked_of("/ui/flows/x", {}), lab.now).topics
    await graph.start("a")
    page = await lab.engine.read_events()
    begun = next(each for each in page.events if each.kind is EventKind.LEASE)
    assert begun.subject == graph.ids["a"]
    assert {*topics} & topics_of(begun)


@scenario
async def test_a_flow_that_is_over_asks_nothing_more(lab: Lab) -> None:
    graph = await submit(lab, "a")
    for is_over in (False, True):
        found = await lab.engine.describe_flow_graph(flow_id=graph.flow_id)
        assert flow_of(found, asked_of("/ui/flows/x", {}), lab.now).is_quiet is is_over
        if not is_over:
            await graph.complete("a")


# --- what goes wrong ---------------------------------------------------------------------------


@scenario
async def test_a_flow_that_is_not_there_is_a_page_that_says_so(lab: Lab) -> None:
    desk = Desk(lab.engine)
    await shown(desk, "/ui/flows/0193a1f0-0000-7000-8000-000000000000", 404)
    await shown(desk, "/ui/flows/nonsense", 422)


@scenario
async def test_an_empty_flow_says_that_it_is(lab: Lab) -> None:
    made = await lab.engine.create_flow(flow_kind="import")
    page = await shown(Desk(lab.engine), f"/ui/flows/{made.flow_id}")
    assert "This flow has no nodes yet" in text_of(page)
    for tab in ("list", "waterfall"):
        await shown(Desk(lab.engine), f"/ui/flows/{made.flow_id}?tab={tab}")


@scenario
async def test_hostile_names_stay_text(lab: Lab) -> None:
    graph = await submit(
        lab,
        [node(NAME, Quorum(1, CANCEL)), node("b"), node("c")],
        [edge("b", NAME), edge("c", NAME)],
        flow_kind="k",
        tags={"team.name": NAME},
    )
    desk = Desk(lab.engine)
    await lab.engine.fail(await graph.handle("b"), reason=HOSTILE * 40, failure_class="permanent")
    several = (
        *({"tab": tab} for tab in ("graph", "list", "waterfall")),
        {"node": path_id(graph.ids[NAME])},
        {"node": path_id(graph.ids["b"])},
        {"alike": "1", "fold": "0.work"},
        *({"node": HOSTILE}, {"fold": HOSTILE}, {"only": HOSTILE}, {"zoom": HOSTILE}),
    )
    for query in several:
        page = await shown(desk, address(graph, **query))
        assert not [each for each in page.all("script") if "alert" in each.text]
        assert "\x1b" not in "".join(page.texts)
        assert "\u202e" not in "".join(page.texts)


@scenario
async def test_choices_of_an_address_survive_every_link(lab: Lab) -> None:
    graph = await submit(lab, "ab", arrows("a>b"))
    desk = Desk(lab.engine)
    key = path_id(graph.ids["b"])
    page = await shown(desk, address(graph, tab="waterfall", only="running", node=key, zoom="150"))
    tabs = {
        each.text: each.attributes["href"]
        for each in page.all("a")
        if each.text in ("graph", "list", "waterfall")
    }
    assert f"only=running&node={key}&zoom=150" in tabs["graph"]
    assert 'width="1560"' in (await desk.get(tabs["waterfall"])).body.decode()
    larger = next(a["href"] for _, a in page.elements if a.get("data-zoom") == "+")
    assert "zoom=200" in larger


@scenario
async def test_every_address_begins_with_the_prefix_of_a_proxy(lab: Lab) -> None:
    graph = await submit(lab, "ab", arrows("a>b"))
    desk = Desk(lab.engine, public_url="https://localhost/ff")
    for tab in ("graph", "list", "waterfall"):
        reply = await desk.get(address(graph, tab=tab, node=path_id(graph.ids["a"])))
        found = re.findall(r'(?:href|action)="(/[^"]*)"', reply.body.decode())
        assert {each.split("/")[1] for each in found} == {"ff"}


@scenario
async def test_only_an_operator_is_offered_to_act(lab: Lab) -> None:
    graph = await submit(lab, "a")
    made = await lab.engine.create_access_token(name="x", scopes=("read",))
    bearer = {"Authorization": f"Bearer {made.token.reveal()}"}
    page = await shown(Desk(lab.engine), address(graph), headers=bearer)
    assert "Cancel the flow" not in text_of(page)
