"""Order and uniqueness as programs see them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric import Fabric, Run
from flowfabric.errors import InvalidInput
from flowfabric.model.results import Batched, Debounced, Existing
from flowfabric.sdk.errors import InvalidTask
from tests.sdk.workshop import working


def test_keys_are_computed_from_arguments() -> None:
    ff = Fabric("memory://")

    @ff.task(serial=lambda account: account, on_head_failure="hold")
    async def book(account: int, amount: int) -> None: ...

    async def main() -> None:
        async with ff:
            first, second = await book.submit(7, 1), await book.submit(7, 2)
            await book.options(serial="8").submit(7, 3)
            lines = (await (await ff.start()).list_lines()).items
            assert [(each.serial_key, each.waiting) for each in lines] == [("7", 1), ("8", 0)]
            assert (await second.explain()).line_head == first.id

    asyncio.run(main())


def test_answers_of_submits_are_told() -> None:
    ff = Fabric("memory://")

    @ff.task(unique=lambda repo: repo)
    async def index(repo: str) -> None: ...

    @ff.task(unique=lambda doc: doc, debounce="5m", debounce_max="1h")
    async def render(doc: int) -> None: ...

    @ff.task(unique=lambda: "rows", batch=(100, "2s"))
    async def store(rows: list[int]) -> None: ...

    async def main() -> None:
        async with ff:
            first = await index.submit("a")
            again = await index.submit("a")
            assert (first.is_new, again.is_new, again.answer) == (True, False, Existing(first.id))
            assert again == first
            assert (await index.submit("b")).is_new
            await render.submit(1)
            assert isinstance((await render.submit(1)).answer, Debounced)
            begun, joined = await ff.submit_many(store, [[1, 2], [3]])
            assert (begun.id, begun.batch_index, joined.batch_index) == (joined.id, 0, 2)
            assert joined.answer == Batched(begun.id, 2)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"on_head_failure": "hold"}, "on_head_failure"),
        ({"serial": "a", "on_head_failure": "stop"}, "on_head_failure"),
        ({"serial": ""}, "serial"),
        ({"fair": ""}, "fair"),
        ({"fair": lambda missing: missing}, "fair"),
        ({"debounce": "5m"}, "debounce"),
        ({"on_conflict": "replace"}, "on_conflict"),
        ({"unique": "a", "batch": 100}, "batch"),
        ({"unique": "a", "batch": (2, "1s"), "debounce": "1s"}, "^.*batch: give it or"),
        ({"unique": "a", "debounce_max": "1h"}, "debounce_max: needs"),
        ({"unique": "a", "debounce": "2m", "debounce_max": "1m"}, "debounce_max: needs"),
        ({"unique": "a", "debounce": "2m", "on_conflict": "refuse"}, "on_conflict: with"),
        ({"unique": "a", "batch": (2, "1s"), "while_": "unfinished"}, "while_: with"),
        ({"unique": lambda missing: missing}, "unique"),
    ],
)
def test_what_contradicts_is_refused_where_the_task_is_written(
    options: dict[str, Any], field: str
) -> None:
    async def work() -> None: ...

    with pytest.raises((InvalidInput, InvalidTask), match=field):
        Fabric("memory://").task(**options)(work)


def test_a_task_names_its_fair_key(url: str) -> None:
    """Computed from its arguments, or given with a submit; ties may come together."""
    ff = Fabric(url)

    @ff.task(fair=lambda customer: customer, serial=lambda page: page)
    async def crawl(customer: str, page: int) -> int:
        return page

    @ff.task(fair="all")
    async def plain() -> None: ...

    async def main() -> None:
        async with ff:
            runs: list[Run[Any]] = [
                await crawl.submit("acme", 1),
                await crawl.options(fair="bolt").submit("acme", 2),
                await ff.submit(plain, fair="own"),
                await plain.submit(),
            ]
            infos = [await each.info() for each in runs]
            assert [each.fair_key for each in infos] == ["acme", "bolt", "own", "all"]
            assert infos[0].serial_key == "1"
            assert (await runs[0].explain()).fair_key == "acme"
            lane = await ff.configure_lane("default", fair_weights={"acme": 3})
            assert lane.fair_weights == {"acme": 3}
            async with working(ff):
                assert await runs[1].result("30s") == 2

    asyncio.run(main())
