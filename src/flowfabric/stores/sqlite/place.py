"""The file: made private, and known again."""

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
    """Where a file stands, and which file stood there when it was first opened.

    Nothing here opens a file that exists: to close it again would drop the locks that SQLite holds
    on it for this whole process.
    """

    def __init__(self, path: str, *, file: tuple[int, int] | None = None) -> None:
        """`file`: the one that must stand there, by device and number; none: whichever does."""
        self.path = os.path.realpath(path)
        self._given = self._file = file

    def again(self) -> Place:
        """The same place for other connections, which must be to the same file."""
        return Place(self.path, file=self._file)

    def prepare(self) -> None:
        """Before a connection is made. A file in the place of the one that is known must not even
        be opened: SQLite would play the log of the old one into it."""
        if self._file is None:
            self._create()
        else:
            self.check()

    def _create(self) -> None:
        """Make the file, and missing folders, if there is none: for its owner only, whatever the
        umask. SQLite gives its companions the same mode. A file that exists keeps its own."""
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        wanted = os.O_RDWR | os.O_CREAT | os.O_EXCL
        with _creating, suppress(FileExistsError):
            os.close(os.open(self.path, wanted, _PRIVATE))

    def remember(self) -> None:
        """This is the file; every later connection must be to the same one."""
        if self._file is None:
            self._file = self._found()
        self.check()

    def forget(self) -> None:
        """No connection is left: the next may be to any file, unless one was given."""
        self._file = self._given

    def check(self) -> None:
        """Refuse if the path no longer leads to the file that connections have open."""
        if self._found() != self._file:
            raise StoreReplaced(f"{self.path}: another file stands here now; {_ADVICE}")

    def _found(self) -> tuple[int, int]:
        try:
            found = os.stat(self.path)  # noqa: PTH116 - every transaction asks; a Path costs as much
        except FileNotFoundError:
            raise StoreReplaced(f"{self.path}: deleted or moved while in use; {_ADVICE}") from None
        except OSError as error:
            raise StoreUnavailable(f"{self.path}: {error}") from error
        return found.st_dev, found.st_ino


_ADVICE: Final = "stop every process that uses it, put the right file in its place, start again"
