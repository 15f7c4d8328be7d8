"""The programs of the page about web servers, under a real gunicorn and with real forks."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from flowfabric.clock import monotonic
from tests.docs.test_docs import DOCS, blocks, environment, ff, name_of, run_block

PAGE = DOCS / "guides" / "web-servers.md"
PROGRAMS = {name_of(param.values[0]): param.values[0] for param in blocks(PAGE)}
PATIENCE_S = 60.0


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def gunicorn(folder: Path, *options: str) -> Iterator[int]:
    """The server, until the test is over; it must end when it is asked to."""
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "shop:app", "--bind", f"127.0.0.1:{port}"]
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--workers", "2", "--worker-tmp-dir", str(folder), *options],
            cwd=folder,
            env=environment(folder),
            stdout=log,
            stderr=log,
        )
    try:
        yield port
        process.terminate()
        assert process.wait(PATIENCE_S) == 0, (folder / "server.log").read_text()
    finally:
        process.kill()
        process.wait()


def order(port: int, topic: str) -> tuple[int, str]:
    """One request on a connection of its own, as soon as the server answers."""
    deadline = monotonic() + PATIENCE_S
    while True:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as line:
            try:
                line.request("POST", f"/{topic}")
            except ConnectionRefusedError:
                assert monotonic() < deadline, "the server does not start"
                continue
            answer = line.getresponse()
            return answer.status, answer.read().decode()


@pytest.mark.parametrize("options", [(), ("--preload",)])
def test_gunicorn_serves_with_and_without_preload(options: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAMS["shop.py"], encoding="utf-8")
    with gunicorn(tmp_path, *options) as port:
        answers = [order(port, f"topic-{number}") for number in range(6)]
    assert [status for status, _ in answers] == [202] * 6
    listing = ff(tmp_path, "ps", "--json")
    assert all(run_id in listing for _, run_id in answers)


def test_a_prefork_program_runs(tmp_path: Path) -> None:
    printed = run_block(PROGRAMS["prefork.py"], tmp_path)
    assert sorted(printed.splitlines()) == ["all about topic 0", "all about topic 1"]


def test_a_pool_of_forked_processes_runs(tmp_path: Path) -> None:
    printed = run_block(PROGRAMS["crowd.py"], tmp_path)
    assert printed == "['all about solar', 'all about wind']\n"
