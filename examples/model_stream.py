"""A model whose tokens stream to two readers, one of which is killed and goes on where it was.

Runs by itself, on a SQLite file or where FLOWFABRIC_URL says. See docs/guides/streams.md.
"""

import asyncio
import subprocess
import sys

from flowfabric import Context, Fabric, Worker

ff = Fabric()  # sqlite:///flowfabric.db, or what FLOWFABRIC_URL names

TEXT = "The sky is blue because air scatters short waves of light more than long ones"
ANSWER = TEXT.split()


@ff.task
async def answer(ctx: Context, question: str) -> str:
    """Stands for a model that answers token by token."""
    await ctx.summary({"question": question, "answer": ""})
    for token in ANSWER:
        await ctx.emit(token, "token")
        await ctx.summary(append={"answer": f"{token} "})
        await asyncio.sleep(0.05)
    return TEXT


async def read(run_id: str, after: str | None) -> None:
    """A reader in a process of its own: prints each token with its place."""
    async with ff:
        async for frame in ff.run(run_id).stream(after=after or None):
            if frame.frame_type == "token":
                print(frame.cursor, frame.text, flush=True)


def reader(run_id: str, after: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, __file__, run_id, after]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def mortal_reader(run_id: str) -> list[str]:
    """Kill the reader after five tokens, and start another one after the last place it printed."""
    first = reader(run_id)
    assert first.stdout is not None
    lines = [await asyncio.to_thread(first.stdout.readline) for _ in range(5)]
    first.kill()
    first.wait()
    print(f"  reader 1: killed after {len(lines)} tokens")
    second = reader(run_id, after=lines[-1].split()[0])
    rest, _ = await asyncio.to_thread(second.communicate)
    print(f"  reader 1: went on with {len(rest.splitlines())} more")
    return [line.split()[1] for line in [*lines, *rest.splitlines()]]


async def steady_reader(run_id: str) -> list[str]:
    frames = ff.run(run_id).stream()
    tokens = [frame.text async for frame in frames if frame.frame_type == "token"]
    print(f"  reader 2: read {len(tokens)} tokens")
    return tokens


async def main() -> None:
    async with ff:
        worker = Worker(ff)
        working = asyncio.create_task(worker.run(handle_signals=False))
        run = await answer.submit("why is the sky blue?")
        print("two readers follow the answer:")
        one, two = await asyncio.gather(mortal_reader(run.id), steady_reader(run.id))
        print("both read:", "the same" if one == two == ANSWER else f"{one} and {two}")
        print("the summary:", (await run.summary())["answer"].strip())
        worker.stop()
        await working


if __name__ == "__main__":
    asyncio.run(read(*sys.argv[1:]) if len(sys.argv) > 1 else main())
