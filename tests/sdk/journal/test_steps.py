"""Steps: recorded once, replayed by every later run of their handler."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections import Counter
from typing import Any

import pytest

from flowfabric import (
    Context,
    Fabric,
    InvalidInput,
    OutsideScope,
    RetryPolicy,
    RunFailed,
    SyncContext,
    current_step,
)
from flowfabric.model.journal import CodeMark, EntryKind
from flowfabric.sdk.errors import InvalidTask
from tests.sdk.journal.bench import journal, keys, worked


def returns_nothing() -> Any:
    return None


@dataclasses.dataclass
class Page:
    url: str
    links: tuple[str, ...]


def test_retry_keeps_steps(url: str) -> None:
    """7.1.2: a step that ended the attempt runs again, those before it do not."""
    ff, ran = Fabric(url), Counter[str]()

    @ff.step
    async def work(name: str) -> str:
        ran[name] += 1
        if name == "three" and ran[name] == 1:
            raise ConnectionError("once")
        return name

    @ff.task(retries=1, backoff="1ms")
    async def chain() -> list[str]:
        return [await work("one"), await work("two"), await work("three")]

    async def main(ff: Fabric) -> None:
        assert await (await ff.submit(chain)).result() == ["one", "two", "three"]
        assert ran == {"one": 1, "two": 1, "three": 2}

    worked(ff, main)


def test_a_handler_without_steps_has_no_journal(url: str) -> None:
    ff = Fabric(url)

    @ff.task(retries=1, backoff="1ms")
    async def plain(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise ValueError("again")
        return ctx.attempt

    async def main(ff: Fabric) -> None:
        run = await ff.submit(plain)
        assert await run.result() == 2
        assert await journal(ff, run) == ()

    worked(ff, main)


def test_a_step_outside_of_a_handler_is_the_function_it_was() -> None:
    ff = Fabric("memory://")

    @ff.step
    def double(n: int) -> int:
        return 2 * n

    @ff.step(retries=3)
    async def triple(n: int) -> int:
        return 3 * n

    assert double(4) == 8
    assert double.options(key="x")(4) == 8
    assert asyncio.run(triple(4)) == 12
    with pytest.raises(OutsideScope, match="later"):
        double.later(4)
    with pytest.raises(OutsideScope, match="no step runs here"):
        current_step()


def test_values_come_back_typed_and_the_same_in_every_run(url: str) -> None:
    """What JSON changes, it changes at once: the first run sees what later ones will."""
    ff, seen = Fabric(url), list[Any]()

    @ff.step
    async def fetch(url: str) -> Page:
        return Page(url, ("a", "b"))

    @ff.task(retries=1, backoff="1ms")
    async def read(ctx: Context) -> None:
        page = await fetch("x")
        pair = await ctx.step("pair", lambda: (1, {2: "two"}))
        big = await ctx.step("big", lambda: 2**70)
        nothing: Any = await ctx.step("none", returns_nothing)
        seen.append((page, pair, big, nothing))
        if ctx.attempt == 1:
            raise ValueError("again")

    async def main(ff: Fabric) -> None:
        await (await ff.submit(read)).result()
        assert seen[0] == seen[1] == (Page("x", ("a", "b")), [1, {"2": "two"}], 2**70, None)

    worked(ff, main)


def test_chance_and_time_are_the_same_in_every_run(url: str) -> None:
    ff, seen = Fabric(url), list[Any]()

    @ff.task(retries=2, backoff="1ms")
    async def guess(ctx: Context) -> None:
        facts = [await ctx.now(), ctx.uuid(), ctx.uuid(), ctx.random.random(), ctx.random.random()]
        facts.append(await ctx.value("choice", lambda: len(seen)))
        seen.append(facts)
        if len(seen) < 3:
            raise ValueError("again")

    async def main(ff: Fabric) -> None:
        run = await ff.submit(guess)
        await run.result()
        assert seen[0] == seen[1] == seen[2]
        assert len({*map(str, seen[0])}) == 6
        other = await ff.submit(guess)
        await other.result()
        assert seen[3][1:5] != seen[0][1:5]
        found = [(each.key, each.kind) for each in await journal(ff, run)]
        assert found == [("now", EntryKind.VALUE), ("choice", EntryKind.VALUE)]

    worked(ff, main)


def test_keys_tell_calls_apart(url: str) -> None:
    ff = Fabric(url)

    @ff.step
    async def fetch(n: int) -> int:
        return n

    @ff.task
    async def read(ctx: Context) -> None:
        await fetch(1)
        await fetch(2)
        await fetch.options(key="user-7")(3)
        await ctx.step("other", fetch.function, 4)
        await ctx.step.options(key="a b")("other", fetch.function, 5)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(read)
        await run.result()
        assert await keys(ff, run) == ["fetch", "fetch#2", "fetch[user-7]", "other", "other[a b]"]
        assert [each.asked for each in await journal(ff, run)] == [0, 1, 2, 3, 4]
        assert (await journal(ff, run))[0].code == CodeMark()

    worked(ff, main)


def test_the_idempotency_key_is_the_same_on_every_try_and_attempt(url: str) -> None:
    """7.1.20."""
    ff, seen = Fabric(url), []

    @ff.step(retries=1, backoff="1ms")
    async def charge(n: int) -> None:
        seen.append((current_step().key, current_step().idempotency_key, current_step().attempt))
        if len(seen) < 4:
            raise ConnectionError("no")

    @ff.task(retries=1, backoff="1ms")
    async def order() -> None:
        await charge(1)
        await charge(2)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(order)
        await run.result()
        first, second = seen[:4], seen[4:]
        assert [each[2] for each in first] == [1, 2, 1, 2]
        assert len({each[:2] for each in first}) == 1
        assert second[0][0] == "charge#2"
        assert second[0][1] != first[0][1]
        await run.retry(fresh=True)
        await run.result()
        assert seen[-2][:2] == first[0][:2]
        other = await ff.submit(order)
        await other.result()
        assert seen[-2][1] != first[0][1]

    worked(ff, main)


def test_a_secret_is_shown_nowhere_and_replayed_all_the_same(url: str) -> None:
    ff, seen = Fabric(url), list[str]()

    @ff.step(secret=True)
    async def token() -> str:
        return f"hush-{len(seen)}"

    @ff.task(retries=1, backoff="1ms")
    async def use(ctx: Context) -> None:
        seen.append(await token())
        if ctx.attempt == 1:
            raise ValueError("again")

    async def main(ff: Fabric) -> None:
        run = await ff.submit(use)
        await run.result()
        assert seen == ["hush-0", "hush-0"]
        (entry,) = await journal(ff, run)
        assert (entry.value, entry.is_secret) == (None, True)

    worked(ff, main)


def test_a_plain_function_does_not_block_an_async_handler(url: str) -> None:
    ff, entered, release = Fabric(url), asyncio.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    @ff.step
    def block() -> str:
        asyncio.run_coroutine_threadsafe(signal(), loops[0]).result(30)
        return "done"

    async def signal() -> None:
        entered.set()
        await release.wait()

    @ff.task
    async def handle(ctx: Context) -> str:
        return await ctx.step("block", block.function)

    async def main(ff: Fabric) -> None:
        loops.append(asyncio.get_running_loop())
        run = await ff.submit(handle)
        await entered.wait()
        release.set()
        assert await run.result() == "done"

    worked(ff, main)


def test_a_worker_leaves_no_thread_behind(url: str) -> None:
    ff, threads = Fabric(url), []

    def note() -> None:
        threads.append(threading.current_thread())

    @ff.task
    async def handle(ctx: Context) -> None:
        await ctx.step("note", note)

    async def main(ff: Fabric) -> None:
        await (await ff.submit(handle)).result()

    worked(ff, main)
    (thread,) = threads
    thread.join(timeout=30)
    assert not thread.is_alive()


def test_steps_of_a_sync_handler_run_in_its_own_thread(url: str) -> None:
    ff, threads = Fabric(url), []

    @ff.step
    def note(n: int) -> int:
        threads.append(threading.get_ident())
        return n

    @ff.step
    async def wait(n: int) -> int:
        await asyncio.sleep(0)
        return n

    @ff.task(retries=1, backoff="1ms")
    def handle(ctx: SyncContext) -> list[Any]:
        before = threading.get_ident()
        found = [note(1), wait(2), ctx.step("three", lambda: 3), ctx.value("four", lambda: 4)]
        if ctx.attempt == 1:
            assert threads == [before]
            raise ValueError("again")
        return [*found, ctx.is_replaying]

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        assert await run.result() == [1, 2, 3, 4, False]
        assert len(threads) == 1
        assert await keys(ff, run) == ["note", "wait", "three", "four"]

    worked(ff, main)


def test_a_call_that_is_never_awaited_is_told(url: str, caplog: pytest.LogCaptureFixture) -> None:
    ff = Fabric(url)

    @ff.step
    async def work() -> None: ...

    @ff.task
    async def forgetful() -> None:
        work()  # type: ignore[unused-coroutine]

    async def main(ff: Fabric) -> None:
        run = await ff.submit(forgetful)
        await run.result()
        assert await journal(ff, run) == ()

    worked(ff, main)
    assert "was never awaited" in caplog.text


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "an empty name": ({"name": ""}, InvalidInput, "name"),
    "a slash": ({"name": "a/b"}, InvalidInput, "name"),
    "a number": ({"name": "a#2"}, InvalidInput, "name"),
    "a bracket": ({"name": "a[b]"}, InvalidInput, "name"),
    "a long name": ({"name": "x" * 257}, InvalidInput, "name"),
    "no text": ({"name": 5}, InvalidInput, "name"),
    "a bracket in a key": ({"key": "a]"}, InvalidInput, "key"),
    "below zero": ({"retries": -1}, InvalidInput, "max_retries"),
    "two policies": (
        {"retries": RetryPolicy(max_retries=1), "backoff": "1s"},
        InvalidInput,
        "retries",
    ),
    "no duration": ({"timeout": "soon"}, InvalidInput, "timeout"),
    "no flag": ({"effects": "no"}, InvalidInput, "effects"),
    "no class": ({"raises": [5]}, InvalidInput, "raises"),
    "no word": ({"compare": "shape"}, InvalidInput, "compare"),
    "an unknown option": ({"colour": "red"}, InvalidTask, "colour"),
    "a former name": ({"was": "a/b"}, InvalidInput, "was"),
}


@pytest.mark.parametrize("case", WRONG)
def test_bad_options_are_refused_when_decorated(case: str) -> None:
    options, error, field = WRONG[case]

    async def work() -> None: ...

    with pytest.raises(error) as caught:
        Fabric("memory://").step(**options)(work)
    assert field in str(caught.value)


def test_a_function_that_is_none_is_refused(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def handle(ctx: Context) -> None:
        await ctx.step("work", 5)  # type: ignore[call-overload]

    async def main(ff: Fabric) -> None:
        with pytest.raises(RunFailed, match="is not a function"):
            await (await ff.submit(handle)).result()

    worked(ff, main)


def test_what_json_changes_is_changed_in_the_first_run_too(url: str) -> None:
    ff, seen = Fabric(url), list[Any]()

    @ff.task(retries=1, backoff="1ms")
    async def measure(ctx: Context) -> None:
        values = [float("nan"), float("inf"), 1.5, 2**70, (1, 2)]
        seen.append([await ctx.step("value", lambda: each) for each in values])  # noqa: B023
        if ctx.attempt == 1:
            raise ValueError("again")

    async def main(ff: Fabric) -> None:
        await (await ff.submit(measure)).result()
        assert seen == [[None, None, 1.5, 2**70, [1, 2]]] * 2

    worked(ff, main)
