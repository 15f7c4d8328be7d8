"""Where the processes that share a file meet: a folder that others cannot turn against its user."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flowfabric.stores.sqlite.hints import SocketHints
from flowfabric.stores.sqlite.meeting import Meeting

RUNTIME = "XDG_RUNTIME_DIR"


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files with a short name: addresses of sockets are short."""
    monkeypatch.delenv(RUNTIME, raising=False)
    with tempfile.TemporaryDirectory(prefix="ff-h-") as name:
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield Path(name)


def meeting_place(temporary: Path) -> Path:
    (found,) = temporary.iterdir()
    return found


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


async def told(sender: SocketHints, receiver: SocketHints) -> bool:
    """Whether a hint of one reaches the other."""
    heard = asyncio.Event()
    undo = receiver.subscribe(lambda topics: heard.set())
    sender.publish({"lane:x": 1})
    try:
        async with asyncio.timeout(0.5):
            await heard.wait()
    except TimeoutError:
        return False
    finally:
        undo()
    return True


def dead_socket(path: Path) -> None:
    """What a killed process leaves behind."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as made:
        made.bind(str(path))


def test_two_processes_hear_each_other_and_the_last_removes_the_folder(temporary: Path) -> None:
    async def story() -> None:
        first, second = SocketHints("/data/a.db"), SocketHints("/data/a.db")
        first.start()
        second.start()
        assert await told(first, second)
        assert stat.S_IMODE(meeting_place(temporary).stat().st_mode) == 0o700
        first.stop()
        assert list(meeting_place(temporary).iterdir())
        second.stop()
        assert names(temporary) == []

    asyncio.run(story())


def test_sockets_of_killed_processes_are_swept_by_the_last_that_leaves(temporary: Path) -> None:
    async def story() -> None:
        hints = SocketHints("/data/a.db")
        hints.start()
        dead_socket(meeting_place(temporary) / "p-0123456789")
        hints.stop()
        assert names(temporary) == []

    asyncio.run(story())


def test_a_socket_of_a_process_that_is_gone_is_removed_by_the_next_hint(temporary: Path) -> None:
    async def story() -> None:
        hints = SocketHints("/data/a.db")
        hints.start()
        dead = meeting_place(temporary) / "p-0123456789"
        dead_socket(dead)
        hints.publish({"lane:x": 1})
        assert not dead.exists()
        hints.stop()

    asyncio.run(story())


def test_nothing_but_our_own_sockets_is_ever_removed(temporary: Path) -> None:
    """Regular files refuse a datagram just as dead sockets do."""

    async def story() -> None:
        hints = SocketHints("/data/a.db")
        hints.start()
        folder = meeting_place(temporary)
        for name in ("precious.txt", "p-0123456789"):
            (folder / name).write_text("mine")
        dead_socket(folder / "other-socket")
        (folder / "p-9876543210").symlink_to(folder / "precious.txt")
        before = {each.name for each in folder.iterdir()}
        hints.publish({"lane:x": 1})
        hints.publish({"lane:y": 1})
        assert {each.name for each in folder.iterdir()} == before
        hints.stop()
        left = {each.name for each in folder.iterdir()}
        assert left == {"precious.txt", "p-0123456789", "other-socket", "p-9876543210"}

    asyncio.run(story())


def test_a_link_in_the_place_of_the_folder_is_not_followed(temporary: Path) -> None:
    async def story() -> None:
        hints = SocketHints("/data/a.db")
        hints.start()
        folder = meeting_place(temporary)
        hints.stop()
        victim = temporary / "victim"
        victim.mkdir(mode=0o700)
        (victim / "p-0123456789").write_text("mine")
        folder.symlink_to(victim)
        hints.start()
        hints.publish({"lane:x": 1})
        hints.stop()
        assert [each.name for each in victim.iterdir()] == ["p-0123456789"]
        assert folder.is_symlink()

    asyncio.run(story())


def test_a_folder_that_becomes_a_link_later_is_not_followed(temporary: Path) -> None:
    async def story() -> None:
        hints = SocketHints("/data/a.db")
        hints.start()
        folder = meeting_place(temporary)
        folder.rename(temporary / "away")
        victim = temporary / "victim"
        victim.mkdir(mode=0o700)
        dead_socket(victim / "p-0123456789")
        folder.symlink_to(victim)
        hints.publish({"lane:x": 1})
        hints.stop()
        assert (victim / "p-0123456789").exists()

    asyncio.run(story())


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o777])
def test_a_folder_that_others_may_enter_is_not_used(temporary: Path, mode: int) -> None:
    async def story() -> None:
        hints = SocketHints("/data/a.db")
        hints.start()
        folder = meeting_place(temporary)
        hints.stop()
        folder.mkdir()
        folder.chmod(mode)
        hints.start()
        assert list(folder.iterdir()) == []
        hints.stop()

    asyncio.run(story())


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_used(temporary: Path) -> None:
    async def story() -> None:
        hints = SocketHints("/data/a.db")
        hints.start()
        folder = meeting_place(temporary)
        hints.stop()
        folder.mkdir(mode=0o700)
        os.chown(folder, 12345, -1)
        hints.start()
        assert list(folder.iterdir()) == []
        hints.stop()

    asyncio.run(story())


def test_the_runtime_folder_of_the_session_is_preferred(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = temporary / "run"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv(RUNTIME, str(runtime))

    async def story() -> None:
        hints = SocketHints("/data/a.db")
        hints.start()
        assert names(temporary) == ["run"]
        assert list(runtime.iterdir())
        hints.stop()
        assert list(runtime.iterdir()) == []

    asyncio.run(story())


@pytest.mark.parametrize("strange", ["relative", "/nowhere", "/proc/self/status", "shared"])
def test_a_strange_runtime_folder_is_passed_over(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, strange: str
) -> None:
    if strange == "shared":
        (temporary / "shared").mkdir()
        (temporary / "shared").chmod(0o777)
        strange = str(temporary / "shared")
    monkeypatch.setenv(RUNTIME, strange)

    async def story() -> None:
        hints = SocketHints("/data/a.db")
        hints.start()
        assert any(name.startswith("flowfabric-") for name in names(temporary))
        hints.stop()

    asyncio.run(story())


def test_a_shell_with_a_runtime_folder_reaches_a_service_without_one(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        service = SocketHints("/data/a.db")
        service.start()
        runtime = temporary / "run"
        runtime.mkdir(mode=0o700)
        monkeypatch.setenv(RUNTIME, str(runtime))
        shell = SocketHints("/data/a.db")
        shell.start()
        assert await told(shell, service)
        service.stop()
        shell.stop()

    asyncio.run(story())


def test_processes_that_name_the_file_by_a_link_meet_at_one_place(
    temporary: Path, tmp_path: Path
) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")

    async def story() -> None:
        first, second = (
            SocketHints(str(tmp_path / "link.db")),
            SocketHints(str(tmp_path / "real.db")),
        )
        first.start()
        second.start()
        assert await told(first, second)
        first.stop()
        second.stop()

    asyncio.run(story())


def test_a_folder_that_goes_while_a_process_enters_is_made_again(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last process to leave removes it between our look at it and the next step."""
    folder = temporary / "met"
    folder.mkdir(mode=0o700)
    make = Path.mkdir
    left = [folder.rmdir]

    def make_while_others_leave(self: Path, *args: Any, **settings: Any) -> None:
        try:
            make(self, *args, **settings)
        finally:
            if left:
                left.pop()()

    monkeypatch.setattr(Path, "mkdir", make_while_others_leave)
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as listener:
        address = Meeting(folder).enter(listener)
    assert address is not None
    assert address.parent == folder
