"""A desk for CLI tests: a fresh database, `ff` as a function, and the engine to prepare things."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from flowfabric.assemble import open_engine
from flowfabric.cli import main
from flowfabric.config import EngineConfig, user_at_host
from flowfabric.engine.engine import Engine
from flowfabric.model.attempt import FailureClass
from flowfabric.model.results import Claimed
from tests.support.server_thread import ServerThread

if TYPE_CHECKING:
    import pytest

T = TypeVar("T")
BESIDE_THE_STORE = ("db", "bench", "serve", "dev")


class Desk:
    """One database and the command line in front of it."""

    def __init__(
        self, folder: Path, capsys: pytest.CaptureFixture[str], *, through_server: bool = False
    ) -> None:
        self.path = folder / "desk.db"
        self.url = f"sqlite:///{self.path}"
        self._capsys = capsys
        self._through_server = through_server
        self._server: ServerThread | None = None
        self.out = ""
        self.err = ""

    def url_for(self, command: str) -> str:
        """Where a command is sent: to the database, or to a server in front of it."""
        if not self._through_server or command in BESIDE_THE_STORE:
            return self.url
        if self._server is None:
            self._server = ServerThread(self.url, EngineConfig(loops=False, actor=user_at_host()))
        return self._server.address

    def close(self) -> None:
        """Stop the server, if there is one."""
        if self._server is not None:
            self._server.close()

    def ff(self, *words: str) -> int:
        """Run a command on this database; what it printed is in `out` and `err`."""
        self._capsys.readouterr()
        code = main([*words, "--url", self.url_for(words[0])])
        self.out, self.err = self._capsys.readouterr()
        assert "Traceback" not in self.err
        return code

    def json(self, *words: str, code: int = 0) -> Any:
        """Run a command with --json, expect an exit code, return the document."""
        assert self.ff(*words, "--json") == code, self.err
        return json.loads(self.out)

    def given(self, work: Callable[[Engine], Awaitable[T]]) -> T:
        """Prepare something with an engine of its own."""

        async def run() -> T:
            async with open_engine(self.url, config=EngineConfig(loops=False)) as engine:
                return await work(engine)

        return asyncio.run(run())

    def submit(self, kind: str = "greet", *words: str) -> str:
        """Create an execution and return its id."""
        assert self.ff("submit", kind, *words) == 0, self.err
        return self.out.strip()

    def claim(self) -> Claimed:
        """A worker takes what waits first."""

        async def work(engine: Engine) -> Claimed:
            [claimed] = await engine.claim(
                lanes=["default"], worker_id="ada", worker_instance_id="ada-1", limit=1
            )
            return claimed

        return self.given(work)

    def complete(self, claimed: Claimed, result: bytes = b'"hello"') -> None:
        """The worker is done."""
        self.given(
            lambda engine: engine.complete(claimed.handle, result=result, result_encoding="json")
        )

    def fail(self, claimed: Claimed, reason: str = "KeyError: 'x'\nTraceback …") -> None:
        """The worker gives up for good."""
        self.given(
            lambda engine: engine.fail(
                claimed.handle, reason=reason, failure_class=FailureClass.PERMANENT
            )
        )

    def completed(self) -> str:
        """An execution that succeeded."""
        self.submit("greet", "name=ada")
        claimed = self.claim()
        self.complete(claimed)
        return claimed.execution_id

    def failed(self) -> str:
        """An execution that failed."""
        self.submit("greet", "name=ada")
        claimed = self.claim()
        self.fail(claimed)
        return claimed.execution_id
