"""Code that does not fit its journal: held with a reason, never mixed up, and released."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import asyncpg
import pytest

from flowfabric import Context, Fabric, PublicState, Run, RunFailed
from flowfabric.errors import InvalidInput
from flowfabric.model.journal import EntryKind
from flowfabric.model.state import BlockingReason
from tests.sdk.journal.bench import attempts, journal, keys, worked
from tests.sdk.workshop import until, working

Body = Callable[[Context], Any]


def versions(url: str, *bodies: Body) -> tuple[Fabric, Any, list[int]]:
    """A task whose code changes between its attempts: the first one fails at its end."""
    ff, version = Fabric(url), [0]

    @ff.task(retries=len(bodies), backoff="1ms")
    async def handle(ctx: Context) -> Any:
        body = bodies[min(version[0], len(bodies) - 1)]
        result = await body(ctx)
        if version[0] == 0:
            version[0] = 1
            raise ValueError("the code is changed now")
        return result

    return ff, handle, version


def steps(*names: Any) -> Body:
    """A handler that makes these calls: names, or (name, argument)."""

    async def body(ctx: Context) -> list[Any]:
        found = []
        for name in names:
            word, argument = name if isinstance(name, tuple) else (name, 0)
            found.append(await ctx.step(word, made, word, argument))
        return found

    return body


RAN: list[Any] = []


async def made(word: str, argument: int) -> str:
    RAN.append(word)
    return f"{word}{argument}"


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


async def held(run: Run[Any]) -> str:
    """Why it is held, once it is."""

    async def is_held() -> bool:
        return await run.state() is PublicState.SUSPENDED

    await until(is_held)
    return (await run.explain()).summary


@pytest.mark.parametrize(
    ("before", "after", "ran", "unused"),
    [
        (steps("a", "b", "c"), steps("a", "b", "c", "d"), "abcd", ""),  # added at the end
        (steps("a", "b", "c"), steps("a", "c"), "abc", "b"),  # removed
        (steps("a", "b", "c"), steps("c"), "abc", "ab"),
        (steps("a", "b", "c"), steps("c", "b", "a"), "abc", ""),  # another order
        (steps("a", "b", "c"), steps("a", "b", "c"), "abc", ""),
    ],
)
def test_changes_that_need_nothing(
    url: str, before: Body, after: Body, ran: str, unused: str, caplog: pytest.LogCaptureFixture
) -> None:
    """7.1.25, its first half: what the code asks for no more is marked, and warned of once."""
    ff, handle, _ = versions(url, before, after)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        await run.result()
        assert "".join(RAN) == ran
        marks = [each for each in await journal(ff, run) if each.kind is EntryKind.UNUSED]
        assert [json.loads(each.value or b"") for each in marks] == ([[*unused]] if unused else [])
        warnings = [each for each in caplog.messages if "not asked for" in each]
        assert len(warnings) == len(marks)

    worked(ff, main)


@pytest.mark.parametrize(
    ("after", "word"),
    [
        (steps("x", "a", "b", "c"), "'x' stands where the recorded call 'a'"),
        (steps("a", "x", "b", "c"), "'x' stands where the recorded call 'b'"),
        (steps("a", "b2", "c"), "'b2' stands where the recorded call 'b'"),
        (steps("a", ("b", 1), "c"), "'b' is recorded with other arguments"),
        (steps("a", ("b", 1), "c"), "; argument 2 was 0, is 1"),
    ],
)
def test_changes_that_are_held(url: str, after: Body, word: str) -> None:
    """7.1.26, 7.1.27: no retry is used, nothing is run, and code that fits completes it."""
    ff, handle, version = versions(url, steps("a", "b", "c"), after, steps("a", "b", "c", "d"))

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        assert word in await held(run)
        assert "".join(RAN) == "abc"
        version[0] = 2
        engine = await ff.start()
        await engine.release_execution(execution_id=run.id)
        assert await run.result() == ["a0", "b0", "c0", "d0"]
        assert "".join(RAN) == "abcd"
        assert len(await attempts(ff, run)) == 2

    worked(ff, main)


async def _a(ctx: Context) -> Any:
    return await ctx.step("a", made, "a", 0)


def race(*names: str) -> Body:
    """A handler that waits for the first of these."""

    async def body(ctx: Context) -> list[Any]:
        calls: dict[str, Callable[[], Any]] = {
            "step": lambda: ctx.step("a", made, "a", 0),
            "other": lambda: _a(ctx),
            "sleep": lambda: ctx.sleep("1h"),
            "wait": lambda: ctx.wait_for("reply"),
        }
        return list(await ctx.first_of(*(calls[name]() for name in names)))

    return body


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (race("step", "sleep"), race("sleep", "step")),
        (race("sleep", "step"), race("sleep")),
        (race("other", "sleep"), race("wait", "other")),
    ],
)
def test_a_race_that_another_would_have_won_is_held(
    url: str, before: Body, after: Body, caplog: pytest.LogCaptureFixture
) -> None:
    ff, handle, version = versions(url, before, after, before)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        assert "of several won here before" in await held(run)
        version[0] = 2
        engine = await ff.start()
        await engine.release_execution(execution_id=run.id)
        assert (await run.result())[1] == "a0"
        assert RAN == ["a"]

    worked(ff, main)


def test_a_call_before_a_wait_that_has_not_ended_is_held(url: str) -> None:
    ff, added = Fabric(url), False

    async def left(ctx: Context) -> None:
        async with ctx.branch("left"):
            if added:
                await ctx.step("x", made, "x", 0)
            await ctx.sleep("1h")

    @ff.task(retries=1, backoff="1ms")
    async def handle(ctx: Context) -> None:
        nonlocal added
        async with asyncio.TaskGroup() as group:
            group.create_task(left(ctx))
            for name in "ab":
                await ctx.step(name, made, name, 0)
            await ctx.flush()
            if not added:
                added = True
                raise ValueError("the code is changed now")

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        assert "'left/x' stands where the recorded call 'left/sleep'" in await held(run)
        assert RAN == ["a", "b"]

    worked(ff, main)


def test_code_that_still_does_not_fit_is_held_again(url: str) -> None:
    ff, handle, _ = versions(url, steps("a", "b"), steps("x", "a", "b"))

    async def main(ff: Fabric) -> None:
        engine = await ff.start()
        run = await ff.submit(handle)
        await held(run)
        first = (await run.info()).last_transition_at
        await engine.release_execution(execution_id=run.id)

        async def is_held_again() -> bool:
            info = await run.info()
            return info.public_state is PublicState.SUSPENDED and info.last_transition_at > first

        await until(is_held_again)
        assert "".join(RAN) == "ab"

    worked(ff, main)


def test_a_renamed_step_says_what_it_was(url: str) -> None:
    async def renamed(ctx: Context) -> list[Any]:
        found = [await ctx.step("a", made, "a", 0)]
        found.append(await ctx.step.options(was="b")("b2", made, "b", 0))
        return [*found, await ctx.step("c", made, "c", 0)]

    ff, handle, _ = versions(url, steps("a", "b", "c"), renamed)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        assert await run.result() == ["a0", "b0", "c0"]
        assert "".join(RAN) == "abc"
        assert await keys(ff, run) == ["a", "b", "c"]

    worked(ff, main)


def test_another_kind_under_the_same_key_is_held(url: str) -> None:
    async def value(ctx: Context) -> Any:
        return await ctx.value("a", lambda: 1)

    ff, handle, _ = versions(url, steps("a"), value)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        assert "is recorded as step" in await held(run)

    worked(ff, main)


def test_a_result_of_another_type_is_held(url: str) -> None:
    async def typed(ctx: Context) -> Any:
        return await ctx.step("a", counted, "a", 0)

    async def counted(word: str, argument: int) -> int:
        return argument

    ff, handle, _ = versions(url, steps("a"), typed)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        assert "not of the annotated type" in await held(run)

    worked(ff, main)


def test_except_exception_does_not_swallow_a_mismatch(url: str) -> None:
    async def greedy(ctx: Context) -> Any:
        try:
            await ctx.step("x", made, "x", 0)
        except Exception:  # noqa: BLE001 - on purpose
            return "swallowed"

    ff, handle, _ = versions(url, steps("a"), greedy)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        assert "stands where" in await held(run)
        assert len(await journal(ff, run)) == 1

    worked(ff, main)


def test_a_step_that_compares_names_only_takes_other_arguments(url: str) -> None:
    async def loose(ctx: Context) -> Any:
        step = ctx.step.options(compare="name")
        return [await step("a", made, "a", 7), await ctx.step("b", made, "b", 0)]

    ff, handle, _ = versions(url, steps("a", "b"), loose)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        assert await run.result() == ["a0", "b0"]

    worked(ff, main)


def test_a_mismatch_in_a_group_of_tasks_is_held_too(url: str) -> None:
    """A `TaskGroup` raises it in a group of exceptions."""
    ff, names = Fabric(url), ["old"]

    async def side(ctx: Context) -> None:
        async with ctx.branch("left"):
            for name in names:
                await ctx.step(name, made, name, 0)

    @ff.task(retries=5, backoff="1ms")
    async def handle(ctx: Context) -> int:
        async with asyncio.TaskGroup() as group:
            group.create_task(side(ctx))
        if names == ["old"]:
            names.insert(0, "new")
            raise ValueError("the code is changed now")
        return ctx.attempt

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)

        async def has_come_to_rest() -> bool:
            state = (await run.info()).public_state
            return state in (PublicState.SUSPENDED, PublicState.FAILED)

        await until(has_come_to_rest)
        info = await run.info()
        assert (info.public_state, info.retry_count) == (PublicState.SUSPENDED, 1)

    worked(ff, main)


def test_a_patch_applies_to_new_runs_and_not_to_those_that_were_further(url: str) -> None:
    """7.1.28: stable over replays; deleted later, runs with the marker complete."""

    async def patched(ctx: Context) -> list[Any]:
        found = [await ctx.step("a", made, "a", 0)]
        if ctx.patched("check"):
            found.append(await ctx.step("x", made, "x", 0))
        return [*found, await ctx.step("b", made, "b", 0), ctx.patched("check")]

    ff, handle, version = versions(url, steps("a", "b"), patched, steps("a", "x", "b"))

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        assert await run.result() == ["a0", "b0", False]
        assert "".join(RAN) == "ab"
        version[0] = 1
        new = await ff.submit(handle)
        assert await new.result() == ["a0", "x0", "b0", True]
        assert await keys(ff, new) == ["a", "patch:check", "x", "b"]
        await new.retry()
        assert await new.result() == ["a0", "x0", "b0", True]
        version[0] = 2
        await new.retry()
        assert await new.result() == ["a0", "x0", "b0"]
        assert "".join(RAN) == "abaxb"

    worked(ff, main)


@pytest.mark.parametrize("name", ["", "a/b", "x" * 129])
def test_a_name_of_a_change_that_is_none_is_refused(url: str, name: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def handle(ctx: Context) -> str:
        try:
            ctx.patched(name)
        except InvalidInput as error:
            return str(error.fields["field"])
        return "taken"

    async def main(ff: Fabric) -> None:
        assert await (await ff.submit(handle)).result() == "patched"

    worked(ff, main)


def test_a_removed_call_says_so_where_it_looks_like_a_renamed_one(url: str) -> None:
    """7.1.25, its second half: removed right before the end of what is recorded."""

    async def told(ctx: Context) -> list[Any]:
        found = [await ctx.step("a", made, "a", 0)]
        ctx.removed("b")
        return [*found, await ctx.step("c", made, "c", 0)]

    ff, handle, version = versions(url, steps("a", "b"), steps("a", "c"), told)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        assert "'c' stands where the recorded call 'b'" in await held(run)
        version[0] = 2
        engine = await ff.start()
        await engine.release_execution(execution_id=run.id)
        assert await run.result() == ["a0", "c0"]
        assert "".join(RAN) == "abc"

    worked(ff, main)


def test_the_hold_tells_both_versions_and_the_ways_out(durable_url: str) -> None:
    def app(version: str, *names: str) -> tuple[Fabric, Any]:
        ff = Fabric(durable_url)

        @ff.task(version=version)
        async def handle(ctx: Context) -> Any:
            found = await steps(*names)(ctx)
            await ctx.wait_for("go", timeout="1h")
            return found

        return ff, handle

    old, handle = app("2", *"abcde")
    new, _ = app("3", *"abcdx")

    async def main() -> None:
        async with old, new:
            run = await old.submit(handle)
            async with working(old):

                async def waits() -> bool:
                    return await run.state() is PublicState.SUSPENDED

                await until(waits)
            await old.signal(run, "go")
            async with working(new):
                said = await held(run)
            assert "'x' stands where the recorded call 'e' is expected" in said
            assert "answered before it: b, c, d" in said
            assert "recorded by version 2, met by version 3" in said
            hints = (await run.explain()).hints
            for way in ("ff release", "ff fork", "--fresh"):
                assert any(way in hint for hint in hints)

    asyncio.run(main())


def test_a_task_may_fail_by_a_mismatch_instead(url: str) -> None:
    ff = Fabric(url)
    is_changed: list[int] = []

    @ff.task(retries=5, backoff="1ms", on_mismatch="fail")
    async def handle(ctx: Context) -> Any:
        if is_changed:
            await ctx.step("new", made, "new", 0)
        await ctx.step("old", made, "old", 0)
        is_changed.append(1)
        raise ValueError("the code is changed now")

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        with pytest.raises(RunFailed, match="does not fit its journal") as caught:
            await run.result()
        assert caught.value.category == "journal_mismatch"
        assert len(await attempts(ff, run)) == 2

    worked(ff, main)


def test_a_journal_of_a_newer_version_is_held(durable_url: str) -> None:
    """An unknown word, and a newer format: neither is a failure of the handler."""
    ff, names = Fabric(durable_url), ["a", "b"]

    @ff.task(retries=3, backoff="1ms")
    async def handle(ctx: Context) -> str:
        await steps(*names)(ctx)
        await ctx.wait_for("go", timeout="1h")
        return "done"

    async def main() -> None:
        async with ff:
            runs = [await ff.submit(handle) for _ in range(2)]
            async with working(ff):
                for run in runs:
                    await waiting(run)
            await changed(
                durable_url,
                f"UPDATE ff_journal SET kind = 'dance' WHERE execution_id = '{runs[0].id}' "
                "AND position = 1",
            )
            await changed(
                durable_url,
                f"""UPDATE ff_journal SET code = '{{"format":99}}' WHERE execution_id =
                '{runs[1].id}' AND position = 0""",
            )
            for run in runs:
                await ff.signal(run, "go")
            async with working(ff):
                for run, word in zip(runs, ("dance", "format 99"), strict=True):
                    said = await held_by_policy(run)
                    assert "newer version of FlowFabric" in said
                    assert word in said
                    assert (await run.info()).retry_count == 0

    asyncio.run(main())


async def waiting(run: Run[Any]) -> None:
    """It has come to its wait."""

    async def is_suspended() -> bool:
        return await run.state() is PublicState.SUSPENDED

    await until(is_suspended)


async def held_by_policy(run: Run[Any]) -> str:
    """Why it is held, once it is."""

    async def is_held() -> bool:
        return (await run.info()).blocking_reason is BlockingReason.PAUSED_BY_POLICY

    await until(is_held)
    return (await run.explain()).summary


async def changed(url: str, statement: str) -> None:
    """Change a store behind the engine's back."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.execute(statement)
            connection.commit()
        return
    server = await asyncpg.connect(url)
    try:
        await server.execute(statement)
    finally:
        await server.close()


@pytest.mark.parametrize(
    ("secret", "value"), [(True, "s3cret"), (False, "x" * 2_000)], ids=["secret", "long"]
)
def test_arguments_that_are_secret_or_long_are_neither_kept_nor_shown(
    url: str, secret: bool, value: str
) -> None:
    def body(word: str) -> Body:
        async def called(ctx: Context) -> None:
            await ctx.step.options(secret=secret)("b", made, word, 1)

        return called

    ff, handle, _ = versions(url, body(value), body("other"))

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        said = await held(run)
        assert "'b' is recorded with other arguments" in said
        assert value not in said
        assert "other'" not in said
        page = await (await ff.start()).read_journal(execution_id=run.id, values=True)
        assert [each.arguments for each in page.entries] == [None]

    worked(ff, main)
