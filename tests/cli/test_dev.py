"""`ff dev`: a server and a worker that follows the code, in one tree of processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from flowfabric.cli import main
from flowfabric.cli.dev_worker import files_of
from flowfabric.cli.exits import Exit
from flowfabric.clock import monotonic
from tests.support.serving import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
APP = """
import asyncio

from flowfabric import Fabric
from words import WORD

ff = Fabric("sqlite:///not-this-one.db")


@ff.task
async def greet(name: str) -> str:
    return f"{WORD}, {name}"


@ff.task
async def sleep() -> None:
    await asyncio.sleep(600)
"""


class Dev:
    """`ff dev app:ff` on a free port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "app.py").write_text(APP)
        self.word("hello")
        path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        with (folder / "dev.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "flowfabric.cli", "dev", "app:ff", "--json"),
                    *("--url", "sqlite:///dev.db", "--bind", "127.0.0.1:0"),
                ],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": path, "XDG_STATE_HOME": str(folder)},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.address = self.login = ""

    def word(self, text: str) -> None:
        """Change a file that the program imports."""
        (self.folder / "words.py").write_text(f'WORD = "{text}"\n')

    def await_start(self) -> None:
        """Return when its first page is there."""
        assert self.process.stdout is not None
        text = ""
        for line in self.process.stdout:
            text += line
            if line.startswith("}"):
                break
        assert text, self.log()
        told = json.loads(text)
        self.address, self.login = told["address"], told["login"]
        assert "/v1/executions" in httpx.get(f"{self.address}/docs", timeout=PATIENCE_S).text

    def greet(self) -> str:
        """What a task of the program answers now."""
        made = self.submit("greet", {"name": "Joan"}, wait="20s")
        return str(made["outcome"]["result"])

    def submit(self, kind: str, given: Any = None, wait: str = "0s") -> Any:
        deadline = monotonic() + PATIENCE_S
        while True:
            answer = httpx.post(
                f"{self.address}/v1/executions?wait={wait}",
                json={"execution_kind": kind, "input": given},
                timeout=PATIENCE_S,
            )
            if answer.status_code != 503:  # this machine may have too much to do
                return answer.json()
            assert monotonic() < deadline, answer.text

    def log(self) -> str:
        return (self.folder / "dev.log").read_text()

    def workers(self) -> list[psutil.Process]:
        return list(psutil.Process(self.process.pid).children())

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def developing(folder: Path) -> Iterator[Dev]:
    dev = Dev(folder)
    try:
        yield dev
    finally:
        dev.end()


def until(is_so: Callable[[], bool], dev: Dev) -> None:
    deadline = monotonic() + PATIENCE_S
    while not is_so():
        assert monotonic() < deadline, dev.log()
        assert dev.process.poll() is None, dev.log()


@pytest.mark.slow
def test_the_worker_follows_the_code_and_the_server_stays(tmp_path: Path) -> None:
    with developing(tmp_path) as dev:
        dev.await_start()
        assert dev.greet() == "hello, Joan"
        dev.word("good day")
        until(lambda: dev.greet() == "good day, Joan", dev)

        (tmp_path / "words.py").write_text("WORD = (\n")
        until(lambda: "the worker before it goes on" in dev.log(), dev)
        assert "SyntaxError" in dev.log()
        assert 'words.py", line 1' in dev.log()
        assert "flowfabric/cli" not in dev.log()
        assert dev.greet() == "good day, Joan"
        dev.word("good night")
        until(lambda: dev.greet() == "good night, Joan", dev)

        until(lambda: len(dev.workers()) == 1, dev)
        (worker,) = dev.workers()
        worker.kill()
        until(lambda: "another one is started" in dev.log(), dev)
        assert dev.greet() == "good night, Joan"

        dev.submit("sleep")
        (worker,) = dev.workers()
        dev.process.send_signal(signal.SIGINT)
        assert dev.process.wait(PATIENCE_S) == 0, dev.log()
        assert not worker.is_running()
        assert "/flowfabric/" not in dev.log()
    assert not (tmp_path / "not-this-one.db").exists()


@pytest.mark.slow
def test_the_first_page_is_there_within_two_seconds(tmp_path: Path) -> None:
    """Of the processor's time: how long that takes depends on what else the machine does."""
    with developing(tmp_path) as dev:
        dev.await_start()
        spent = psutil.Process(dev.process.pid).cpu_times()
        assert spent.user + spent.system <= 2.0
        signed_in, again = [httpx.get(dev.login, timeout=PATIENCE_S) for _ in range(2)]
        assert (signed_in.status_code, again.status_code) == (303, 401)
        assert signed_in.headers["set-cookie"].startswith("ff=")


@pytest.mark.slow
def test_no_worker_outlives_a_server_that_is_killed(tmp_path: Path) -> None:
    with developing(tmp_path) as dev:
        dev.await_start()
        until(lambda: "starts on" in dev.log(), dev)
        (worker,) = dev.workers()
        dev.process.kill()
        worker.wait(PATIENCE_S)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["app"], "is not MODULE:APP"),
        (["app:ff", "--url", "memory://"], "two processes"),
        (["app:ff", "--url", "http://127.0.0.1:1"], "needs a store"),
        (["app:ff", "--bind", "nowhere:port"], "bind"),
    ],
)
def test_what_cannot_be_is_refused(
    words: list[str],
    hint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["dev", *words]) == Exit.USAGE
    assert hint in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_port_that_is_taken_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        place = f"127.0.0.1:{other.getsockname()[1]}"
        assert main(["dev", "app:ff", "--bind", place]) == Exit.USAGE
    assert "another program listens on" in capsys.readouterr().err


def test_the_files_of_a_program_are_its_own(tmp_path: Path) -> None:
    found = files_of(None)
    assert str(Path(__file__)) in found
    assert not [each for each in found if "site-packages" in each or "/flowfabric/cli/" in each]
    broken = tmp_path / "broken.py"
    broken.write_text("def (")
    with pytest.raises(SyntaxError) as caught:
        compile(broken.read_text(), str(broken), "exec")
    assert str(broken) in files_of(caught.value)
