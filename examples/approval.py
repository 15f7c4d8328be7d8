"""A release that two people must approve: a forged link, a duplicate and somebody who is late.

Runs by itself, on a SQLite file or where FLOWFABRIC_URL says. See docs/guides/suspension.md.
"""

import asyncio
from dataclasses import dataclass, replace

from flowfabric import (
    Context,
    Fabric,
    FlowFabricError,
    PublicState,
    Run,
    Token,
    Waitpoint,
    Worker,
    count,
)

ff = Fabric()  # sqlite:///flowfabric.db, or what FLOWFABRIC_URL names
mailbox: list[Waitpoint] = []  # stands for the mail your reviewers get


@dataclass
class Verdict:
    """What a reviewer sends."""

    checked: int
    note: str = ""


@ff.task
async def deploy(ctx: Context, version: str) -> str:
    """Ask, end here without a worker, and go on when two different people have approved."""
    if not ctx.resumed:
        review = await ctx.waitpoint("deploy", expires="1h", expect=Verdict)
        mailbox.append(review)
        await ctx.suspend(
            count(2, review, name="approved", sources=True),
            reason="approval",
            timeout="2d",
            on_timeout="cancel",
        )
    verdicts = [(each.source, each.payload_as(Verdict)) for each in ctx.signals]
    notes = ", ".join(f"{who} ({verdict.note})" for who, verdict in verdicts)
    return f"{version} is deployed, approved by {notes}"


async def approve(link: str, reviewer: str, verdict: object, key: str | None = None) -> None:
    """What your web application does with a click. It knows who is logged in, so it says who."""
    try:
        answer = await ff.signal(
            link, "approved", verdict, source=f"user:{reviewer}", idempotency_key=key
        )
    except FlowFabricError as error:
        print(f"  {reviewer}: refused, {error}")
    else:
        print(f"  {reviewer}: {answer.effect.value}")


def tampered(review: Waitpoint) -> str:
    """A link whose token differs in one digit."""
    token = review.token.reveal()
    last = "0" if token[-1] != "0" else "1"
    return replace(review, token=Token(token[:-1] + last)).link()


async def suspended(run: Run[str]) -> None:
    """Return when the run waits."""
    while await run.state() is not PublicState.SUSPENDED:  # noqa: ASYNC110 - a person would look
        await asyncio.sleep(0.02)


async def main() -> None:
    async with ff:
        worker = Worker(ff)
        working = asyncio.create_task(worker.run())
        run = await deploy.submit("1.4.0")
        await suspended(run)
        (review,) = mailbox
        link = review.link()
        print(f"asked: {(await run.explain()).summary}")

        print("a forged link opens nothing:")
        await approve(tampered(review), "mallory", Verdict(checked=0))
        print("a payload of the wrong type is refused, the wait goes on:")
        await approve(link, "ada", {"checked": "everything"})
        print("ada approves, and clicks again, and her browser repeats the request:")
        await approve(link, "ada", Verdict(checked=12, note="tests are green"), key="click-1")
        await approve(link, "ada", Verdict(checked=12, note="really"), key="click-2")
        await approve(link, "ada", Verdict(checked=12, note="tests are green"), key="click-1")
        print(f"still: {(await run.explain()).summary}")
        print("grace approves:")
        await approve(link, "grace", Verdict(checked=3, note="looks good"))
        print(f"result: {await run.result(timeout='30s')}")
        print("joan is late:")
        await approve(link, "joan", Verdict(checked=1))

        worker.stop()
        await working


if __name__ == "__main__":
    asyncio.run(main())
