"""Every command tells the same, and ends with the same code, at a store and at a server."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from flowfabric.api.waits import SuspendRequest, UsePending
from flowfabric.cli import bulk, main
from flowfabric.cli.exits import Exit
from flowfabric.cli.parser import build_parser
from flowfabric.engine.engine import Engine
from flowfabric.model.feed import EventFilter
from flowfabric.model.state import PublicState
from flowfabric.model.suspension import Single
from flowfabric.sdk.fabric import Fabric
from tests.cli.desk import Desk
from tests.cli.test_flow import failed_diamond
from tests.cli.twins import Side, Twins
from tests.sdk.workshop import until, within, working
from tests.support.server_thread import ServerThread

BESIDE_THE_STORE = ("db", "bench", "serve", "dev")
ASK_NOTHING = ("openapi", "version", "conformance", "conformance worker")
APP = """
import logging

from flowfabric import Context, Fabric
from flowfabric import approval

ff = Fabric("memory://")


@ff.task
async def brief(ctx: Context, topic: str) -> str:
    page = await ctx.step("fetch", str.upper, topic)
    await ctx.emit(page)
    logging.getLogger("brief").warning("about %s", topic)
    return await ctx.step("polish", str.title, page)


@ff.task(mailboxes={"orders": dict[str, int]})
async def shop(ctx: Context) -> int:
    return (await ctx.receive("orders")).value["n"]


@ff.task
async def publish(ctx: Context) -> str:
    if not ctx.resumed:
        await ctx.suspend(approval("publish", of=2), timeout="2d")
    return ctx.signals[-1].name


@ff.task
async def broken(ctx: Context, name: str) -> str:
    raise LookupError(f"no {name} here")
"""


def choices(parser: argparse.ArgumentParser) -> Iterator[dict[str, argparse.ArgumentParser]]:
    """The commands or actions of a parser."""
    for each in parser._actions:
        if isinstance(each.choices, dict):
            yield each.choices


def leaves() -> set[str]:
    """Every command and action that can be given."""

    def under(parser: argparse.ArgumentParser, path: tuple[str, ...]) -> Iterator[str]:
        inner = list(choices(parser))
        if not inner or parser.get_default("handler") is not None:
            yield " ".join(path)
        for each in inner:
            for word, action in each.items():
                yield from under(action, (*path, word))

    return set(under(build_parser(), ()))


@pytest.fixture
def twins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Twins]:
    (tmp_path / "walked.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "walked", raising=False)
    monkeypatch.setattr(bulk, "OPERATION_ABOVE", 1)
    twins = Twins(tmp_path / "twins", capsys)
    yield twins
    twins.close()
    sys.modules.pop("walked", None)


def worked(side: Side) -> dict[str, str]:
    """Runs of each kind: one that is done, two that wait, one that failed."""
    importlib.invalidate_caches()
    app: Fabric = importlib.import_module("walked").ff
    app.url = side.url
    logging.getLogger("brief").setLevel(logging.WARNING)

    async def run() -> dict[str, str]:
        async with app, working(app):
            runs = {
                "brief": await app.submit("brief", {"topic": "solar"}),
                "shop": await app.submit("shop"),
                "publish": await app.submit("publish"),
                "broken": await app.submit("broken", {"name": "page"}),
            }
            await within(asyncio.gather(runs["brief"].result()))
            for name, state in (
                ("shop", PublicState.SUSPENDED),
                ("publish", PublicState.SUSPENDED),
                ("broken", PublicState.FAILED),
            ):

                async def is_there(name: str = name, state: PublicState = state) -> bool:
                    return await runs[name].state() is state

                await within(until(is_there))
            return {name: side.name(each.id, f"<{name}>") for name, each in runs.items()}

    return asyncio.run(run())


async def counted(engine: Engine) -> None:
    """Statistics as far as there are events."""
    while await engine.roll_up():
        continue


def fingerprint(side: Side) -> str:
    """Of the one group of failures."""
    assert side.ff("failures", "--json") == 0
    (group,) = json.loads(side.out)["groups"]
    return str(group["fingerprint"])


async def asks(engine: Engine) -> str:
    """A run asks its budget."""
    await engine.create_execution(execution_kind="agent", lane_id="agents")
    (claimed,) = await engine.claim(
        lanes=["agents"], worker_id="ada", worker_instance_id="ada-1", limit=1
    )
    asked = await engine.ask_budget(claimed.handle, budget_id="gpt", amounts={"tokens": 5_000})
    key = asked.waitpoint_key
    pending = (UsePending(asked.waitpoint_id, key),)
    await engine.suspend(
        claimed.handle, SuspendRequest(resume_condition=Single(key), waitpoints=pending)
    )
    return claimed.execution_id


def test_every_command_tells_the_same(twins: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    made = twins.each(worked)
    runs = {name: {side: made[side][name] for side in twins.sides} for name in made[twins.store]}
    brief, shop, publish, broken = (runs[name] for name in ("brief", "shop", "publish", "broken"))
    look(twins, brief, broken, shop)
    twins.shows("waits")
    twins.ff("waits ls")
    twins.shows("waits show", publish)
    twins.ff("waits approve", publish, "publish", "--by", "ada")
    twins.ff("why", publish)
    twins.ff("waits reject", publish, "nothing", "--by", "ada", code=Exit.NOT_FOUND)
    twins.ff("waits link", publish, "publish")
    links = twins.each(lambda side: side.json("waits", "link", publish[side], "publish")["link"])
    twins.ff("waits signal", links, "approved", "--by", "grace")
    twins.ff("waits resume", publish, code=Exit.REFUSED)

    twins.ff("send", shop, "orders", "n:=1", "--key", "k", "--by", "ada")
    twins.ff("ask", shop, "orders", "n:=2", "--timeout", "1ms", code=Exit.TIMEOUT)
    twins.shows("mail", shop)
    twins.ff("mail", shop, "orders")

    operate(twins)
    bound(twins)
    many(twins)
    flows(twins)
    administer(twins)
    wrong(twins)
    tokens(twins, monkeypatch)
    done_elsewhere = {*BESIDE_THE_STORE, *ASK_NOTHING, "worker"}
    assert leaves() - twins.walked == done_elsewhere, "walk new commands here as well"


Ids = Mapping[Side, str]


def look(twins: Twins, brief: Ids, broken: Ids, shop: Ids) -> None:
    twins.shows("ps")
    twins.ff("ps", "--wide", "--state", "failed")
    for each in (brief, broken, shop):
        twins.shows("show", each)
        twins.shows("why", each)
        twins.ff("journal", each)
        twins.shows("timeline", each)
        twins.shows("logs", each)
        twins.shows("tail", each)
    twins.shows("journal", brief, "--values")
    twins.ff("journal", brief, "--export", "-")
    twins.shows("result", brief)
    twins.shows("result", broken, code=Exit.FAILED)
    twins.shows("result", shop, "--wait", "1ms", code=Exit.TIMEOUT)
    twins.ff("debug", brief, "walked:ff")
    twins.ff("replay", "--live", "brief", "walked:ff")
    twins.shows("code")
    twins.shows("events", "--kind", "completion")
    twins.given(counted)
    twins.ff("stats")
    twins.shows("workers")
    alike = twins.each(fingerprint)
    twins.shows("failures")
    twins.ff("failures ls", "--known")
    twins.shows("failures show", alike)
    twins.ff("failures known", alike, "--for", "2d", "--reason", "the upstream")
    twins.ff("failures known", alike, "--not")
    twins.ff("failures retry", alike, "--dry-run")
    twins.shows("dead")
    twins.ff("dead ls", "--wide")
    twins.ff("dead show", broken)
    twins.ff("dead retry", broken)
    twins.ff("cancel", broken)


def operate(twins: Twins) -> None:
    one, two = (twins.submit("greet", "name=ada", name=name) for name in ("one", "two"))
    twins.ff("submit", "greet", "name=ada", "--key", "k", "--wait", "--timeout", "1ms", code=6)
    twins.ff("submit", "greet", "name=joan", "--key", "k", code=Exit.REFUSED)
    twins.ff("hold", one, "--reason", "later")
    twins.ff("why", one)
    twins.ff("release", one, two, code=Exit.REFUSED)
    twins.ff("priority", one, "7")
    twins.ff("revoke", one)
    twins.ff("cancel", one, "--reason", "no")
    twins.ff("retry", one)
    claimed = {side: side.claim() for side in twins.sides}
    for side in twins.sides:
        side.fail(claimed[side])
    twins.ff("dead dismiss", one, "--reason", "known")
    twins.ff("dead dismiss", two, code=Exit.REFUSED)
    twins.ff("dead restore", one)
    twins.ff("audit", "--action", "hold_execution")  # only a server knows addresses


def bound(twins: Twins) -> None:
    twins.ff("budget create", "gpt", "--hard", "tokens=1000", "--on-hard", "ask")
    twins.ff("budget create", "gpt", "--hard", "tokens=1", code=Exit.REFUSED)
    twins.shows("budget asks")
    agents = twins.each(lambda side: side.name(side.given(asks), "<agent>"))
    twins.ff("budget asks")
    twins.ff("budget approve", "gpt", "tokens", "--by", "ada", "--once")
    twins.settle()
    twins.ff("budget reject", "gpt", "tokens", "--by", "ada", code=Exit.REFUSED)
    twins.ff("budget raise", "gpt", "tokens=+5")
    twins.ff("budget set", "gpt", "--soft", "tokens=10")
    twins.ff("budget reset", "gpt")
    twins.ff("spend")
    twins.ff("spend", agents)
    for words in ("budget", "budget ls", "quota", "quota ls"):
        twins.ff(words)
    twins.ff("quota create", "calls", "--starts", "10", "--at-once", "2")
    twins.ff("quota set", "calls", "--starts", "20")
    twins.shows("quota show", "calls")
    twins.shows("budget show", "gpt")
    twins.ff("budget show", "gtp", code=Exit.NOT_FOUND)
    twins.shows("lanes")
    twins.ff("completion", "lanes")
    twins.ff("lanes", "pause", "default")
    twins.ff("lanes", "resume", "default")
    twins.ff("lanes", "set", "default", "--weight", "3", "--budget", "gpt")
    twins.submit("pay", "--serial", "customer-1", name="first")
    twins.submit("pay", "--serial", "customer-1", name="second")
    twins.ff("line")
    twins.ff("line ls")
    twins.shows("line show", "customer-1")
    twins.ff("line release", "customer-1", code=Exit.REFUSED)


def many(twins: Twins) -> None:
    for name in ("a", "b", "c"):
        twins.submit("page", name=name)
    twins.ff("cancel", "--kind", "page", "--dry-run")
    twins.ff("cancel", "--kind", "page", "--yes", "--reason", "enough")
    twins.ff("operations")
    twins.ff("operations ls")
    ids = twins.each(lambda side: side.json("operations")["operations"][0]["operation_id"])
    twins.shows("operations show", ids)
    twins.ff("operations stop", ids)
    twins.given(
        lambda engine: engine.create_consumer_group(
            group_id="mail", kinds=("completion",), filter=EventFilter(lane_id="default")
        )
    )
    twins.shows("groups")
    twins.ff("groups ls")
    twins.ff("groups reset", "mail")
    twins.ff("groups delete", "mail")
    twins.ff("groups delete", "mail", code=Exit.NOT_FOUND)


def flows(twins: Twins) -> None:
    for side in twins.sides:
        flow_id, ids = failed_diamond(side)
        side.name(flow_id, "<flow>")
        for name, each in ids.items():
            side.name(each, f"<{name}>")
    twins.ff("flow")
    twins.ff("flow ls")
    twins.shows("flow show", "latest")
    twins.ff("flow retry", "latest")
    twins.ff("flow cancel", "latest")


def administer(twins: Twins) -> None:
    cron = ("--cron", "30 2 * * *", "--tz", "Europe/Berlin")
    twins.ff("schedule create", "report", "greet", "name=ada", *cron)
    for words in ("schedule", "schedule ls"):
        twins.ff(words)
    twins.shows("schedule show", "report")
    twins.ff("schedule why", "report")
    twins.ff("schedule trigger", "report")
    twins.ff("schedule pause", "report", "--reason", "holiday")
    twins.ff("schedule resume", "report")
    twins.ff("schedule update", "report", "--overlap", "allow")
    twins.ff(
        "schedule backfill",
        "report",
        "--from",
        "2026-11-10T00:00",
        "--to",
        "2026-11-12T00:00",
        "--again",
        "--dry-run",
    )
    twins.ff("schedule prune")
    twins.ff("schedule rm", "report")
    twins.shows("keys")
    twins.ff("keys rotate")
    twins.ff("keys ls")
    twins.shows("doctor")


def wrong(twins: Twins) -> None:
    """What is refused is refused in the same words."""
    twins.shows("show", "01a1e84a-2878-7000-8f3b-f5553447f1b9", code=Exit.NOT_FOUND)
    twins.ff("show", "nothing", code=Exit.USAGE)
    twins.ff("ps", "--state", "complet", code=Exit.USAGE)
    twins.shows("ps", "--cursor", "nonsense", code=Exit.USAGE)
    twins.ff("submit", "greet", "--tag", "nodot=v", code=Exit.USAGE)
    twins.ff("submit", "greet", "--lane", "", code=Exit.USAGE)
    twins.ff("cancel", "01a1e84a-2878-7000-8f3b-f5553447f1b9", code=Exit.NOT_FOUND)
    twins.ff("fork", "latest", "--from", "nowhere", code=Exit.USAGE)


def tokens(twins: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comes last: from the first token on the server asks for one."""
    for words in ("token", "token ls"):
        twins.ff(words)
    twins.ff("token new", "ci", "--scope", "nothing", code=Exit.USAGE)
    made = twins.each(lambda side: side.json("token", "new", "ci", "--scope", "admin"))
    monkeypatch.setenv("FLOWFABRIC_TOKEN", made[twins.server]["token"])
    twins.ff("token new", "reader", "--scope", "read", "--namespace", "default")
    twins.ff("token revoke", twins.each(lambda side: side.name(made[side]["id"], "<token>")))
    assert twins.server.ff("ps") == Exit.REFUSED
    assert "ff token new" in twins.server.err


def test_what_a_server_refuses_has_an_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path, capsys)
    key = desk.submit()
    reader = desk.json("token", "new", "reader", "--scope", "read")["token"]
    server = ServerThread(desk.url)
    try:
        at = ("--url", server.address)
        monkeypatch.setenv("FLOWFABRIC_TOKEN", reader)
        assert main(["show", key, *at]) == Exit.OK
        assert main(["cancel", key, *at]) == Exit.REFUSED
        assert "lacks the scope operate" in capsys.readouterr().err
        assert main(["show", key.replace("}:", "}:0"), *at]) == Exit.USAGE
        monkeypatch.setenv("FLOWFABRIC_TOKEN", reader[:-1] + "~")
        capsys.readouterr()
        assert main(["show", key, "--json", *at]) == Exit.REFUSED
        told = json.loads(capsys.readouterr().out)["error"]
        assert (told["code"], told["exit_code"], told["retryable"]) == ("unauthorized", 4, False)
    finally:
        server.close()
    assert main(["ps", *at]) == Exit.UNAVAILABLE
    assert "cannot reach the server" in capsys.readouterr().err
    for command in ("db check", "bench cycle", "serve", "dev app:ff"):
        assert main([*command.split(), *at]) == Exit.USAGE
        assert "needs a store" in capsys.readouterr().err
