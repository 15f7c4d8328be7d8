"""The smallest program: a task, a worker beside it, a result. Run it, kill it, run it again."""

import asyncio

from flowfabric import Fabric, Worker

ff = Fabric()  # sqlite:///flowfabric.db, or what FLOWFABRIC_URL names


@ff.task(retries=3)
async def hello(name: str) -> str:
    return f"hello, {name}"


async def main() -> None:
    async with ff:
        worker = Worker(ff)
        working = asyncio.create_task(worker.run())
        run = await hello.submit("world")
        print(await run.result(timeout="30s"))
        worker.stop()
        await working


if __name__ == "__main__":
    asyncio.run(main())
