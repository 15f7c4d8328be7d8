"""`ff serve`: its start, its refusals, its signals and its end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from flowfabric import Fabric
from flowfabric.assemble import open_engine
from flowfabric.cli import main
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.serving import Serving, server_for
from flowfabric.cli.show.terminal import Terminal
from flowfabric.cli.stopping import Stops
from flowfabric.config import EngineConfig
from flowfabric.errors import InvalidInput
from flowfabric.server.serve import Server, bound_socket
from flowfabric.server.settings import ServerSettings
from tests.support.living import fixture
from tests.support.serving import get, serving

FREE = "127.0.0.1:0"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in list(os.environ):
        if name.startswith("FLOWFABRIC_"):
            monkeypatch.delenv(name)


@pytest.fixture
def url(tmp_path: Path) -> str:
    made = f"sqlite:///{tmp_path / 'served.db'}"
    assert main(["db", "migrate", "--url", made]) == Exit.OK
    return made


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit code and the one line of a command that does not start."""
    capsys.readouterr()
    code = main(["serve", "--bind", FREE, "--log-level", "error", *words])
    told = capsys.readouterr().err
    assert told.count("\n") == 1, told
    return code, told


# --- as a process ---------------------------------------------------------------------------------


def test_a_server_serves_and_drains_on_sigterm(url: str, tmp_path: Path) -> None:
    with serving(url, "--drain-delay", "500ms", folder=tmp_path) as server:
        address = server.told["address"]
        assert get(address, "/readyz").json() == {
            "ready": True,
            "checks": {"store": True, "loop": True, "serving": True},
        }
        with Fabric(address).sync as ff:
            run = ff.submit("greet", "ada")
            assert run.info().public_state.value == "waiting"
        server.process.send_signal(signal.SIGTERM)
        while get(address, "/readyz").status_code == 200:
            pass  # each answer comes from a loop that turns
        assert get(address, "/livez").status_code == 200
        assert server.process.wait(30) == 0
    assert server.lines()[-1]["message"] == "the server has stopped"


def test_a_request_is_logged_with_its_id_and_without_its_secrets(url: str, tmp_path: Path) -> None:
    with serving(url, folder=tmp_path) as server:
        headers = {"X-Request-Id": "mine-1", "Authorization": "Bearer ff_planted_secret"}
        answer = get(server.told["address"], "/v1/nowhere?key=planted_too", headers=headers)
        assert answer.headers["x-request-id"] == "mine-1"
        assert server.stop(signal.SIGINT) == 0
        (line,) = [each for each in server.lines() if each.get("request_id") == "mine-1"]
    wanted = {"actor": None, "method": "GET", "route": "none", "status": 404}
    assert {name: line[name] for name in wanted} == wanted
    assert line["ms"] >= 0
    assert "planted" not in server.log.read_text("utf-8")


# --- in this process ------------------------------------------------------------------------------


def call_for(url: str) -> Call:
    arguments = Namespace(url=url, namespace=None, actor=None, debug=False)
    return Call(arguments=arguments, terminal=Terminal(as_json=True))


class Running:
    """A serving of this process, and what stops it."""

    def __init__(self, url: str, settings: ServerSettings) -> None:
        self.server = server_for(call_for(url), settings)
        self.stops = Stops()
        self.serving = Serving(call_for(url), self.server, migrate=False)
        self.task = asyncio.create_task(self.serving.run(self.stops))

    async def serves(self) -> None:
        waits = {self.task, asyncio.create_task(self.serving.serves.wait())}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        assert not self.task.done(), self.task.exception()


@asynccontextmanager
async def running(url: str, **settings: Any) -> AsyncIterator[Running]:
    """It ends with the block."""
    run = Running(url, ServerSettings(bind=FREE, **settings))
    try:
        yield run
    finally:
        run.stops.asked.set()
        run.stops.at_once.set()
        await asyncio.gather(run.task, return_exceptions=True)


def test_a_second_signal_stops_at_once(url: str) -> None:
    async def story() -> None:
        async with running(url, drain_delay_ms=600_000) as run:
            await run.serves()
            run.stops.heard(signal.SIGTERM)
            async with httpx.AsyncClient(base_url=run.server.address, timeout=60) as client:
                while (await client.get("/readyz")).status_code == 200:
                    pass
            assert not run.task.done()
            run.stops.heard(signal.SIGTERM)
            await run.task

    asyncio.run(story())


def test_ctrl_c_spares_the_delay(url: str) -> None:
    async def story() -> None:
        async with running(url, drain_delay_ms=600_000) as run:
            await run.serves()
            run.stops.heard(signal.SIGINT)
            await run.task

    asyncio.run(story())


def test_a_store_that_is_down_is_waited_for_and_meanwhile_the_server_is_alive_and_not_ready(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        is_tried, comes_back = asyncio.Event(), asyncio.Event()
        async with running(url) as run:
            start = run.serving.engine.start

            async def down_at_first(*, migrate: bool = True) -> None:
                if not comes_back.is_set():
                    is_tried.set()
                    raise OSError("no route to the store")
                await start(migrate=migrate)

            monkeypatch.setattr(run.serving.engine, "start", down_at_first)
            await is_tried.wait()
            async with httpx.AsyncClient(base_url=run.server.address, timeout=60) as client:
                assert (await client.get("/livez")).status_code == 200
                waiting = await client.get("/readyz")
                assert (waiting.status_code, waiting.json()["checks"]["store"]) == (503, False)
                refused = await client.get("/v1")
                assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
                comes_back.set()
                await run.serves()
                assert (await client.get("/readyz")).status_code == 200

    asyncio.run(story())


# --- refusals -------------------------------------------------------------------------------------


def test_a_missing_database_is_refused_with_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = refused(capsys, "--url", f"sqlite:///{tmp_path}/none.db")
    assert code == Exit.NOT_FOUND
    assert "ff db migrate" in told
    assert not (tmp_path / "none.db").exists()


def test_a_store_of_the_last_release_is_served_after_migration_without_it_the_command_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript((fixture.FOLDER / "v18-sqlite.sql").read_text("utf-8"))
    url = f"sqlite:///{path}"
    code, told = refused(capsys, "--url", url)
    assert code == Exit.REFUSED
    assert f"run ff db migrate --url {url}" in told
    assert main(["db", "migrate", "--url", url]) == Exit.OK
    with serving(url, folder=tmp_path) as server:
        assert get(server.told["address"], "/readyz").status_code == 200


def test_a_store_that_does_not_come_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        url = f"postgresql://ada:s3cret@127.0.0.1:{taken.getsockname()[1]}/x"
        code, told = refused(capsys, "--url", url, "--store-wait", "0s")
    assert code == Exit.UNAVAILABLE
    assert "is the store running" in told
    assert "s3cret" not in told


def test_without_keys_bind_0_0_0_0_does_not_start_the_text_names_the_command_to_run(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = refused(capsys, "--url", url, "--bind", "0.0.0.0:0")
    assert code == Exit.USAGE
    assert "ff token new" in told


def test_with_a_token_a_server_may_be_reached_by_others() -> None:
    async def story() -> None:
        async with open_engine("memory://", config=EngineConfig(loops=False)) as engine:
            server = Server(engine, ServerSettings(bind="0.0.0.0:0", behind_proxy=True))
            server.bind()
            try:
                with pytest.raises(InvalidInput, match="ff token new"):
                    await server.open()
                token = await engine.create_access_token(name="ci", scopes=("read",))
                await server.open()
                await engine.revoke_access_token(token_id=token.id)
                await server.open()
            finally:
                await server.stop()

    asyncio.run(story())


def test_without_a_token_no_proxy_brings_others_to_a_server_of_this_machine() -> None:
    async def story(settings: ServerSettings) -> None:
        async with open_engine("memory://", config=EngineConfig(loops=False)) as engine:
            server = Server(engine, settings)
            server.bind()
            try:
                with pytest.raises(InvalidInput, match="no token exists"):
                    await server.open()
                await engine.create_access_token(name="ci", scopes=("read",))
                await server.open()
            finally:
                await server.stop()

    here = "127.0.0.1:0"
    asyncio.run(story(ServerSettings(bind=here, behind_proxy=True)))
    asyncio.run(story(ServerSettings(bind=here, trusted_proxies=("127.0.0.1",))))


@pytest.mark.parametrize("is_behind_proxy", [False, True])
def test_a_token_is_not_spoken_in_clear_text_beyond_this_machine(is_behind_proxy: bool) -> None:
    async def story() -> None:
        async with open_engine("memory://", config=EngineConfig(loops=False)) as engine:
            server = Server(engine, ServerSettings(bind="0.0.0.0:0", behind_proxy=is_behind_proxy))
            server.bind()
            try:
                await engine.create_access_token(name="ci", scopes=("read",))
                await server.open()
            finally:
                await server.stop()

    if is_behind_proxy:
        asyncio.run(story())
        return
    with pytest.raises(InvalidInput, match="behind_proxy"):
        asyncio.run(story())


def test_a_taken_port_is_refused_in_one_line(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, told = refused(capsys, "--url", url, "--bind", address)
    assert code == Exit.USAGE
    assert f"another program listens on {address}" in told


def test_a_socket_of_the_file_system_is_taken_over_only_from_a_server_that_is_gone(
    tmp_path: Path,
) -> None:
    bind = f"unix:{tmp_path / 'ff.sock'}"
    with bound_socket(bind) as first:
        first.listen()
        with pytest.raises(InvalidInput, match="another program listens"):
            bound_socket(bind)
    with bound_socket(bind) as second:
        second.listen()


def test_a_server_answers_on_a_socket_of_the_file_system(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        path = str(tmp_path / "ff.sock")
        engine = open_engine(url, config=EngineConfig(loops=False))
        async with engine, Server(engine, ServerSettings(bind=f"unix:{path}")) as server:
            assert server.address == f"unix:{path}"
            transport = httpx.AsyncHTTPTransport(uds=path)
            async with httpx.AsyncClient(transport=transport) as client:
                answer = await client.get("http://localhost/readyz", timeout=60)
            assert answer.status_code == 200

    asyncio.run(story())
    assert not (tmp_path / "ff.sock").exists()


@pytest.mark.parametrize("word", ["serve", "db", "bench"])
def test_the_url_of_a_server_is_refused_where_a_store_is_needed(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {"db": ["check"], "bench": ["cycle"]}.get(word, [])
    assert main([word, *more, "--url", "http://ada:s3cret@127.0.0.1:9"]) == Exit.USAGE
    told = capsys.readouterr().err
    assert "needs a store" in told
    assert "s3cret" not in told


def test_print_config_shows_values_and_their_sources_with_secrets_masked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLOWFABRIC_URL", "postgresql://ada:s3cret@db/x")
    monkeypatch.setenv("FLOWFABRIC_SERVER_WAIT_MAX", "5s")
    assert main(["serve", "--print-config", "--json", "--waits-max", "7"]) == Exit.OK
    shown = json.loads(capsys.readouterr().out)
    assert shown["url"]["source"] == "FLOWFABRIC_URL"
    assert "s3cret" not in shown["url"]["value"]
    assert shown["wait_max"] == {"value": "5s", "source": "FLOWFABRIC_SERVER_WAIT_MAX"}
    assert shown["waits_max"] == {"value": "7", "source": "flag"}


# --- TLS ------------------------------------------------------------------------------------------


def certificate(folder: Path, name: str) -> None:
    kind = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    about = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([*kind.split(), *about, *files], check=True, capture_output=True)


@pytest.fixture
def certified(tmp_path: Path) -> Path:
    try:
        certificate(tmp_path, "first")
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    return tmp_path


def name_of(address: str) -> str:
    """The name in the certificate that a server shows."""
    host, _, port = address.removeprefix("https://").partition(":")
    text = ssl.get_server_certificate((host, int(port)))
    command = ["openssl", "x509", "-noout", "-subject"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return done.stdout.rpartition("CN")[2].strip(" =\n")


def test_a_certificate_is_read_again_on_sighup_and_a_damaged_one_leaves_the_old(
    url: str, certified: Path
) -> None:
    async def story() -> None:
        files = {"tls_cert": str(certified / "cert.pem"), "tls_key": str(certified / "key.pem")}
        async with running(url, **files) as run:
            await run.serves()
            assert await asyncio.to_thread(name_of, run.server.address) == "first"
            certificate(certified, "second")
            run.serving.hung_up()
            assert await asyncio.to_thread(name_of, run.server.address) == "second"
            (certified / "cert.pem").write_text("damaged", encoding="utf-8")
            run.serving.hung_up()
            assert await asyncio.to_thread(name_of, run.server.address) == "second"

    asyncio.run(story())


def test_a_certificate_that_cannot_be_used_is_refused(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cert.pem").write_text("nothing", encoding="utf-8")
    code, told = refused(capsys, "--url", url, "--tls-cert", "cert.pem", "--tls-key", "key.pem")
    assert code == Exit.USAGE
    assert "tls_cert: cert.pem with key.pem cannot be used" in told


@pytest.mark.parametrize("words", [("serve",), ("dev", "app:ff")])
def test_a_missing_package_is_named_before_anything_is_begun(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code = main([*words, "--url", f"sqlite:///{tmp_path}/none.db", "--bind", FREE])
    assert code == Exit.FAILED
    assert capsys.readouterr().err == (
        "ff: a server needs uvicorn and jinja2, not installed here — "
        "pip install 'flowfabric[server]'\n"
    )
    assert not list(tmp_path.iterdir())


def test_a_file_that_may_not_be_opened_is_refused_with_the_reason_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "text.db"
    path.write_text("this is no database, and long enough to be none\n" * 10, "utf-8")
    code, told = refused(capsys, "--url", f"sqlite:///{path}")
    assert code == Exit.REFUSED
    assert told.count("restore a backup") == 1
