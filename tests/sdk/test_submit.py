from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from flowfabric import (
    Fabric,
    IdempotencyConflict,
    InvalidInput,
    NotFound,
    PublicState,
    ResultMismatch,
    Run,
    StoreUnavailable,
    WaitTimeout,
)
from tests.sdk.workshop import within, working

pydantic = pytest.importorskip("pydantic")


@dataclass
class Order:
    item: str
    count: int
    due: datetime | None = None


class Parcel(msgspec.Struct):
    order: Order
    weight: Decimal


class Invoice(pydantic.BaseModel):  # type: ignore[misc, name-defined]
    number: int
    lines: list[str]


def test_a_dataclass_becomes_a_struct_on_the_way_through_a_worker(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def pack(order: Order, *, weight: Decimal = Decimal("1.5")) -> Parcel:
        return Parcel(order, weight)

    async def main() -> None:
        async with ff, working(ff):
            due = datetime(2026, 11, 16, tzinfo=UTC)
            run = await ff.submit(pack, Order("lamp", 2, due))
            assert await run.result("60s") == Parcel(Order("lamp", 2, due), Decimal("1.5"))

    asyncio.run(main())


def test_pydantic_models_travel_both_ways(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    def bill(invoices: list[Invoice], best: Invoice | None = None) -> Invoice:
        return best or invoices[0]

    async def main() -> None:
        async with ff, working(ff):
            run = await bill.submit([Invoice(number=1, lines=["a"])], Invoice(number=2, lines=[]))
            result = await run.result("60s")
            assert isinstance(result, Invoice)
            assert result.number == 2
            with pytest.raises(InvalidInput, match="bill: invoices"):
                await ff.submit(bill, [{"number": "many", "lines": []}])  # type: ignore[call-overload]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("args", "kwargs", "field"),
    [
        (("two",), {}, "count"),
        ((), {}, "count"),
        ((1,), {"colour": "red"}, "colour"),
        ((1,), {"count": 2}, "count"),
        ((1,), {"names": [1]}, "names"),
        ((object(),), {}, "count"),
        ((1, [], "three"), {}, ""),
    ],
)
def test_a_wrong_argument_is_refused_at_submit_by_name(
    args: tuple[Any, ...], kwargs: dict[str, Any], field: str
) -> None:
    ff = Fabric("memory://")

    @ff.task
    def paint(count: int, names: list[str] | None = None) -> None: ...

    async def main() -> None:
        async with ff:
            with pytest.raises(InvalidInput) as caught:
                await ff.submit(paint, *args, **kwargs)
            assert caught.value.fields["field"] == field
            assert field in str(caught.value)
            engine = await ff.start()
            assert (await engine.list_executions()).items == ()

    asyncio.run(main())


def test_an_unknown_option_is_named_with_the_known_ones() -> None:
    ff = Fabric("memory://")

    @ff.task
    def paint(count: int) -> None: ...

    with pytest.raises(
        InvalidInput, match="colour: no such option; there are budgets, concurrency_key, conn"
    ):
        paint.options(colour="red")  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match=r"has no argument 'prio'.*submit options are.*priority"):
        asyncio.run(ff.submit(paint, 1, prio=3))  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match=r"priority= is an option.*paint\.options\(priority=…\)"):
        asyncio.run(paint.submit(1, priority=3))  # type: ignore[call-arg]


def test_the_same_key_answers_with_the_first_run(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    def paint(count: int) -> None: ...

    async def main() -> None:
        async with ff:
            first = await ff.submit(paint, 1, key="one")
            again = await paint.options(key="one").submit(1)
            assert again == first
            assert (first.is_new, again.is_new) == (True, False)
            with pytest.raises(IdempotencyConflict):
                await ff.submit(paint, 2, key="one")

    asyncio.run(main())


def test_options_reach_the_execution(url: str) -> None:
    ff = Fabric(url)

    @ff.task(lane="slow", priority=3, deadline="1h")
    def paint(count: int) -> None: ...

    async def main() -> None:
        async with ff:
            engine = await ff.start()
            now = await engine.server_time_ms()
            plain = await (await ff.submit(paint, 1)).info()
            assert (plain.lane_id, plain.priority) == ("slow", 3)
            assert 3_590_000 < (plain.deadline_at or 0) - now <= 3_700_000
            run = await ff.submit(
                paint,
                1,
                lane="fast",
                priority=9,
                delay="1d",
                deadline="2d",
                tags={"team.name": "a"},
            )
            info = await run.info()
            assert (info.lane_id, info.priority, dict(info.tags)) == ("fast", 9, {"team.name": "a"})
            assert info.public_state is PublicState.DELAYED
            assert 86_390_000 < info.eligible_at - now < 86_500_000
            assert (info.deadline_at or 0) - info.created_at == 2 * 86_400_000
            when = datetime.now(UTC) + timedelta(days=3)
            later = await (await ff.submit(paint, 1, delay=when, deadline=when)).info()
            assert later.eligible_at == later.deadline_at == int(when.timestamp() * 1000)
            started = await (await ff.submit(paint, 1, start_at=when)).info()
            assert started.eligible_at == int(when.timestamp() * 1000)
            for wrong in (datetime(2030, 1, 1), "1h", 5):  # noqa: DTZ001
                with pytest.raises(InvalidInput, match="time zone"):
                    await ff.submit(paint, 1, start_at=wrong)  # type: ignore[call-arg]
            with pytest.raises(InvalidInput, match="time zone"):
                await ff.submit(paint, 1, delay=datetime(2030, 1, 1))  # noqa: DTZ001
            for field in ("delay", "start_at", "deadline"):
                long_ago: dict[str, Any] = {field: datetime(1, 1, 1, tzinfo=UTC)}
                with pytest.raises(InvalidInput, match=f"{field}: .* is not between"):
                    await ff.submit(paint, 1, **long_ago)
            with pytest.raises(InvalidInput, match="start_at: give it or delay, not both"):
                await ff.submit(paint, 1, start_at=when, delay="1h")

    asyncio.run(main())


def test_submit_many_of_what_is_no_list_submits_nothing(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    def shout(word: str) -> str:
        return word.upper()

    async def main() -> None:
        async with ff:
            wrong: Any
            for wrong in ("abc", b"abc", 5, None, {"word": "a"}):
                with pytest.raises(InvalidInput, match="items: expected a list"):
                    await ff.submit_many(shout, wrong)
            for wrong in (5, "abc", [shout], ["abc"]):
                with pytest.raises(InvalidInput, match="calls"):
                    await ff.submit_many(wrong)
            engine = await ff.start()
            assert (await engine.list_executions()).items == ()

    asyncio.run(main())


def test_submit_many_keeps_the_order_and_creates_nothing_when_one_is_wrong(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def add(first: int, second: int = 0) -> int:
        return first + second

    async def main() -> None:
        async with ff:
            with pytest.raises(InvalidInput, match="add: second"):
                await ff.submit_many(add, [(1, 2), (3, "four")])
            engine = await ff.start()
            assert (await engine.list_executions()).items == ()
            runs = await ff.submit_many(add, [1, (2, 3), add.options(priority=5).call(7)])
            runs += await ff.submit_many([add.call(8), add.call(9, second=1)])
            async with working(ff):
                results = [await run.result("60s") for run in runs]
            assert results == [1, 5, 7, 8, 10]
            assert (await runs[2].info()).priority == 5

    asyncio.run(main())


def test_a_task_can_be_submitted_by_its_name(url: str) -> None:
    ff, elsewhere = Fabric(url), Fabric(url)

    @elsewhere.task(name="greet")
    def _(name: str) -> str:
        return f"hello {name}"

    async def main() -> None:
        async with ff:
            run = await ff.submit("greet", {"name": "ada"})
            other = await ff.submit("greet", name="bob")
            context = await (await ff.start()).read_execution_context(execution_id=run.id)
            assert context.input_payload == b'{"name":"ada"}'
            if url != "memory://":
                async with working(elsewhere):
                    assert await run.result("60s") == "hello ada"
                    assert await other.result("60s") == "hello bob"
        async with elsewhere:
            with pytest.raises(InvalidInput, match=r"greet: .*nam"):
                await elsewhere.submit("greet", nam="x")

    asyncio.run(main())


def test_waiting_for_a_result_can_time_out_and_an_unknown_run_is_not_found(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    def paint(count: int) -> None: ...

    async def main() -> None:
        async with ff:
            run = await ff.submit(paint, 1)
            with pytest.raises(WaitTimeout):
                await run.result(timeout=0.01)
            assert await run.state() is PublicState.WAITING
            assert (await run.explain()).waiting_for
            missing = ff.run("{fp:7}:01890000-0000-7000-8000-000000000001")
            for look in (missing.state, missing.info, missing.result):
                with pytest.raises(NotFound):
                    await within(look())

    asyncio.run(main())


def test_a_wait_that_timed_out_says_why_the_run_has_not_ended(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def brief(topic: str) -> None: ...

    async def timed_out(run: Run[Any]) -> WaitTimeout:
        with pytest.raises(WaitTimeout) as caught:
            await run.result(timeout="10ms")
        assert caught.value.fields["public_state"] == "waiting"
        return caught.value

    async def main() -> None:
        async with ff:
            run = await ff.submit(brief, "solar")
            error = await timed_out(run)
            assert error.explanation == "no live worker is registered"
            engine = await ff.start()
            await engine.register_worker(
                worker_id="w1",
                worker_instance_id="w1-1",
                lanes=("default",),
                kinds=("other",),
                liveness_ttl_ms=60_000,
            )
            error = await timed_out(run)
            why = await run.explain()
            assert error.explanation == why.summary
            assert why.summary == "no live worker has a handler for brief on lane default"
            assert f": {why.summary}; start a worker on lane default that handles brief" in str(
                error
            )
            assert error.as_dict()["hints"] == list(why.hints)

    asyncio.run(main())
    if url == "memory://":
        return
    with Fabric(url).sync as sync, pytest.raises(WaitTimeout, match="no live worker has a handler"):
        sync.submit("brief", {"topic": "wind"}).result(timeout="10ms")


def test_a_wait_that_timed_out_is_told_even_if_the_reason_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ff = Fabric("memory://")

    async def main() -> None:
        async with ff:
            run = await ff.submit("brief")

            async def explain(**_: Any) -> None:
                raise StoreUnavailable("down")

            monkeypatch.setattr(await ff.start(), "explain", explain)
            with pytest.raises(WaitTimeout, match=r"still waiting\. ") as caught:
                await run.result(timeout="10ms")
            assert caught.value.explanation == ""

    asyncio.run(main())


def test_a_handle_made_from_an_id_gives_the_typed_result() -> None:
    ff = Fabric("memory://")

    @ff.task
    async def order() -> Order:
        return Order("lamp", 1)

    @ff.task
    async def liar() -> int:
        return "three"  # type: ignore[return-value]

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(order)
            await run.result("60s")
            assert await ff.run(run.id, order).result() == Order("lamp", 1)
            assert await ff.run(run.id).result() == {"item": "lamp", "count": 1, "due": None}
            with pytest.raises(ResultMismatch, match="Expected `int`"):
                await (await ff.submit(liar)).result("60s")

    asyncio.run(main())


def test_a_flow_submitted_in_the_callers_transaction_exists_if_that_commits(
    postgres_url: str,
) -> None:
    """After a rollback the same flow can be submitted again: it was not remembered."""
    import asyncpg

    ff = Fabric(postgres_url)

    @ff.task
    def paint(count: int) -> int:
        return count

    async def main() -> None:
        async with ff:
            connection = await asyncpg.connect(postgres_url)
            with ff.flow("paints") as f:
                f.add(paint, count=f.add(paint, 1))
            transaction = connection.transaction()
            await transaction.start()
            lost = await f.submit(connection=connection)
            await transaction.rollback()
            async with connection.transaction():
                kept = await f.submit(connection=connection)
            await connection.close()
            assert set(await kept.nodes()) == {"paint", "paint-2"}
            assert (await kept.info()).node_count == 2
            with pytest.raises(NotFound):
                await lost.state()

    asyncio.run(main())


def test_work_submitted_in_the_callers_transaction_exists_if_that_commits(
    postgres_url: str,
) -> None:
    """Only Postgres can take part in a caller's transaction."""
    import asyncpg

    ff = Fabric(postgres_url)

    @ff.task
    def paint(count: int) -> None: ...

    async def main() -> None:
        async with ff:
            connection = await asyncpg.connect(postgres_url)
            transaction = connection.transaction()
            await transaction.start()
            lost = await ff.submit(paint, 1, connection=connection)
            await transaction.rollback()
            async with connection.transaction():
                kept = await ff.submit(paint, 2, connection=connection)
            await connection.close()
            assert await kept.state() is PublicState.WAITING
            with pytest.raises(NotFound):
                await lost.state()

    asyncio.run(main())
