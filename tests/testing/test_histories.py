"""Histories are written, redacted and replayed by other code, without a store."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowfabric import Fabric
from flowfabric.testing import (
    DamagedHistory,
    History,
    ReplayMismatch,
    TestFabric,
    check,
    read_history,
    redacted,
    run,
    write_history,
)
from tests.cli.desk import Desk
from tests.testing.conftest import Play

APP = """
from flowfabric import Context, Fabric

ff = Fabric("{url}")


@ff.step
async def fetch(topic: str) -> str:
    return topic.upper()


@ff.step(secret=True)
async def token(topic: str) -> str:
    return "s3cret" + topic


@ff.step
async def charge(card: dict[str, str]) -> dict[str, int]:
    return {{"paid": 7}}


@ff.task
async def order(topic: str, card: dict[str, str]) -> str:
    page = await fetch(topic)
    {changed}paid = await charge(card)
    return f"{{page}} {{paid['paid']}}"


@ff.task
async def hidden(topic: str) -> str:
    await fetch(topic)
    return (await token(topic))[:1]
"""

CARD = {"number": "4111", "name": "ada"}


def app_in(folder: Path, changed: str = "", url: str = "") -> dict[str, Any]:
    text = APP.format(url=url or f"sqlite:///{folder / 'desk.db'}", changed=changed)
    (folder / "orders.py").write_text(text)
    names: dict[str, Any] = {"__name__": "orders"}
    exec(compile(text, "orders.py", "exec"), names)  # noqa: S102 - our own text
    return names


def recorded(ff: Fabric, kind: str = "order", **arguments: Any) -> History:
    async def main() -> History:
        async with TestFabric(ff) as fabric:
            made = await fabric.submit(kind, arguments)
            await fabric.settle()
            await made.result()
            return await fabric.history(made)

    return run(main())


def test_a_history_survives_its_file(play: Play, tmp_path: Path) -> None:
    ff: Fabric = app_in(tmp_path)["ff"]

    async def scenario(fabric: TestFabric) -> None:
        made = await fabric.submit("order", {"topic": "solar", "card": CARD})
        await fabric.settle()
        history = await fabric.history(made)
        path = tmp_path / "histories" / "order.history"
        write_history(history, path)
        again = read_history(path)
        assert again.payload == history.payload
        assert again.result == b'"SOLAR 7"'
        assert [each.key for each in again.entries] == ["fetch", "charge"]
        assert [each.digest for each in again.entries] == [e.digest for e in history.entries]
        assert await fabric.check_histories(tmp_path / "histories") == 1

    play(scenario, ff)


def test_changed_code_does_not_fit(tmp_path: Path) -> None:
    history = recorded(app_in(tmp_path)["ff"], topic="solar", card=CARD)
    other = app_in(tmp_path, changed="await fetch('first'); ")["ff"]

    async def main() -> None:
        with pytest.raises(ReplayMismatch, match=r"the next call is 'fetch#2'.*is 'charge'"):
            await check(other.tasks["order"], history)

    run(main())


def test_what_is_redacted_is_in_no_line(tmp_path: Path) -> None:
    ff = app_in(tmp_path)["ff"]
    history = recorded(ff, topic="solar", card=CARD)
    clean = redacted(history, ["input.card.number", "fetch", "charge.paid", "result"])
    path = tmp_path / "order.history"
    write_history(clean, path)
    text = path.read_text()
    assert "4111" not in text
    assert "SOLAR" not in text
    assert '"ada"' in text

    async def main() -> None:
        await check(ff.tasks["order"], read_history(path))

    run(main())


def test_a_secret_is_in_no_file_and_the_rest_is_compared(tmp_path: Path) -> None:
    ff = app_in(tmp_path)["ff"]
    history = recorded(ff, "hidden", topic="solar")
    path = tmp_path / "hidden.history"
    write_history(history, path)
    assert "s3cret" not in path.read_text()

    async def main() -> None:
        await check(ff.tasks["hidden"], read_history(path))

    run(main())


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (lambda lines: ["{}", *lines[1:]], 1),
        (lambda lines: [lines[0].replace('"format": 2', '"format": 3'), *lines[1:]], 1),
        (lambda lines: lines[:-1], 2),
        (lambda lines: [*lines[:-1], lines[-1][:-5]], 3),
        (lambda lines: [lines[0], lines[1].replace('"step"', '"strange"'), lines[2]], 2),
        (lambda lines: [], 1),
    ],
    ids=["no history", "newer", "truncated", "cut", "unknown kind", "empty"],
)
def test_a_damaged_file_is_refused_with_its_line(tmp_path: Path, spoil: Any, line: int) -> None:
    history = recorded(app_in(tmp_path)["ff"], topic="solar", card=CARD)
    path = tmp_path / "order.history"
    write_history(history, path)
    path.write_text("\n".join(spoil(path.read_text().splitlines())))
    with pytest.raises(DamagedHistory, match=rf"order\.history:{line}:"):
        read_history(path)


# --- the command line -----------------------------------------------------------------------------

PROGRAM = """
import asyncio
from orders import ff, order
from flowfabric import Worker

async def main():
    async with ff:
        run = await order.submit("solar", {"number": "4111", "name": "ada"})
        worker = Worker(ff)
        running = asyncio.create_task(worker.run(handle_signals=False))
        await run.result()
        worker.stop(immediately=True)
        await running
        print(run.id)

asyncio.run(main())
"""


def ff_replay(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flowfabric.cli", "replay", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_ff_replay_tells_whether_code_fits(
    store: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    """7.1.51."""
    url = "" if store == "sqlite" else str(request.getfixturevalue("postgres_url"))
    app_in(tmp_path, url=url)
    made = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    desk = Desk(tmp_path, capsys)
    desk.url = url or desk.url
    path = tmp_path / "order.history"
    execution_id = made.stdout.strip()
    assert desk.ff("journal", execution_id, "--export", str(path), "--redact", "input.card") == 0
    assert "2 entries" in desk.out
    assert "4111" not in path.read_text()
    assert desk.ff("journal", execution_id, "--export", "-") == 0
    assert json.loads(desk.out.splitlines()[0])["kind"] == "order"

    done = ff_replay(tmp_path, str(path), "orders:ff")
    assert done.returncode == 0, done.stdout + done.stderr
    live = ff_replay(tmp_path, "--live", "order", "orders:ff", "--url", desk.url)
    assert (live.returncode, live.stdout.count("fits")) == (0, 1), live.stdout + live.stderr
    unknown = ff_replay(tmp_path, "--live", "ordr", "orders:ff", "--url", desk.url)
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "there is no task 'ordr' in the app" in unknown.stderr

    app_in(tmp_path, changed="await fetch('first'); ", url=url)
    done = ff_replay(tmp_path, str(path), "orders:ff")
    assert done.returncode == 1
    assert "the next call is 'fetch#2', and recorded is 'charge'" in done.stdout

    path.write_text(path.read_text()[:-30])
    done = ff_replay(tmp_path, str(path), "orders:ff")
    assert done.returncode == 2
    assert "order.history:3:" in done.stdout


def test_ff_replay_refuses_a_history_of_another_kind(tmp_path: Path) -> None:
    history = recorded(app_in(tmp_path)["ff"], topic="solar", card=CARD)
    path = tmp_path / "order.history"
    write_history(history, path)
    (tmp_path / "orders.py").write_text("from flowfabric import Fabric\nff = Fabric()\n")
    done = ff_replay(tmp_path, str(path), "orders:ff")
    assert done.returncode == 2
    assert "order.history:1: there is no task 'order'" in done.stdout
    assert ff_replay(tmp_path, "nowhere.history", "orders:ff").returncode == 3
    assert ff_replay(tmp_path, "orders:ff").returncode == 2
