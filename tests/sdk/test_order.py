"""Order and uniqueness as programs see them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric import Fabric
from flowfabric.errors import InvalidInput
from flowfabric.model.results import Batched, Debounced, Existing
from flowfabric.sdk.errors import InvalidTask


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
        ({"debounce": "5m"}, "debounce"),
        ({"on_conflict": "replace"}, "on_conflict"),
        ({"unique": "a", "batch": 100}, "batch"),
        ({"unique": lambda missing: missing}, "unique"),
    ],
)
def test_what_contradicts_is_refused_where_the_task_is_written(
    options: dict[str, Any], field: str
) -> None:
    async def work() -> None: ...

    with pytest.raises((InvalidInput, InvalidTask), match=field):
        Fabric("memory://").task(**options)(work)
