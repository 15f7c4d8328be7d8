"""`ff code`, `ff code move`, and `ff release --reason mismatch`."""

from __future__ import annotations

import asyncio
from typing import Any

from flowfabric import Context, Fabric, PublicState
from flowfabric.cli.exits import Exit
from tests.cli.desk import Desk
from tests.sdk.workshop import until, working


def app(desk: Desk, version: str, *names: str, **options: Any) -> Fabric:
    ff = Fabric(desk.url)

    @ff.task(version=version, **options)
    async def brief(ctx: Context) -> str:
        for name in names:
            if name.startswith("?"):
                ctx.patched(name[1:])
            else:
                await ctx.step(name, str, name)
        await ctx.wait_for("go", timeout="1h")
        return "done"

    return ff


def waited(ff: Fabric, *, number: int = 1) -> list[str]:
    """Runs that wait in their handlers; their ids."""

    async def main() -> list[str]:
        async with ff, working(ff):
            runs = [await ff.submit(ff.tasks["brief"]) for _ in range(number)]

            async def all_wait() -> bool:
                states = [await run.state() for run in runs]
                return all(state is PublicState.SUSPENDED for state in states)

            await until(all_wait)
            return [run.id for run in runs]

    return asyncio.run(main())


def submitted(ff: Fabric, number: int = 1) -> list[str]:
    async def main() -> list[str]:
        async with ff:
            return [(await ff.submit(ff.tasks["brief"])).id for _ in range(number)]

    return asyncio.run(main())


def test_versions_and_markers_in_use(desk: Desk) -> None:
    desk.given(lambda engine: engine.server_time_ms())
    assert desk.ff("code") == 0
    assert "no execution" in desk.err
    waited(app(desk, "1", "a"))
    waited(app(desk, "2", "?fraud", "a", "?vat", pin=True), number=2)
    submitted(app(desk, "3", pin=True))
    found = desk.json("code", "brief")
    assert (found["executions"], found["is_whole"]) == (4, True)
    versions = {each["version"]: each for each in found["versions"]}
    assert [(v, versions[v]["pinned"], versions[v]["began"]) for v in ("1", "2", "3")] == [
        ("1", 0, 1),
        ("2", 2, 2),
        ("3", 1, 0),
    ]
    assert not any(each["is_safe_to_remove"] for each in found["versions"])
    assert found["markers"] == [
        {"kind": "brief", "marker": name, "with": 2, "without": 1, "is_safe_to_remove": False}
        for name in ("fraud", "vat")
    ]
    assert desk.ff("code") == 0
    assert "SAFE TO REMOVE" in desk.out
    assert desk.json("code", "none")["versions"] == []


def test_a_marker_that_all_have_is_safe_to_remove(desk: Desk) -> None:
    waited(app(desk, "2", "?vat", "a"), number=2)
    submitted(app(desk, "2"))
    (marker,) = desk.json("code", "brief")["markers"]
    assert (marker["without"], marker["is_safe_to_remove"]) == (0, True)
    assert desk.ff("code", "brief", "--sample", "2") == 0
    assert "only the newest 2 executions were looked at" in desk.err
    assert "?" in desk.out
    assert "yes" not in desk.out


def test_what_does_not_run_is_moved(desk: Desk) -> None:
    ids = submitted(app(desk, "2", pin=True), 3)
    submitted(app(desk, "9", pin=True))
    desk.given(
        lambda engine: engine.claim(
            lanes=["default"],
            worker_id="w",
            worker_instance_id="w-1",
            capabilities=["task:brief@2"],
        )
    )
    found = desk.json("code", "move", "brief", "2", "3", code=Exit.REFUSED)
    assert found == {"moved": 2, "refused": {"execution_not_eligible": 1}}
    versions = {each["version"]: each["pinned"] for each in desk.json("code")["versions"]}
    assert {v: versions[v] for v in ("2", "3", "9")} == {"2": 1, "3": 2, "9": 1}
    assert desk.ff("events", "--kind", "operator", "--type", "repinned", "--json") == 0
    assert sum(each in desk.out for each in ids) == 2


def test_words_that_make_no_sense(desk: Desk) -> None:
    for words in (("code", "a", "b"), ("code", "move", "brief"), ("code", "move", "a", "b c", "d")):
        assert desk.ff(*words) == Exit.USAGE, words


def test_why_names_the_version_that_no_worker_has(desk: Desk) -> None:
    (key,) = submitted(app(desk, "2", pin=True))
    assert desk.ff("why", key) == 0
    assert "no live worker has brief@2; 1 wait for it" in desk.out


def test_all_that_a_mismatch_holds_is_released_at_once(desk: Desk) -> None:
    ids = waited(app(desk, "1", "a"), number=2)
    other = waited(app(desk, "1", "a"))

    async def go() -> None:
        changed = app(desk, "2", "new", "a")
        async with changed, working(changed):
            for key in ids:
                await changed.signal(changed.run(key), "go")

            async def all_held() -> bool:
                infos = [await changed.run(key).info() for key in ids]
                return all(each.blocking_reason.value == "paused_by_policy" for each in infos)

            await until(all_held)

    asyncio.run(go())
    assert desk.ff("why", ids[0]) == 0
    assert "recorded by version 1, met by version 2" in desk.out
    bulk = ("release", "--kind", "brief", "--reason", "mismatch")
    assert desk.json(*bulk, "--dry-run") == {"dry_run": True, "matched": 2}
    assert desk.json(*bulk, "--yes") == {"matched": 2, "done": 2, "refused": {}}
    states = [desk.json("show", key)["public_state"] for key in (*ids, *other)]
    assert states == ["waiting", "waiting", "suspended"]
