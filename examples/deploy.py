"""Build, test three ways at once, ask a person, deploy; and the same when a test fails.

Runs by itself, on a SQLite file or where FLOWFABRIC_URL says. See docs/guides/flows.md.
"""

import asyncio
from uuid import uuid4

from flowfabric import (
    Context,
    Fabric,
    Fatal,
    FlowFailed,
    FlowRun,
    PublicState,
    Worker,
    all_done,
    approval,
)

BUILD = uuid4().hex[:6]  # a repeated submit of this build is the same flow
ff = Fabric()  # sqlite:///flowfabric.db, or what FLOWFABRIC_URL names
repaired: set[str] = set()  # stands for what somebody does about a failure


@ff.task
async def build(version: str) -> str:
    return f"app-{version}.tar"


@ff.task
async def test(artifact: str, suite: str) -> str:
    """Gets what the build gave. The browser tests of 2.0 fail until somebody repairs them."""
    await asyncio.sleep(0.05)
    if suite == "e2e" and "2.0" in artifact and artifact not in repaired:
        raise Fatal("the login page is blank")
    return f"{suite} ok"


@ff.task
async def deploy(ctx: Context, artifact: str, tests: list[str]) -> str:
    """Runs when all tests have passed, and waits for a person without a worker."""
    if not ctx.resumed:
        await ctx.suspend(approval("deploy"), timeout="1d", on_timeout="cancel")
    if ctx.signals[-1].name == "rejected":
        raise Fatal("not approved")
    return f"{artifact} is deployed: {', '.join(tests)}; approved by {ctx.signals[-1].source}"


@ff.task
async def report(version: str) -> str:
    """Runs in any case."""
    return f"the pipeline of {version} is over"


async def submit(version: str) -> FlowRun:
    with ff.flow("deploy", key=f"deploy-{version}-{BUILD}", tags={"release.version": version}) as f:
        built = f.add(build, version)
        tests = [f.add(test, built, suite, name=suite) for suite in ("unit", "integration", "e2e")]
        deployed = f.add(deploy, built, tests=tests)
        f.add(report, version, after=all_done(deployed))
    return await f.submit()


async def follow(run: FlowRun) -> None:
    """What happens, as it happens; and the person who is asked."""
    nodes = await run.nodes()
    async for node in run.watch():
        if node.state in (PublicState.WAITING, PublicState.WAITING_CHILDREN, PublicState.ACTIVE):
            continue
        print(f"  {node.name:12} {node.state.value:10} {node.reason}".rstrip())
        if node.state is PublicState.SUSPENDED:
            await ff.approve(nodes[node.name], "deploy", by="ada")
            print("  ada approves")


async def main() -> None:
    async with ff:
        worker = Worker(ff)
        working = asyncio.create_task(worker.run())

        print("version 1.0:")
        run = await submit("1.0")
        await follow(run)
        print(f"  {(await run.result())['deploy']}")

        print("version 2.0, with a test that fails:")
        run = await submit("2.0")
        await follow(run)
        try:
            await run.result()
        except FlowFailed as error:
            for name, why in error.failures.items():
                print(f"  {name}: {why}")

        print("the test is repaired; what failed and what it skipped run again, nothing else:")
        repaired.add("app-2.0.tar")
        print(f"  again: {', '.join(await run.retry())}")
        await follow(run)
        print(f"  {(await run.result())['deploy']}")

        worker.stop()
        await working


if __name__ == "__main__":
    asyncio.run(main())
