"""The folder with the sockets of the processes that share a file.

Its name can be guessed, and other users may write beside it. So it is used only while it is a real
folder, ours, and closed to every other user; and nothing is removed from it but sockets with names
that we give.
"""

from __future__ import annotations

import os
import re
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from flowfabric.ids import new_name

_SOCKET_NAME: Final = re.compile(r"p-[0-9a-f]{10}")
_TRIES: Final = 3  # the last process to leave may remove the folder while we enter


def is_private_folder(path: Path) -> bool:
    """Whether it is a folder, not a link to one, that only this user may enter."""
    try:
        return _is_private(os.lstat(path))
    except OSError:
        return False


def _is_private(found: os.stat_result) -> bool:
    is_closed = stat.S_IMODE(found.st_mode) & 0o077 == 0
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and is_closed


class Meeting:
    """One such folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def enter(self, listener: socket.socket) -> Path | None:
        """Bind a socket to an address here; None where that is impossible."""
        for _ in range(_TRIES):
            try:
                with suppress(FileExistsError):
                    self._folder.mkdir(mode=0o700)
                if not _is_private(os.lstat(self._folder)):
                    return None
                address = self._folder / new_name("p")
                listener.bind(str(address))
            except FileNotFoundError:
                continue
            except OSError:  # the path of the temporary folder is too long, or it is full
                return None
            return address
        return None

    def others(self, own: Path | None) -> Iterator[str]:
        """The addresses of the other processes."""
        if not is_private_folder(self._folder):
            return
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                is_own = own is not None and entry.name == own.name
                if not is_own and _SOCKET_NAME.fullmatch(entry.name):
                    yield entry.path

    def leave(self, address: Path) -> None:
        """Remove our address, and the folder if that was the last."""
        with suppress(OSError):
            address.unlink()
            self._folder.rmdir()


def remove_dead(address: str) -> None:
    """Remove the address of a process that is gone, and nothing else that refuses a datagram."""
    with suppress(OSError):
        if stat.S_ISSOCK(os.lstat(address).st_mode):
            Path(address).unlink()
