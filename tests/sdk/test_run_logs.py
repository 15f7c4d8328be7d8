"""What handlers log lands on their attempt, whatever thread or task logs it."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flowfabric import Context, Fabric, InvalidInput, LogLine, Retry, SyncContext, signal
from flowfabric.api.backend import EngineBackend
from flowfabric.clock import monotonic
from flowfabric.errors import OutcomeUnknown, StoreUnavailable
from flowfabric.kernel.stream.log_lines import FULL
from flowfabric.limits import LOG_LINE_BYTES, LOG_LINES_MAX
from flowfabric.model.log_lines import NewLine
from flowfabric.sdk.outage import Outage
from flowfabric.sdk.worker import capture, log_book
from flowfabric.sdk.worker.handlers import run_sync
from flowfabric.sdk.worker.held import Held
from flowfabric.sdk.worker.leases import Leases
from tests.sdk.workshop import until, within, working

APP = logging.getLogger("app")


@pytest.fixture(autouse=True)
def _level() -> Iterator[None]:
    """A program that has configured its logging for infos."""
    before = logging.root.level
    logging.root.setLevel(logging.INFO)
    yield
    logging.root.setLevel(before)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Removes the handlers of pytest, which choke on strange lines; they come after fixtures."""
    return lambda: monkeypatch.setattr(logging.root, "handlers", [])


async def read(run: Any, **options: Any) -> list[LogLine]:
    """Every line there is."""
    return [line async for line in run.logs(**options)]


async def messages(run: Any, **options: Any) -> list[str]:
    return [line.message for line in await read(run, **options)]


def logged(ff: Fabric, task: Any, *args: Any) -> list[LogLine]:
    """The lines of one run of a task."""

    async def story() -> list[LogLine]:
        async with ff, working(ff):
            run = await task.submit(*args)
            await within(run.result())
            return await read(run)

    return asyncio.run(story())


# --- which attempt -------------------------------------------------------------------------------


def test_a_reader_gets_what_an_async_handler_logs(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def talk(ctx: Context) -> None:
        APP.info("hello %s", "world")
        await asyncio.sleep(0)
        logging.getLogger("some.library").warning("ünï\ncode")
        ctx.log.error("mine")
        logging.getLogger().error("root's")

    lines = logged(ff, talk)
    assert [(each.level_name, each.logger, each.message) for each in lines] == [
        ("info", "app", "hello world"),
        ("warning", "some.library", "ünï\ncode"),
        ("error", "flowfabric.task", "mine"),
        ("error", "root", "root's"),
    ]
    assert [each.cursor for each in lines] == ["0:1", "0:2", "0:3", "0:4"]
    assert lines[0].at > 1_600_000_000_000


def test_a_sync_handler_logs_from_its_thread(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    def talk(ctx: SyncContext) -> str:
        APP.info("one")
        ctx.log.info("two")
        return threading.current_thread().name

    assert [each.message for each in logged(ff, talk)] == ["one", "two"]


def test_tasks_and_threads_of_a_handler_log_for_it(url: str) -> None:
    """`asyncio.to_thread` copies the context; for other threads a program does."""
    ff = Fabric(url)

    async def child(number: int) -> None:
        await asyncio.sleep(0)
        APP.info("task %d", number)

    @ff.task
    async def talk() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(child(number))
        await asyncio.to_thread(APP.info, "to_thread")
        copied = threading.Thread(target=contextvars.copy_context().run, args=(APP.info, "copied"))
        copied.start()
        copied.join()

    said = {each.message for each in logged(ff, talk)}
    assert said == {"task 0", "task 1", "task 2", "to_thread", "copied"}


def test_a_hundred_handlers_at_once_do_not_mix(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def first(number: int) -> None:
        for step in range(5):
            APP.info("a %d %d", number, step)
            await asyncio.sleep(0)
            await asyncio.to_thread(APP.info, "b %d %d", number, step)

    @ff.task
    def second(number: int) -> None:
        for step in range(10):
            APP.info("c %d %d", number, step)

    async def story() -> None:
        async with ff, working(ff):
            firsts = [await first.submit(n) for n in range(50)]
            seconds = [await second.submit(n) for n in range(50)]
            for run in (*firsts, *seconds):
                await within(run.result())
            for n, run in enumerate(firsts):
                wanted = [f"{word} {n} {step}" for step in range(5) for word in "ab"]
                assert await messages(run) == wanted
            for n, run in enumerate(seconds):
                assert await messages(run) == [f"c {n} {step}" for step in range(10)]

    asyncio.run(story())


def test_a_thread_that_ran_a_handler_logs_no_more_for_it(url: str) -> None:
    """The next handler in the same thread has a log of its own, also one that keeps none."""
    ff = Fabric(url)

    @ff.task
    def talk(word: str) -> None:
        APP.info(word)

    @ff.task(log_level=None)
    def hush(word: str) -> None:
        APP.info(word)

    async def story() -> None:
        async with ff, working(ff, concurrency=1):
            runs = [await talk.submit("one"), await hush.submit("two"), await talk.submit("three")]
            for run in runs:
                await within(run.result())
            assert [await messages(run) for run in runs] == [["one"], [], ["three"]]

    asyncio.run(story())


def test_each_attempt_has_a_log_of_its_own(url: str) -> None:
    ff = Fabric(url)

    @ff.task(retries=2)
    async def talk(ctx: Context) -> None:
        APP.info("attempt %d", ctx.attempt)
        if ctx.attempt < 3:
            raise Retry(after="1ms")

    async def story() -> None:
        async with ff, working(ff):
            run = await talk.submit()
            lines = await within(read(run, follow=True))
            assert [(each.attempt_index, each.number) for each in lines] == [(0, 1), (1, 1), (2, 1)]
            assert await messages(run, attempt=2) == ["attempt 2"]
            assert await messages(run, after=lines[1].cursor) == ["attempt 3"]

    asyncio.run(story())


def test_a_log_goes_on_after_a_suspension_and_a_delay(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def talk(ctx: Context) -> None:
        APP.info("resumed %s %s", ctx.is_resumed, ctx.resumed)
        if not ctx.is_resumed:
            await ctx.delay("1ms")
        if not ctx.resumed:
            await ctx.suspend(signal("go"))

    async def story() -> None:
        async with ff, working(ff):
            run = await talk.submit()
            await until(lambda: _has(run, 2))
            await until(lambda: _is_suspended(run))
            await ff.signal(run, "go")
            await within(run.result())
            assert await messages(run, attempt=1) == [
                "resumed False False",
                "resumed True False",
                "resumed True True",
            ]

    asyncio.run(story())


async def _has(run: Any, count: int) -> bool:
    return len(await read(run)) >= count


async def _is_suspended(run: Any) -> bool:
    return bool((await run.state()).value == "suspended")


# --- what is kept --------------------------------------------------------------------------------


def test_lines_below_the_level_of_the_task_are_left_out(url: str) -> None:
    ff = Fabric(url)

    @ff.task(log_level="WARNING")
    async def talk() -> None:
        for level in (10, 20, 30, 35, 40):
            APP.log(level, "%d", level)

    assert [each.message for each in logged(ff, talk)] == ["30", "35", "40"]


def test_a_task_may_ask_for_more_than_infos(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(APP, "level", logging.DEBUG)
    ff = Fabric(url)

    @ff.task(log_level=logging.DEBUG)
    async def talk() -> None:
        APP.debug("much")

    assert [each.level_name for each in logged(ff, talk)] == ["debug"]


@pytest.mark.parametrize("level", ["loud", "", -1, 101, True, 1.5, ["info"], object()])
def test_a_level_that_is_none_is_refused_where_the_task_is_written(level: Any) -> None:
    with pytest.raises(InvalidInput, match="log_level"):
        Fabric("memory://").task(log_level=level)(_nothing)


def _nothing() -> None:
    return None


def test_our_own_loggers_are_left_out(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def talk() -> None:
        for name in ("flowfabric", "flowfabric.worker", "flowfabric.postgres.pool"):
            logging.getLogger(name).error("of ours")
        logging.getLogger("flowfabrics").error("not ours")

    assert [each.message for each in logged(ff, talk)] == ["not ours"]


def test_no_secret_of_the_engine_is_among_the_lines(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where everything is logged and kept."""
    monkeypatch.setattr(logging.root, "level", logging.DEBUG)
    ff = Fabric(url)
    secrets: list[str] = []

    @ff.task(log_level="debug")
    async def talk(ctx: Context) -> None:
        held = Held.current.get()
        assert held is not None
        waitpoint = await ctx.waitpoint("reply")
        secrets.extend((str(held.claimed.handle.lease_id), waitpoint.link()))
        await ctx.emit("shown")
        await ctx.progress(50, "half way")
        APP.debug("%s %s %r", waitpoint, ctx, ctx)

    lines = logged(ff, talk)
    assert "app" in {each.logger for each in lines}
    said = "".join(each.message for each in lines)
    token = secrets[1].rpartition("/")[2]
    assert len(token) > 16
    assert not any(each in said for each in (*secrets, token))


def test_a_traceback_is_below_its_message(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def talk() -> None:
        try:
            raise ValueError("no such thing")
        except ValueError:
            APP.exception("it broke")

    (line,) = logged(ff, talk)
    assert line.message.startswith("it broke\nTraceback (most recent call last):\n")
    assert line.message.endswith("ValueError: no such thing")


def test_long_lines_are_cut_and_strange_ones_are_made_storable(
    url: str, alone: Callable[[], None]
) -> None:
    alone()
    ff = Fabric(url)
    said = ["x" * 100_000, "ü" * 4_096, "a\x00b\ud800c", "ü" * (LOG_LINE_BYTES // 2), ""]

    @ff.task
    async def talk() -> None:
        for each in said:
            APP.info("%s", each)
        logging.getLogger("na\nme" + "ü" * 300).info("odd")
        APP.info("%d", "not a number")

    long, umlauts, strange, exact, empty, odd, wrong = logged(ff, talk)
    for each, count in ((long, 100_000), (umlauts, 4_096)):
        assert len(each.message.encode()) <= LOG_LINE_BYTES
        assert each.message.endswith(f"… (cut, {count} characters)")
    assert strange.message == "a\ufffdb?c"
    assert (exact.message, empty.message) == (said[3], "")
    assert odd.logger.startswith("na\ufffdme")
    assert wrong.message == "%d (cannot be formatted: TypeError)"


def test_no_record_made_by_hand_keeps_an_attempt_from_its_end(
    url: str, alone: Callable[[], None]
) -> None:
    """Its report carries the lines, so each must be one that the engine takes, or none."""
    alone()
    ff = Fabric(url)
    strange: tuple[Any, ...] = (
        *(None, -1, 10**30, 2.5, float("nan"), float("inf"), True, "", "text", b"bytes"),
        *("\x00", "\ud800", "x" * 100_000, "\U0001f30a" * 5_000, [1], {}, object(), ()),
    )

    @ff.task
    async def talk() -> str:
        APP.info("first")
        for field in ("name", "msg", "args", "levelno", "created", "exc_info", "exc_text"):
            for value in strange:
                usual = {"name": "app", "msg": "made", "levelno": 20, "created": 1.5}
                (handler,) = logging.root.handlers
                handler.handle(logging.makeLogRecord({**usual, field: value}))
        return "done"

    async def story() -> None:
        async with ff, working(ff):
            run = await talk.submit()
            assert await within(run.result()) == "done"
            lines = await read(run)
            assert lines[0].message == "first"
            assert all(len(each.message.encode()) <= LOG_LINE_BYTES for each in lines)

    asyncio.run(story())


def test_a_flood_is_cut_with_a_marker_and_its_handler_is_not_disturbed(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def talk() -> str:
        for number in range(5_000):
            APP.info("%d %s", number, "x" * 200)
        return "done"

    async def story() -> None:
        async with ff, working(ff):
            run = await talk.submit()
            assert await within(run.result()) == "done"
            lines = await read(run)
            page = await (await ff.start()).read_logs(execution_id=run.id)
        assert [each.message.split()[0] for each in lines[:-1]] == list(
            map(str, range(LOG_LINES_MAX))
        )
        assert lines[-1].message == FULL
        assert page.dropped_count == 4_000

    asyncio.run(story())


def test_what_is_logged_after_the_end_is_not_kept(url: str) -> None:
    ff = Fabric(url)
    late: list[asyncio.Task[None]] = []

    @ff.task
    async def talk() -> None:
        APP.info("in time")
        late.append(asyncio.create_task(linger()))

    async def linger() -> None:
        for _ in range(20):
            await asyncio.sleep(0.01)
            APP.info("late")

    async def story() -> None:
        async with ff, working(ff):
            run = await talk.submit()
            await within(run.result())
            await late[0]
            assert (await messages(run))[:1] == ["in time"]
            assert len(await messages(run)) < 20

    asyncio.run(story())


def test_short_handlers_cost_no_call_for_their_lines(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They ride on the report."""
    ff = Fabric(url)
    calls: list[Any] = []
    plain = EngineBackend.append_logs

    async def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return await plain(self, *args, **kwargs)

    monkeypatch.setattr(EngineBackend, "append_logs", counted)

    @ff.task
    async def talk() -> None:
        for _ in range(100):
            APP.info("x")

    async def story() -> None:
        async with ff, working(ff):
            runs = [await talk.submit() for _ in range(20)]
            for run in runs:
                await within(run.result())
                assert len(await messages(run)) == 100

    asyncio.run(story())
    assert calls == []


def test_lines_of_a_long_handler_are_seen_while_it_runs(url: str) -> None:
    ff = Fabric(url)
    seen = asyncio.Event()

    @ff.task
    async def talk() -> None:
        APP.info("working")
        await seen.wait()
        APP.info("done")

    async def story() -> None:
        async with ff, working(ff):
            run = await talk.submit()
            said = []
            async with asyncio.timeout(60):
                async for line in run.logs(follow=True):
                    said.append(line.message)
                    seen.set()
            assert said == ["working", "done"]

    asyncio.run(story())


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_lost_reply_neither_loses_nor_doubles_lines(
    url: str, is_stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ff = Fabric(url)
    failures = 0
    plain = EngineBackend.append_logs

    async def unsure(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal failures
        failures += 1
        if failures == 1 and is_stored:
            await plain(self, *args, **kwargs)
            raise OutcomeUnknown("the reply is lost")
        if failures <= 2:
            raise StoreUnavailable("away")
        return await plain(self, *args, **kwargs)

    monkeypatch.setattr(EngineBackend, "append_logs", unsure)
    monkeypatch.setattr(log_book, "_GATHER_S", 0.1)

    @ff.task
    async def talk() -> None:
        number = 0
        async with asyncio.timeout(60):
            while failures < 4:
                APP.info("%d", number)
                number += 1
                await asyncio.sleep(0.05)

    async def story() -> None:
        async with ff, working(ff):
            run = await talk.submit()
            await within(run.result())
            said = await messages(run)
            assert said == list(map(str, range(len(said))))

    asyncio.run(story())


# --- the program around it -----------------------------------------------------------------------


class Rude:
    """Logs when it is shown."""

    def __str__(self) -> str:
        APP.info("shown: %s", Rude())
        return "rude"


def test_no_error_of_the_capture_reaches_the_handler(url: str, alone: Callable[[], None]) -> None:
    alone()
    ff = Fabric(url)

    @ff.task
    async def talk() -> str:
        APP.info("%s", Rude())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(capture, "_text", None)
            APP.info("breaks the capture")
        APP.info("last")
        return "done"

    assert [each.message for each in logged(ff, talk)] == ["rude", "last"]


def test_the_handler_is_there_only_while_workers_run(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def talk() -> None:
        assert _captures() == 1

    async def story() -> None:
        async with ff:
            async with working(ff), working(ff):
                run = await talk.submit()
                await within(run.result())
            assert _captures() == 0

    asyncio.run(story())


def _captures() -> int:
    return sum(isinstance(each, capture.Capture) for each in logging.root.handlers)


def test_a_program_that_configures_its_logging_meanwhile_keeps_its_logs(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def talk() -> None:
        APP.info("kept")

    async def story() -> None:
        async with ff, working(ff):
            run = await talk.submit()
            await within(run.result())
            before = list(logging.root.handlers)
            logging.root.handlers = [
                each for each in before if not isinstance(each, capture.Capture)
            ]
            again = await talk.submit()
            await within(again.result())
            assert await messages(again) == ["kept"]

    asyncio.run(story())


PROGRAM = """
    import asyncio, logging
    from flowfabric import Fabric, Worker

    ff = Fabric("memory://")
    app = logging.getLogger("app")

    @ff.task
    async def talk() -> None:
        app.info("an info")
        app.warning("a warning")

    async def main() -> None:
        async with ff:
            worker = Worker(ff)
            working = asyncio.create_task(worker.run())
            run = await talk.submit()
            await run.result()
            print([line.message async for line in run.logs()])
            worker.stop()
            await working
        print(logging.root.level, logging.root.handlers, logging.getLogger("flowfabric").level)

    asyncio.run(main())
"""


def test_a_program_without_logging_keeps_infos_and_prints_what_it_did_before() -> None:
    """Warnings, and nothing else."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == ["['an info', 'a warning']", "30 [] 0"]
    assert done.stderr == "a warning\n"


MORTAL = """
    import asyncio, logging, os, sys
    from flowfabric import Fabric, Worker

    logging.basicConfig(level=logging.INFO)
    ff = Fabric(sys.argv[1])

    @ff.task
    async def talk() -> None:
        logging.getLogger("app").info("before the crash")
        await asyncio.sleep(600)

    asyncio.run(Worker(ff, lease_ttl="1s").run())
"""


def test_a_killed_worker_leaves_what_was_sent(durable_url: str, tmp_path: Path) -> None:
    program = tmp_path / "mortal.py"
    program.write_text(textwrap.dedent(MORTAL))
    ff = Fabric(durable_url)

    async def story() -> None:
        async with ff:
            run = await ff.submit("talk")
            worker = subprocess.Popen(  # noqa: ASYNC220 - it takes no time
                [sys.executable, str(program), durable_url], stderr=subprocess.DEVNULL
            )
            try:
                await until(lambda: _has(run, 1))
            finally:
                os.kill(worker.pid, 9)
                worker.wait()
            assert (await messages(run))[:1] == ["before the crash"]

            await until(lambda: _is_waiting(run))
            page = await (await ff.start()).read_logs(execution_id=run.id, attempt_index=0)
            assert page.closed_reason == "lease_expired"

    asyncio.run(story())


async def _is_waiting(run: Any) -> bool:
    return bool((await run.state()).value == "waiting")


def test_a_forked_child_of_a_handler_disturbs_nothing(url: str) -> None:
    """What it logs is not kept: it has no worker to send it. Nor does it wait for a lock that a
    thread of its parent has for ever."""
    ff = Fabric(url)

    @ff.task
    def talk() -> int:
        APP.info("parent")
        locked, over = threading.Event(), threading.Event()
        held = Held.current.get()
        assert held is not None

        def hold() -> None:
            assert held.book is not None
            with held.book._lock:
                locked.set()
                over.wait()

        threading.Thread(target=hold).start()
        locked.wait()
        child = os.fork()
        if child == 0:
            APP.info("child")
            os._exit(0)
        over.set()
        return _end_of(child)

    async def story() -> None:
        async with ff, working(ff):
            run = await talk.submit()
            assert await within(run.result()) == 0
            assert await messages(run) == ["parent"]

    asyncio.run(story())


def _end_of(child: int) -> int:
    """The status of a child; one that hangs is killed."""
    for _ in range(1_000):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.01)
    os.kill(child, 9)
    return os.waitpid(child, 0)[1]


def test_a_thread_is_left_without_the_handler_it_ran(url: str) -> None:
    """Or it would keep its execution, and its log, until it runs the next one."""
    ff = Fabric(url)
    here: list[Held | None] = []

    @ff.task
    def talk() -> None:
        here.append(Held.current.get())

    async def story() -> None:
        async with ff:
            held = await _taken(ff, talk)
            run_sync(held)
            assert (here, Held.current.get()) == ([held], None)

    asyncio.run(story())


async def _taken(ff: Fabric, task: Any) -> Held:
    """An execution as a worker has it."""
    engine = await ff.start()
    await task.submit()
    (claimed,) = await engine.claim(lanes=("default",), worker_id="w", worker_instance_id="w-1")
    return Leases(engine, 30_000, Outage()).take(claimed, task, monotonic())


def test_a_report_that_is_sent_again_has_the_same_lines() -> None:
    ff = Fabric("memory://")
    task = ff.task(_nothing)

    async def story() -> None:
        async with ff:
            held = await _taken(ff, task)
            held.log(NewLine("in time", 1))
            assert held.book is not None
            rest = await held.book.rest()
            held.log(NewLine("late", 2))
            assert await held.book.rest() == rest
            assert rest is not None
            assert [each.message for each in rest.lines] == ["in time"]

    asyncio.run(story())


# --- reading -------------------------------------------------------------------------------------


def test_a_reader_without_asyncio(durable_url: str) -> None:
    ff = Fabric(durable_url)

    @ff.task
    async def talk() -> None:
        APP.info("a")
        APP.info("b")

    async def work() -> str:
        async with ff, working(ff):
            run = await talk.submit()
            await within(run.result())
            return run.id

    run = ff.sync.run(asyncio.run(work()))
    try:
        assert [each.message for each in run.logs(follow=True)] == ["a", "b"]
        assert [each.message for each in run.logs(attempt=1, after="0:1")] == ["b"]
        assert list(run.logs(attempt=2)) == []
    finally:
        ff.sync.close()


@pytest.mark.parametrize("attempt", [0, -1, "1", True])
def test_attempts_are_counted_from_one(attempt: Any) -> None:
    async def story() -> None:
        async with Fabric("memory://") as ff:
            with pytest.raises(InvalidInput, match="attempt"):
                await read(ff.run("{fp:0}:01890000-0000-7000-8000-000000000000"), attempt=attempt)

    asyncio.run(story())
