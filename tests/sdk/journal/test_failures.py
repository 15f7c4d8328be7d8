"""Steps that fail: tried again, recorded, reopened or history."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from flowfabric import (
    Context,
    EntryKind,
    EntryState,
    Fabric,
    Fatal,
    JournalFull,
    PublicState,
    ResultTooLarge,
    Retry,
    RunFailed,
    StepFailed,
    SyncContext,
    current_step,
)
from flowfabric.limits import JOURNAL_ENTRIES_MAX
from tests.sdk.journal.bench import attempts, journal, worked
from tests.sdk.workshop import until, within, working


class Declined(Exception):
    """Of a bank."""


def test_caught_failure_is_history(url: str) -> None:
    """7.1.3."""
    ff, ran, taken = Fabric(url), Counter[str](), []

    @ff.step
    async def charge() -> None:
        ran["charge"] += 1
        raise ConnectionError("no")

    @ff.step
    async def invoice() -> str:
        ran["invoice"] += 1
        return "invoice"

    @ff.task(retries=1, backoff="1ms")
    async def pay(ctx: Context) -> str:
        found = ""
        try:
            await charge()
        except StepFailed as error:
            taken.append((error.step, error.category, error.is_a(OSError), error.is_a(KeyError)))
            found = await invoice()
        if ctx.attempt == 1:
            raise ValueError("later")
        return found

    async def main(ff: Fabric) -> None:
        run = await ff.submit(pay)
        assert await run.result() == "invoice"
        assert ran == {"charge": 1, "invoice": 1}
        assert taken == [("charge", "ConnectionError", True, False)] * 2
        states = [each.state for each in await journal(ff, run)]
        assert states == [EntryState.FAILED, EntryState.OK]

    worked(ff, main)


@pytest.mark.parametrize("how", ["itself", "from", "context", "group"])
def test_ended_by_failure_is_reopened(url: str, how: str) -> None:
    """7.1.4: what leaves the handler decides, whatever it was wrapped in."""
    ff, ran, works = Fabric(url), Counter[str](), list[bool]()

    @ff.step
    async def quote() -> int:
        ran["quote"] += 1
        return 7

    @ff.step
    async def charge(amount: int) -> int:
        ran["charge"] += 1
        if not works:
            raise ConnectionError("no")
        return amount

    @ff.task
    async def order() -> int:
        amount = await quote()
        try:
            return await charge(amount)
        except StepFailed as error:
            if how == "itself":
                raise
            if how == "from":
                raise KeyError("mine") from error
            if how == "group":
                raise ExceptionGroup("several", [ValueError("other"), error])  # noqa: B904
            raise KeyError("mine")  # noqa: B904

    async def main(ff: Fabric) -> None:
        run = await ff.submit(order)
        with pytest.raises(RunFailed):
            await run.result()
        assert (await journal(ff, run))[-1].state is EntryState.REOPENED
        works.append(True)
        await run.retry()
        assert await run.result() == 7
        assert ran == {"quote": 1, "charge": 2}

    worked(ff, main)


def test_declared_exceptions_are_raised_as_themselves(url: str) -> None:
    """7.1.5: live and on replay."""
    ff, seen = Fabric(url), list[Any]()

    @ff.step(raises=[Declined])
    async def charge() -> None:
        raise Declined("no funds", 7)

    @ff.task(retries=1, backoff="1ms")
    async def pay(ctx: Context) -> None:
        try:
            await charge()
        except Declined as error:
            seen.append((type(error), error.args))
        if ctx.attempt == 1:
            raise ValueError("again")

    async def main(ff: Fabric) -> None:
        await (await ff.submit(pay)).result()
        assert seen == [(Declined, ("no funds", 7))] * 2

    worked(ff, main)


def test_a_step_is_tried_as_often_as_it_may(url: str) -> None:
    ff, tries = Fabric(url), []

    @ff.step(retries=2, backoff="1ms", retry_on=[ConnectionError])
    async def fetch(error: str) -> None:
        tries.append(error)
        raise {"connection": ConnectionRefusedError, "value": ValueError}[error]("no")

    @ff.task
    async def handle(ctx: Context, error: str) -> str:
        try:
            await fetch(error)
        except StepFailed as failure:
            return failure.category
        return ""

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle, "connection")
        assert await run.result() == "ConnectionRefusedError"
        assert len(tries) == 3
        assert (await journal(ff, run))[0].tries == 3
        assert await (await ff.submit(handle, "value")).result() == "ValueError"
        assert len(tries) == 4

    worked(ff, main)


def test_fatal_ends_the_tries_and_the_task(url: str) -> None:
    ff, tries = Fabric(url), []

    @ff.step(retries=5, backoff="1ms")
    async def charge() -> None:
        tries.append(1)
        raise Fatal("the account is closed")

    @ff.task(retries=5, backoff="1ms")
    async def pay() -> None:
        await charge()

    async def main(ff: Fabric) -> None:
        run = await ff.submit(pay)
        with pytest.raises(RunFailed, match="the account is closed"):
            await run.result()
        assert len(tries) == 1
        assert len(await attempts(ff, run)) == 1

    worked(ff, main)


def test_a_timeout_is_a_failed_try(url: str) -> None:
    ff, tries = Fabric(url), []

    @ff.step(retries=1, backoff="1ms", timeout="20ms")
    async def slow() -> None:
        tries.append(1)
        await asyncio.Event().wait()

    @ff.task
    async def handle(ctx: Context) -> str:
        try:
            await slow()
        except StepFailed as error:
            return error.category
        return ""

    async def main(ff: Fabric) -> None:
        assert await (await ff.submit(handle)).result() == "timeout"
        assert len(tries) == 2

    worked(ff, main)


@pytest.mark.parametrize("is_sync", [False, True])
def test_a_plain_function_that_takes_too_long_is_left_alone(url: str, is_sync: bool) -> None:
    import threading

    ff, release = Fabric(url), threading.Event()

    @ff.step(timeout="20ms")
    def stuck() -> str:
        release.wait()
        return "too late"

    @ff.task
    async def handle(ctx: Context) -> str:
        try:
            return await ctx.step.options(timeout="20ms")("stuck", stuck.function)
        except StepFailed as error:
            return error.category

    @ff.task
    def handle_in_a_thread(ctx: SyncContext) -> str:
        try:
            return stuck()
        except StepFailed as error:
            return error.category

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle_in_a_thread if is_sync else handle)
        assert await run.result() == "timeout"
        release.set()

    worked(ff, main)


def test_too_large(url: str) -> None:
    """7.1.22: for good, with the sizes, and the body ran once."""
    ff, ran = Fabric(url), []

    @ff.step(retries=3, backoff="1ms")
    async def read() -> str:
        ran.append(1)
        return "x" * (1 << 20)

    @ff.task(retries=3, backoff="1ms")
    async def handle() -> None:
        await read()

    @ff.task
    async def careful() -> str:
        try:
            await read()
        except ResultTooLarge as error:
            return error.category
        return ""

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        with pytest.raises(RunFailed) as caught:
            await run.result()
        assert "1048578" in caught.value.reason
        assert "1048576" in caught.value.reason
        assert (len(ran), (await run.info()).total_attempt_count) == (1, 1)
        assert await (await ff.submit(careful)).result() == "ResultTooLarge"

    worked(ff, main)


@pytest.mark.parametrize("value", [object(), {1, "a"}, float("nan")])
def test_what_is_no_json_fails_for_good_and_says_what_it_is(url: str, value: Any) -> None:
    ff = Fabric(url)

    @ff.task(retries=3, backoff="1ms")
    async def handle(ctx: Context) -> Any:
        return await ctx.step.options(compare="name")("make", lambda: value)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        if isinstance(value, object) and type(value) is object:
            with pytest.raises(RunFailed, match="object"):
                await run.result()
            assert (await run.info()).total_attempt_count == 1
        else:
            await run.result()  # a set is a list, and NaN is null, in the first run as in any

    worked(ff, main)


def test_what_nests_too_deep_fails_for_good(url: str) -> None:
    ff = Fabric(url)

    def deep() -> Any:
        value: Any = 1
        for _ in range(100):
            value = [value]
        return value

    @ff.task(retries=3, backoff="1ms")
    async def handle(ctx: Context) -> None:
        await ctx.step("deep", deep)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        with pytest.raises(RunFailed, match="nests deeper"):
            await run.result()
        assert (await run.info()).total_attempt_count == 1

    worked(ff, main)


def test_journal_full(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """7.1.23, its first half."""
    monkeypatch.setattr("flowfabric.limits.JOURNAL_ENTRIES_MAX", 30)
    ff, ran = Fabric(url), []

    @ff.step(effects=False)
    async def work(n: int) -> int:
        ran.append(n)
        return n

    @ff.task(retries=2, backoff="1ms")
    async def handle(ctx: Context) -> None:
        for n in range(31):
            await work(n)

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)
        with pytest.raises(RunFailed) as caught:
            await run.result()
        assert caught.value.category == JournalFull.code
        assert ran == list(range(30))

    assert JOURNAL_ENTRIES_MAX == 10_000
    worked(ff, main)


def test_step_retry_pause_frees_the_worker(url: str) -> None:
    """7.1.24: a long pause holds no slot, and its tries are kept."""
    ff, tries = Fabric(url), []

    @ff.step(retries=2)
    async def fetch() -> str:
        tries.append(1)
        if len(tries) < 2:
            raise Retry(after="1h")
        return "page"

    @ff.task
    async def handle(ctx: Context) -> tuple[str, int]:
        return await fetch(), ctx.attempt

    async def main(ff: Fabric) -> None:
        engine = await ff.start()
        run = await ff.submit(handle)

        async def is_parked() -> bool:
            return await run.state() is PublicState.DELAYED

        await until(is_parked)
        (entry,) = await journal(ff, run)
        assert (entry.kind, entry.state, entry.tries) == (EntryKind.RETRYING, EntryState.OPEN, 1)
        now = await engine.server_time_ms()
        info = await run.info()
        assert 3_500_000 < info.eligible_at - now <= 3_600_000
        assert info.current_lease is None

    worked(ff, main)


def test_step_retry_pause_goes_on_after_a_restart_with_its_tries(
    durable_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """7.1.24, its second half; here a long pause is one of more than half a second."""
    monkeypatch.setattr("flowfabric.sdk.journal.calls._IN_PLACE_MS", 500)
    tries, said = list[int](), list[int]()

    def app() -> Fabric:
        ff = Fabric(durable_url)

        @ff.step(retries=1)
        async def fetch() -> str:
            tries.append(1)
            said.append(current_step().attempt)
            if len(tries) < 2:
                raise Retry(after="1500ms")
            raise Fatal("gone")

        @ff.task
        async def handle() -> str:
            try:
                return await fetch()
            except StepFailed as error:
                return error.category

        return ff

    async def first() -> tuple[str, int]:
        async with app() as ff, working(ff):
            run = await ff.submit(ff.tasks["handle"])

            async def is_parked() -> bool:
                return await run.state() is PublicState.DELAYED

            await until(is_parked)
            return run.id, (await run.info()).eligible_at

    async def second(execution_id: str, eligible_at: int) -> None:
        async with app() as ff, working(ff):
            run = ff.run(execution_id)
            assert await within(run.result()) == "Fatal"
            assert said == [1, 2]
            entry = (await journal(ff, run))[-1]
            assert (entry.key, entry.state, entry.tries) == ("fetch", EntryState.FAILED, 2)
            assert ((await run.info()).completed_at or 0) >= eligible_at
            assert len(await attempts(ff, run)) == 1

    asyncio.run(second(*asyncio.run(first())))
