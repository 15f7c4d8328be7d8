"""Count words on a thousand pages and add the counts up: map and reduce, in one submit.

Runs by itself, on a SQLite file or where FLOWFABRIC_URL says. See docs/guides/flows.md.
"""

import asyncio
from time import perf_counter

from flowfabric import Context, Fabric, Worker

ff = Fabric()  # sqlite:///flowfabric.db, or what FLOWFABRIC_URL names
PAGES = 1_000


@ff.task
async def count_words(page: int) -> dict[str, int]:
    """Stands for reading a page."""
    text = f"flow fabric {'even' if page % 2 == 0 else 'odd'} flow"
    return {word: text.split().count(word) for word in set(text.split())}


@ff.task
async def add_up(counts: list[dict[str, int]]) -> dict[str, int]:
    """Gets every result, in the order of the nodes."""
    total: dict[str, int] = {}
    for count in counts:
        for word, number in count.items():
            total[word] = total.get(word, 0) + number
    return dict(sorted(total.items()))


@ff.task
async def word_of_each(ctx: Context, pages: int) -> int:
    """The same from inside a handler, which decides at run time how many children it needs."""
    children = await ctx.spawn_many(count_words, range(pages))
    counts = await ctx.gather(*children)  # ends here, and begins again when they are done
    return sum(len(count) for count in counts)


async def main() -> None:
    async with ff:
        worker = Worker(ff, concurrency=200)
        working = asyncio.create_task(worker.run())

        began = perf_counter()
        with ff.flow("count words") as f:
            pages = f.map(count_words, range(PAGES))
            f.add(add_up, counts=pages)
        run = await f.submit()
        submitted = perf_counter()
        print(f"submitted {PAGES} pages and what adds them up in {submitted - began:.2f} s")
        results = await run.result(timeout="1m")
        print(f"done in {perf_counter() - submitted:.2f} s: {results['add_up']}")

        parent = await word_of_each.submit(100)
        print(f"a handler with 100 children: {await parent.result(timeout='1m')} words")

        worker.stop()
        await working


if __name__ == "__main__":
    asyncio.run(main())
