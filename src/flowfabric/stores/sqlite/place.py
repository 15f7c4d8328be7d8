"""The database file: made private, and recognised later."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from flowfabric.errors import StoreReplaced, StoreUnavailable

_PRIVATE: Final = 0o600
_creating = threading.Lock()


class Place:
    """The path of a file, and the identity of the file first opened there.

    Nothing here opens a file that exists: closing it again would drop the locks that SQLite has on
    it for this whole process.
    """

    def __init__(self, path: str, *, file: tuple[int, int] | None = None) -> None:
        """`file`: the expected one, by device and inode; None: any file."""
        self.path = os.path.realpath(path)
        self._given = self._file = file

    def again(self) -> Place:
        """The same path for other connections, which must be to the same file."""
        return Place(self.path, file=self._file)

    def prepare(self) -> None:
        """Called before a connection is made. A file that replaced the known one must not even be
        opened: SQLite would apply the log of the old one to it."""
        if self._file is None:
            self._create()
        else:
            self.check()

    def _create(self) -> None:
        """Create the file, and missing folders: for its owner only, whatever the umask. SQLite
        gives its companions the same mode. An existing file keeps its own."""
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        wanted = os.O_RDWR | os.O_CREAT | os.O_EXCL
        with _creating, suppress(FileExistsError):
            os.close(os.open(self.path, wanted, _PRIVATE))

    def remember(self) -> None:
        """Remember this file; every later connection must be to the same one."""
        if self._file is None:
            self._file = self._found()
        self.check()

    def forget(self) -> None:
        """No connection is left: the next may be to any file, unless one was given."""
        self._file = self._given

    def check(self) -> None:
        """Refuse if the path no longer leads to the open file."""
        if self._found() != self._file:
            raise StoreReplaced(f"{self.path}: another file is here now; {_ADVICE}")

    def _found(self) -> tuple[int, int]:
        try:
            found = os.stat(self.path)  # noqa: PTH116 - every transaction asks; a Path costs as much
        except FileNotFoundError:
            raise StoreReplaced(f"{self.path}: deleted or moved while in use; {_ADVICE}") from None
        except OSError as error:
            raise StoreUnavailable(f"{self.path}: {error}") from error
        return found.st_dev, found.st_ino


_ADVICE: Final = "stop every process that uses it, put the right file in its place, start again"
