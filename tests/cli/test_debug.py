"""`ff debug`: a handler by its journal, without effects."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowfabric import PublicState
from flowfabric.cli.exits import Exit
from tests.cli.desk import Desk
from tests.sdk.workshop import until, working

APP = """
from flowfabric import Context, Fabric, SyncContext

ff = Fabric("{url}")
RAN = []


@ff.step
async def fetch(topic: str) -> str:
    RAN.append(topic)
    return topic.upper()


@ff.task
async def brief(ctx: Context, topic: str) -> str:
    page = await fetch(topic)
    {inserted}paid = await ctx.wait_for("paid", int, timeout="1h")
    rest = await ctx.step("rest", abs, paid)  # the rest
    await ctx.wait_for("end", timeout="1h")  # the end
    return page + str(rest)


@ff.task
def plain(ctx: SyncContext, topic: str) -> str:
    page = ctx.step("one", str.upper, topic)
    ctx.wait_for("end", timeout="1h")
    return page + ctx.step("two", str, "x")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("debugged", None)


def app(desk: Desk, folder: Path, inserted: str = "") -> Any:
    sys.modules.pop("debugged", None)
    importlib.invalidate_caches()
    text = APP.format(url=desk.url, inserted=f"{inserted}\n    " if inserted else "")
    (folder / "debugged.py").write_text(text, encoding="utf-8")
    return importlib.import_module("debugged")


def waits(module: Any, kind: str, *signals: int) -> str:
    """A run that waits behind these signals."""

    async def main() -> str:
        async with module.ff as ff, working(ff):
            run = await ff.submit(ff.tasks[kind], "solar")
            for number in range(len(signals) + 1):

                async def has_come(number: int = number) -> bool:
                    found = [each for each in await run.journal() if each.kind.value == "wait"]
                    state = await run.state()
                    return len(found) > number and state is PublicState.SUSPENDED

                await until(has_come)
                if number < len(signals):
                    await ff.signal(run, "paid", payload=signals[number])
            return str(run.id)

    return asyncio.run(main())


def line_of(folder: Path, text: str) -> str:
    lines = (folder / "debugged.py").read_text(encoding="utf-8").splitlines()
    (number,) = [at for at, line in enumerate(lines, start=1) if text in line]
    return f"debugged.py:{number}"


def test_it_stops_at_the_first_call_without_an_answer(desk: Desk, folder: Path) -> None:
    module = app(desk, folder)
    key = waits(module, "brief", 5)
    module.RAN.clear()
    found = desk.json("debug", key, "debugged:ff")
    assert (found["key"], found["fits"]) == ("wait:end", True)
    assert found["where"].endswith(line_of(folder, "# the end"))
    assert module.RAN == []


def test_until_a_call_is_asked_for(desk: Desk, folder: Path) -> None:
    key = waits(app(desk, folder), "brief", 5)
    assert desk.ff("debug", key, "debugged:ff", "--until", "rest") == 0
    assert "rest is asked for" in desk.out
    assert line_of(folder, "# the rest") in desk.out


def test_a_sync_handler(desk: Desk, folder: Path) -> None:
    key = waits(app(desk, folder), "plain")
    got = desk.json("debug", key, "debugged:ff")
    assert got["key"] == "wait:end", got
    found = desk.json("debug", key, "debugged:ff", "--until", "one")
    assert found["where"].endswith(line_of(folder, '"one"'))


def test_code_that_does_not_fit(desk: Desk, folder: Path) -> None:
    key = waits(app(desk, folder), "brief", 5)
    app(desk, folder, 'await ctx.step("new", str)')
    assert desk.ff("debug", key, "debugged:ff") == Exit.FAILED
    assert "'new' stands where" in desk.out


def test_a_step_that_would_run_now(desk: Desk, folder: Path) -> None:
    module = app(desk, folder)
    key = desk.submit("brief", "topic=solar")
    found = desk.json("debug", key, "debugged:ff")
    assert (found["key"], "would run now" in found["why"]) == ("fetch", True)
    assert found["where"].endswith(line_of(folder, "page = await fetch"))
    assert module.RAN == []


def test_what_is_not_there(desk: Desk, folder: Path) -> None:
    app(desk, folder)
    assert desk.ff("debug", desk.submit("other"), "debugged:ff") == Exit.USAGE
    assert "there are: brief, plain" in desk.err
    assert desk.ff("debug", desk.submit("brief"), "nowhere:ff") == Exit.NOT_FOUND
