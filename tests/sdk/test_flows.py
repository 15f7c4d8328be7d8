"""Flows as a program writes, submits, follows and ends them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from flowfabric import (
    CancellationPolicy,
    Context,
    Fabric,
    Fatal,
    FlowFailed,
    FlowState,
    IdempotencyConflict,
    InvalidInput,
    NodeChange,
    NotFound,
    PublicState,
    ResultMismatch,
    Wait,
    WaitTimeout,
    all_done,
    all_of,
    any_of,
    quorum,
)
from flowfabric.model.flow import AllSucceeded, AnySucceeded, OnSatisfied, Quorum
from flowfabric.model.state import TERMINAL_STATES
from tests.sdk.workshop import until, within, working


class Shop:
    """A fabric with a few tasks; `gate` keeps `slow` in its handler."""

    def __init__(self, url: str) -> None:
        self.ff = ff = Fabric(url)
        self.gate = asyncio.Event()
        self.seen: list[Any] = []
        shop = self

        @ff.task
        async def one(n: int) -> int:
            return n

        @ff.task
        async def add(a: int, b: int = 0) -> int:
            shop.seen.append((a, b))
            return a + b

        @ff.task
        async def total(parts: list[int]) -> int:
            shop.seen.append(list(parts))
            return sum(parts)

        @ff.task
        async def slow(n: int) -> int:
            await shop.gate.wait()
            return n

        @ff.task
        async def broken(n: int) -> int:
            raise Fatal(f"no {n}")

        @ff.task
        async def note(word: str) -> str:
            shop.seen.append(word)
            return word

        self.one, self.add, self.total = one, add, total
        self.slow, self.broken, self.note = slow, broken, note


@pytest.fixture
def shop(url: str) -> Shop:
    return Shop(url)


# --- writing --------------------------------------------------------------------------------------


def test_results_of_nodes_become_arguments(shop: Shop) -> None:
    async def main() -> None:
        async with shop.ff, working(shop.ff):
            with shop.ff.flow("sum") as f:
                a = f.add(shop.one, 1)
                b = f.add(shop.one, n=2)
                f.add(shop.add, a, b=b)
            run = await f.submit()
            assert await within(run.result()) == {"one": 1, "one-2": 2, "add": 3}
            assert await run.state() is FlowState.COMPLETED
            assert run.is_new

    asyncio.run(main())
    assert shop.seen == [(1, 2)]


def test_a_thousand_results_arrive_as_one_list_in_order(shop: Shop) -> None:
    async def main() -> None:
        async with shop.ff, working(shop.ff, concurrency=500):
            f = shop.ff.flow("map")
            nodes = f.map(shop.one, range(1_000))
            f.add(shop.total, parts=nodes)
            results = await within((await f.submit()).result())
            assert results["total"] == sum(range(1_000))

    asyncio.run(main())
    assert shop.seen == [list(range(1_000))]


def test_nodes_and_constants_mix_and_a_node_may_stand_twice(url: str) -> None:
    ff = Fabric(url)
    seen: list[Any] = []

    @ff.task
    async def one(n: float) -> float:
        return n

    @ff.task
    async def take(
        parts: list[float], named: dict[str, float], again: float, fixed: str = "fixed"
    ) -> None:
        seen.append((parts, named, again, fixed))

    async def main() -> None:
        async with ff, working(ff):
            f = ff.flow("mixed")
            a, b = f.add(one, 1.5), f.add(one, 2)
            f.add(take, parts=[b, 7, a], named={"a": a, "x": 9}, again=a)
            await within((await f.submit()).result())

    asyncio.run(main())
    assert seen == [([2, 7, 1.5], {"a": 1.5, "x": 9}, 1.5, "fixed")]


def test_items_of_a_map_are_arguments_or_tuples_of_them_or_nodes(shop: Shop) -> None:
    async def main() -> None:
        async with shop.ff, working(shop.ff):
            f = shop.ff.flow("map")
            pairs = f.map(shop.add, [(1, 2), 3], name="pair")
            f.map(shop.one, pairs, name="again")
            results = await within((await f.submit()).result())
            assert results == {"pair": 3, "pair-2": 3, "again": 3, "again-2": 3}

    asyncio.run(main())


def test_after_orders_without_passing_anything(shop: Shop) -> None:
    async def main() -> None:
        async with shop.ff, working(shop.ff):
            with shop.ff.flow("order") as f:
                first = f.add(shop.note, "first")
                second = f.add(shop.note, "second", after=first)
                third = f.add(shop.note, "third", after=[second])
                f.add(shop.note, "fourth", after=all_of(first, third))
            await within((await f.submit()).result())

    asyncio.run(main())
    assert shop.seen == ["first", "second", "third", "fourth"]


def test_a_name_is_the_task_or_what_was_given_and_never_stands_twice(shop: Shop) -> None:
    f = shop.ff.flow("names")
    nodes = [f.add(shop.one, 1), f.add(shop.one, 2, name="one-3"), f.add(shop.one, 3)]
    nodes += [f.add(shop.one, 4), f.add("elsewhere", x=1)]
    assert [node.name for node in nodes] == ["one", "one-3", "one-2", "one-4", "elsewhere"]
    assert list(f.nodes) == [node.name for node in nodes]
    with pytest.raises(InvalidInput, match="there is a node 'one-3' already"):
        f.add(shop.one, 1, name="one-3")


def test_a_refused_node_leaves_the_flow_as_it_was(shop: Shop) -> None:
    """Also the names of those that follow, and of a map the nodes before the wrong one."""
    f = shop.ff.flow("tried")
    other = shop.ff.flow("other").add(shop.one, 1)
    for refused in (
        lambda: f.add(shop.one, 1, after=other),
        lambda: f.map(shop.one, [1, 2, "three"]),
        lambda: f.map(shop.one, [1, 2], after=other),
        lambda: f.map(shop.one, "12"),
    ):
        with pytest.raises(InvalidInput):
            refused()
        assert not f.nodes
    assert [node.name for node in f.map(shop.one, [1, 2])] == ["one", "one-2"]


def test_every_node_of_a_map_waits_for_what_an_iterator_gives(shop: Shop) -> None:
    async def main() -> None:
        async with shop.ff:
            f = shop.ff.flow("wide")
            first = f.add(shop.one, 1)
            f.map(shop.note, ["a", "b"], after=iter([first]))
            nodes = await (await f.submit()).nodes()
            states = {name: await each.state() for name, each in nodes.items()}
            assert states.pop("one") is PublicState.WAITING
            assert {*states.values()} == {PublicState.WAITING_CHILDREN}

    asyncio.run(main())


def test_a_delay_counts_from_the_end_of_what_a_node_waits_for(shop: Shop) -> None:
    when = datetime.now(UTC) + timedelta(days=3)

    async def main() -> None:
        async with shop.ff:
            f = shop.ff.flow("later")
            first = f.add(shop.slow, 1, delay="10s")
            f.add(shop.one, first, name="after", delay="1d")
            f.add(shop.one, first, name="at", start_at=when)
            with pytest.raises(InvalidInput, match="not both"):
                f.add(shop.one, first, start_at=when, delay="1d")
            run = await f.submit()
            nodes = await run.nodes()
            infos = {name: await each.info() for name, each in nodes.items()}
            begun = infos["slow"]
            assert begun.eligible_at == begun.created_at + 10_000
            assert infos["after"].eligible_at == infos["after"].created_at
            assert infos["at"].eligible_at == int(when.timestamp() * 1000)
            told = (await nodes["after"].explain()).summary
            assert told.endswith("its delay begins when its join is met")

    asyncio.run(main())


def test_options_belong_to_the_node(shop: Shop) -> None:
    async def main() -> None:
        async with shop.ff:
            f = shop.ff.flow("options", tags={"team.name": "a"})
            f.add(shop.one, 1, priority=7, tags={"x.y": "z"}, name="a")
            f.add(shop.one.options(lane="fast"), 1, name="b")
            f.add(shop.one.options(priority=3).call(1), name="c")
            run = await f.submit()
            nodes = await run.nodes()
            a, b, c = [await nodes[name].info() for name in "abc"]
            assert (a.priority, a.tags, a.flow_id) == (7, {"x.y": "z"}, run.flow_id)
            assert (b.lane_id, c.priority) == ("fast", 3)
            assert (await run.info()).tags == {"team.name": "a"}

    asyncio.run(main())


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (lambda s, f: f.add(s.one), "one: needs the argument 'n'"),
        (lambda s, f: f.add(s.one, "x"), "one: n: Expected `int`, got `str`"),
        (lambda s, f: f.add(s.add, f.add(s.one, 1), b="x"), "add: b: Expected `int`"),
        (lambda s, f: f.add(s.add, f.add(s.one, 1), c=1), "add: has no argument 'c'"),
        (lambda s, f: f.add(s.one, 1, key="k"), "one: key= belongs to the flow"),
        (lambda s, f: f.add(s.one, 1, after=5), "after: expected nodes of f.add or f.map, got int"),
        (lambda s, f: f.add(s.one, f.add(s.one, 1, name="x"), after=quorum(2)), "at least one"),
        (lambda s, f: f.add(len, 1), "is not a task"),
        (lambda s, f: f.add(s.total, [[f.add(s.one, 1)]]), "cannot send the argument 'parts'"),
        (lambda s, f: f.add(s.one, 1, after=s.ff.flow("b").add(s.one, 1)), "of another flow"),
    ],
)
def test_a_wrong_node_is_refused_where_it_is_written(write: Any, told: str) -> None:
    shop = Shop("memory://")
    with pytest.raises(InvalidInput) as caught:
        write(shop, shop.ff.flow("wrong"))
    assert told in caught.value.detail


def test_a_task_with_an_argument_called_name_takes_it_by_position() -> None:
    ff = Fabric("memory://")

    @ff.task
    async def greet(name: str) -> str:
        return name

    f = ff.flow("greet")
    assert f.add(greet, "ada", name="hello").name == "hello"
    with pytest.raises(InvalidInput, match="give the argument by position"):
        f.add(greet, name="ada")


def test_a_computed_concurrency_key_cannot_be_made_of_a_result_that_is_not_there() -> None:
    ff = Fabric("memory://")

    @ff.task
    async def one(n: int) -> int:
        return n

    @ff.task(quota="crawls", concurrency_key=lambda customer: customer)
    async def crawl(customer: str, page: int) -> None: ...

    async def main() -> None:
        async with ff:
            await ff.create_quota("crawls", at_once=1)
            f = ff.flow("crawl")
            page = f.add(one, 1)
            f.add(crawl, "ada", page)
            nodes = await (await f.submit()).nodes()
            assert await nodes["crawl"].state() is PublicState.WAITING_CHILDREN
            f = ff.flow("crawl")
            f.add(crawl, f.add(one, 1), page=1)
            with pytest.raises(InvalidInput, match="made of 'customer', the result of another"):
                await f.submit()

    asyncio.run(main())


def test_a_closed_or_empty_flow_takes_nothing() -> None:
    shop = Shop("memory://")
    with shop.ff.flow("closed") as f:
        f.add(shop.one, 1)
    with pytest.raises(InvalidInput, match="closed"):
        f.add(shop.one, 2)

    async def main() -> None:
        async with shop.ff:
            with pytest.raises(InvalidInput, match="the flow has no nodes"):
                await shop.ff.flow("empty").submit()
            assert await f.submit() is await f.submit()

    asyncio.run(main())


# --- joins ----------------------------------------------------------------------------------------


def test_joins_are_what_the_engine_is_asked_for() -> None:
    shop = Shop("memory://")
    f = shop.ff.flow("joins")
    a, b, c = (f.add(shop.one, n) for n in range(3))
    keep, cancel = OnSatisfied.LET_RUN, OnSatisfied.CANCEL_REMAINING
    assert all_of(a, b).policy == AllSucceeded()
    assert any_of(a, b).policy == AnySucceeded(cancel, only_if_unshared=False)
    assert any_of(a, b, losers="keep").policy == AnySucceeded(keep, only_if_unshared=False)
    assert quorum(2, a, b, c, spare_shared=True).policy == Quorum(2, cancel, True)
    assert isinstance(all_of("legal", "budget"), Wait)
    for wrong in (
        lambda: quorum(4, a, b, c),
        lambda: quorum(0, a),
        lambda: quorum(True, a),
        lambda: any_of(a, a),
        lambda: any_of(a, "b"),  # type: ignore[call-overload]
        lambda: any_of(a, b, losers="kill"),
        lambda: any_of("a", "b", losers="keep"),  # type: ignore[call-overload]
        all_done,
    ):
        with pytest.raises(InvalidInput):
            wrong()


def test_a_node_has_one_join() -> None:
    shop = Shop("memory://")
    f = shop.ff.flow("joins")
    a, b, c = (f.add(shop.one, n) for n in range(3))
    with pytest.raises(InvalidInput, match="'one-3' must be one of its nodes"):
        f.add(shop.total, any_of(a, b), after=c)
    with pytest.raises(InvalidInput, match="a node has one join"):
        f.add(shop.add, a=any_of(a, b), b=quorum(1, a, b))
    join = quorum(1, a, b)
    f.add(shop.total, join, after=join)


def test_the_first_result_wins_and_losers_are_cancelled(shop: Shop) -> None:
    @shop.ff.task
    async def endless(n: int) -> int:
        return await asyncio.Event().wait()

    async def main() -> None:
        async with shop.ff, working(shop.ff):
            with shop.ff.flow("race") as f:
                runners = [f.add(shop.broken, 1), f.add(shop.slow, 5), f.add(endless, 6)]
                f.add(shop.add, any_of(*runners, losers="cancel"))
            run = await f.submit()
            nodes = await run.nodes()

            async def is_broken() -> bool:
                return await nodes["broken"].state() is PublicState.FAILED

            await until(is_broken)  # or it would be a loser, too
            shop.gate.set()
            # The engine counts a cancelled member as lost; the flow has what it was for.
            assert await within(run.result()) == {"slow": 5, "add": 5}
            assert await nodes["endless"].state() is PublicState.CANCELLED
            assert await nodes["broken"].state() is PublicState.FAILED

    asyncio.run(main())


def test_a_quorum_hands_on_what_there_is(shop: Shop) -> None:
    async def main() -> None:
        async with shop.ff, working(shop.ff):
            with shop.ff.flow("quorum") as f:
                runners = [f.add(shop.slow, 6), f.add(shop.one, 1), f.add(shop.one, 2)]
                f.add(shop.total, parts=quorum(2, *runners, losers="keep"))
            run = await f.submit()
            nodes = await run.nodes()
            assert await within(nodes["total"].result()) == 3
            assert await nodes["slow"].state() not in TERMINAL_STATES
            shop.gate.set()
            assert (await within(run.result()))["slow"] == 6

    asyncio.run(main())
    assert shop.seen == [[1, 2]]


def test_all_done_runs_in_any_case_and_excuses_no_node(shop: Shop) -> None:
    async def main() -> None:
        async with shop.ff, working(shop.ff):
            with shop.ff.flow("tidy") as f:
                tested = f.add(shop.broken, 1)
                f.add(shop.note, "tidied", after=all_done(tested, f.add(shop.one, 1)))
            run = await f.submit()
            with pytest.raises(FlowFailed) as caught:
                await within(run.result())
            assert caught.value.failures == {"broken": "failed (no 1)"}

    asyncio.run(main())
    assert shop.seen == ["tidied"]


def test_an_argument_that_may_be_missing_must_be_optional(url: str) -> None:
    ff = Fabric(url)
    seen: list[Any] = []

    @ff.task
    async def one(n: int) -> int:
        return n

    @ff.task
    async def broken() -> int:
        raise Fatal("no")

    @ff.task
    async def strict(a: int, b: int) -> None: ...

    @ff.task
    async def lenient(a: int | None, b: int = -1) -> None:
        seen.append((a, b))

    async def main() -> None:
        async with ff, working(ff):
            f = ff.flow("gaps")
            a, b = f.add(broken), f.add(one, 2)
            with pytest.raises(InvalidInput, match="'a' may have no result"):
                f.add(strict, a, b, after=any_of(a, b))
            f.add(lenient, a, b, after=any_of(a, b, losers="keep"))
            await within((await f.submit()).result())

    asyncio.run(main())
    assert seen == [(None, 2)]


# --- the run --------------------------------------------------------------------------------------


def test_a_failed_flow_names_causes_before_consequences(shop: Shop) -> None:
    async def main() -> None:
        async with shop.ff, working(shop.ff):
            with shop.ff.flow("fail") as f:
                a = f.add(shop.broken, 1)
                b = f.add(shop.one, a, name="after")
                f.add(shop.one, b, name="last")
                f.add(shop.one, 5, name="apart")
            run = await f.submit()
            with pytest.raises(FlowFailed) as caught:
                await within(run.result())
            assert list(caught.value.failures) == ["broken", "after", "last"]
            assert caught.value.failures["broken"] == "failed (no 1)"
            assert caught.value.flow_id == run.flow_id
            assert "fail failed: broken failed (no 1); after skipped" in caught.value.detail
            nodes = await run.nodes()
            assert await nodes["apart"].result() == 5

    asyncio.run(main())


def test_a_loss_behind_a_join_that_did_without_it_is_excused(shop: Shop) -> None:
    async def main() -> None:
        async with shop.ff, working(shop.ff):
            with shop.ff.flow("behind") as f:
                skipped = f.add(shop.one, f.add(shop.broken, 1), name="skipped")
                f.add(shop.add, any_of(skipped, f.add(shop.one, 2), losers="keep"))
            assert (await within((await f.submit()).result()))["add"] == 2
            with shop.ff.flow("needed") as f:
                lost = f.add(shop.broken, 1)
                f.add(shop.add, any_of(lost, f.add(shop.one, 2), losers="keep"))
                f.add(shop.note, "x", after=lost, name="needs-it")
            with pytest.raises(FlowFailed) as caught:
                await within((await f.submit()).result())
            assert list(caught.value.failures) == ["broken", "needs-it"]

    asyncio.run(main())


def test_a_flow_is_cancelled_with_what_its_policy_names(shop: Shop) -> None:
    async def main() -> None:
        async with shop.ff, working(shop.ff):
            f = shop.ff.flow("stop")
            f.add(shop.one, f.add(shop.slow, 1))
            run = await f.submit()
            nodes = await run.nodes()

            async def is_active() -> bool:
                return await nodes["slow"].state() is PublicState.ACTIVE

            await until(is_active)
            with pytest.raises(InvalidInput, match="not one of all, pending, only"):
                await run.cancel(policy="some")
            await run.cancel("enough", policy="pending")
            assert await run.state() is FlowState.CANCELLED
            assert await nodes["slow"].state() is PublicState.ACTIVE
            assert await nodes["one"].state() is PublicState.CANCELLED
            assert (await run.info()).cancellation_policy is CancellationPolicy.CANCEL_PENDING
            shop.gate.set()
            with pytest.raises(FlowFailed, match=r"was cancelled \(enough\): one cancelled"):
                await within(run.result())

    asyncio.run(main())


def test_a_flow_that_is_retried_can_be_cancelled_again(shop: Shop) -> None:
    """`cancel`, `retry`, `cancel`: each does what it says, and nothing starts after the last."""

    async def main() -> None:
        async with shop.ff:
            f = shop.ff.flow("stop")
            f.add(shop.one, f.add(shop.slow, 1))
            run = await f.submit()
            nodes = await run.nodes()
            for _ in range(2):
                await run.cancel("enough")
                assert await run.state() is FlowState.CANCELLED
                assert sorted(await run.retry()) == ["one", "slow"]
                assert await run.state() is FlowState.BLOCKED
                assert await nodes["slow"].state() is PublicState.WAITING
                assert await nodes["one"].state() is PublicState.WAITING_CHILDREN
            await run.cancel("for good")
            assert {await each.state() for each in nodes.values()} == {PublicState.CANCELLED}
            with pytest.raises(FlowFailed, match=r"was cancelled \(for good\)"):
                await within(run.result())

    asyncio.run(main())


def test_a_wait_for_a_flow_has_an_end_and_says_which_node_it_waited_for(shop: Shop) -> None:
    async def main() -> None:
        async with shop.ff:
            f = shop.ff.flow("long")
            f.add(shop.one, f.add(shop.slow, 1))
            run = await f.submit()
            with pytest.raises(WaitTimeout, match="has 2 members left: slow") as caught:
                await run.result(timeout="20ms")
            assert caught.value.explanation == "slow is waiting, no live worker is registered"
            with pytest.raises(NotFound):
                await shop.ff.flow_run("00000000-0000-7000-8000-000000000000").result("1s")
            with pytest.raises(NotFound):
                await shop.ff.flow_run("00000000-0000-7000-8000-000000000000").info()

    asyncio.run(main())


def test_watching_tells_every_node_and_ends_with_the_flow(shop: Shop) -> None:
    async def main() -> None:
        async with shop.ff, working(shop.ff):
            f = shop.ff.flow("watch")
            f.add(shop.broken, f.add(shop.slow, 1))
            run = await f.submit()
            told: list[NodeChange] = []

            async def follow() -> None:
                async for change in run.watch():
                    told.append(change)
                    if len(told) == 2:  # both as they stand
                        shop.gate.set()

            await within(follow())
            by_name = {change.name: change for change in told}  # the last of each
            assert by_name["slow"].state is PublicState.COMPLETED
            assert by_name["broken"].state is PublicState.FAILED
            assert by_name["broken"].reason == "no 1"
            states = [(change.name, change.state) for change in told]
            assert len(states) == len(set(states))
            again = [change async for change in run.watch()]
            assert {change.state for change in again} == {PublicState.COMPLETED, PublicState.FAILED}

    asyncio.run(main())


def test_a_retry_runs_what_was_lost_and_what_that_skipped(url: str) -> None:
    ff = Fabric(url)
    calls: list[str] = []
    works = False

    @ff.task
    async def build() -> str:
        calls.append("build")
        return "app"

    @ff.task
    async def test(artifact: str) -> str:
        calls.append("test")
        if not works:
            raise Fatal("red")
        return "green"

    @ff.task
    async def deploy(tested: str) -> str:
        calls.append("deploy")
        return tested

    async def main() -> None:
        nonlocal works
        async with ff, working(ff):
            f = ff.flow("deploy")
            f.add(deploy, f.add(test, f.add(build)))
            run = await f.submit()
            with pytest.raises(FlowFailed):
                await within(run.result())
            works = True
            assert await run.retry() == ["test"]
            assert (await within(run.result()))["deploy"] == "green"
            assert await run.retry() == []

    asyncio.run(main())
    assert calls == ["build", "test", "test", "deploy"]


def test_the_same_key_is_the_same_flow(shop: Shop) -> None:
    async def main() -> None:
        async with shop.ff, working(shop.ff):
            runs = []
            for _ in range(2):
                f = shop.ff.flow("once", key="k")
                f.add(shop.add, f.add(shop.one, 1), 2)
                runs.append(await f.submit())
            first, second = runs
            assert first.flow_id == second.flow_id
            assert (first.is_new, second.is_new) == (True, False)
            assert await within(second.result()) == {"one": 1, "add": 3}
            assert await second.nodes() == await first.nodes()
            f = shop.ff.flow("once", key="k")
            f.add(shop.one, 1)
            with pytest.raises(IdempotencyConflict):
                await f.submit()

    asyncio.run(main())


def test_a_flow_is_found_again_by_its_id(durable_url: str) -> None:
    shop = Shop(durable_url)

    async def submit() -> str:
        async with shop.ff, working(shop.ff):
            f = shop.ff.flow("later")
            f.add(shop.add, f.add(shop.one, 1))
            run = await f.submit()
            await within(run.result())
            return run.flow_id

    flow_id = asyncio.run(submit())

    async def read() -> None:
        async with Fabric(durable_url) as other:  # a program that does not know the tasks
            run = other.flow_run(flow_id)
            assert await run.result() == {"one": 1, "add": 1}
            assert set(await run.nodes()) == {"one", "add"}

    asyncio.run(read())


def test_a_result_of_another_type_names_its_node(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def lie(n: int) -> int:
        return str(n)  # type: ignore[return-value]

    async def main() -> None:
        async with ff, working(ff):
            f = ff.flow("lie")
            f.add(lie, 1, name="liar")
            with pytest.raises(ResultMismatch, match=r"liar: \{fp"):
                await within((await f.submit()).result())

    asyncio.run(main())


def test_a_task_known_by_name_takes_results_too(shop: Shop) -> None:
    async def main() -> None:
        async with shop.ff, working(shop.ff):
            f = shop.ff.flow("by name")
            a = f.add("one", n=3)
            f.add("total", {"parts": [a, 4]})
            with pytest.raises(InvalidInput):
                f.add("total", 1, 2)
            assert (await within((await f.submit()).result()))["total"] == 7

    asyncio.run(main())


def test_children_of_nodes_belong_to_the_flow_but_are_no_nodes(shop: Shop) -> None:
    @shop.ff.task
    async def parent(ctx: Context) -> int:
        children = [await ctx.spawn(shop.one, n) for n in (1, 2)]
        return sum(await ctx.gather(*children))

    async def main() -> None:
        async with shop.ff, working(shop.ff):
            f = shop.ff.flow("family")
            f.add(shop.add, f.add(parent))
            run = await f.submit()
            assert await within(run.result()) == {"parent": 3, "add": 3}
            assert set(await shop.ff.flow_run(run.flow_id).nodes()) == {"parent", "add"}
            told = [change async for change in run.watch()]
            assert len(told) == 4
            assert sum(change.parent_id is not None for change in told) == 2

    asyncio.run(main())


# --- without asyncio ------------------------------------------------------------------------------


def test_the_blocking_twin_does_all_of_it(durable_url: str) -> None:
    shop = Shop(durable_url)
    with shop.ff.sync as sync:
        with sync.flow("sync", key="s") as f:
            f.add(shop.total, parts=f.map(shop.one, [1, 2]))
        run = f.submit()
        assert f.submit() is run
        assert run.is_new
        assert run.state() is FlowState.BLOCKED

        async def work() -> None:
            async with shop.ff, working(shop.ff):
                told = await asyncio.to_thread(lambda: list(run.watch()))
                assert {change.name for change in told} == {"one", "one-2", "total"}

        asyncio.run(work())
        assert run.result("60s")["total"] == 3
        assert run.nodes()["total"].result() == 3
        assert sync.flow_run(run.flow_id).info().node_count == 3
        assert run.retry() == []
        with sync.flow("sync") as f:
            f.add(shop.one, 1)
        stopped = f.submit()
        stopped.cancel("enough", policy="all", wait="5s")
        assert stopped.state() is FlowState.CANCELLED
