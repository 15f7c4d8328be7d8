"""Two desks with the same work, one at a store and one at a server: what each command says."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from tests.cli.desk import Desk
from tests.support.server_thread import ServerThread

if TYPE_CHECKING:
    import pytest

_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?|\b1[67]\d{11}\b")
_SPAN = re.compile(r"\b(\d+(\.\d+)?(ms|s|m|h|d)\b\s*)+(ago\b)?|\bjust now\b")
_SIZE = re.compile(r"\b\d+(\.\d)? [KM]?i?B\b")
_OPAQUE = re.compile(
    r"\b(ffw1\.[\w.-]+|ff_\w+|(?<=revoke )\w{10}|\d{13}-\d+|[0-9a-f]{32,64}|[0-9a-f]{16})\b"
)
_HOST = re.compile(r"\b[\w.-]+-[0-9a-f]{10}\b")  # an instance of a worker
_MEASURED = re.compile(
    r'("?\b(?:\w+_(?:ms|bytes|us)|bytes|position|next_cursor|place|cursor)"?(?:[:=] ?| {2,}))'
    r'("[^"]*"|-?[\w.]+)'
)


class Side(Desk):
    """One of the two: where its commands go, and the names that its ids have in both."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        folder.mkdir(parents=True)
        super().__init__(folder, capsys)
        self.asked = self.url
        self.ids: dict[str, str] = {}

    def ff(self, *words: str) -> int:
        """A command at the store, or at the server in front of it."""
        before, self.url = self.url, self.asked
        try:
            return super().ff(*words)
        finally:
            self.url = before

    def name(self, found: str, known_as: str) -> str:
        """Remember an id under the name that it has on both sides."""
        self.ids[found[-36:]] = known_as
        return found

    def plain(self, text: str) -> str:
        """What was printed without what differs from run to run."""
        text = text.replace(self.asked, "URL").replace(self.url, "URL")
        text = text.replace(str(self.path.parent), "FOLDER")
        for each in _UUID.findall(text):
            self.ids.setdefault(each, f"<{len(self.ids)}>")
        for each, name in self.ids.items():
            text = re.sub(rf"(\{{fp:\d+\}}:)?{each}", name, text)
            text = re.sub(rf"\b\w{{0,4}}{each[-8:]}\b", name, text)
        for pattern, said in (
            (_HOST, "INSTANCE"),
            (_OPAQUE, "OPAQUE"),
            (_INSTANT, "INSTANT"),
            (_SPAN, "SPAN "),
            (_SIZE, "SIZE"),
            (_MEASURED, r"\1MEASURED"),
        ):
            text = pattern.sub(said, text)
        return re.sub(r"[ ─-]{2,}", "  ", text)


class Twins:
    """The same is done on both sides, and must be told in the same words."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.store = Side(folder / "store", capsys)
        self.server = Side(folder / "server", capsys)
        self.sides = (self.store, self.server)
        self.walked: set[str] = set()
        assert self.server.ff("db", "migrate") == 0
        assert self.store.ff("db", "migrate") == 0
        self._thread = ServerThread(self.server.url, EngineConfig())
        self.server.asked = self._thread.address

    def close(self) -> None:
        self._thread.close()

    def given(self, work: Callable[[Engine], Awaitable[Any]]) -> None:
        """Prepare something on both sides."""
        for side in self.sides:
            side.given(work)

    def settle(self) -> None:
        """Let happen what is due."""
        self.given(lambda engine: engine.tick())

    def each(self, work: Callable[[Side], Any]) -> Mapping[Side, Any]:
        return {side: work(side) for side in self.sides}

    def ff(self, command: str, *words: str | Mapping[Side, str], code: int = 0) -> None:
        """A command with its words ends in the same way on both sides, as expected."""
        self.walked.add(command)
        told = []
        for side in self.sides:
            given = [each if isinstance(each, str) else each[side] for each in words]
            ended = side.ff(*command.split(), *given)
            told.append((ended, side.plain(side.out), side.plain(side.err)))
        assert told[1] == told[0], (command, *words)
        assert told[0][0] == code, (command, *words, *told[0])

    def shows(self, command: str, *words: str | Mapping[Side, str], code: int = 0) -> None:
        """A command that changes nothing, for people and for programs."""
        self.ff(command, *words, code=code)
        self.ff(command, *words, "--json", code=code)

    def submit(self, *words: str, name: str) -> Mapping[Side, str]:
        """The id of a new execution on each side."""
        self.walked.add("submit")
        return {side: side.name(side.submit(*words), f"<{name}>") for side in self.sides}
