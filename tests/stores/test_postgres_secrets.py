"""A canary in every place where a secret is given; it must be seen nowhere."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from flowfabric import Fabric, Worker
from flowfabric.api.waits import Fresh, SuspendRequest
from flowfabric.assemble import open_engine, open_store
from flowfabric.cli import main
from flowfabric.config import URL_VARIABLE, EngineConfig
from flowfabric.errors import FlowFabricError, InvalidInput, StoreError
from flowfabric.model.suspension import Single
from tests.support.databases import PostgresServer
from tests.support.inner import inner

CANARY = "c4n4ry"
HEX_CANARY = "c0ffee" * 12
BAD_PASSWORDS = [
    f"a/{CANARY}",
    f"12/{CANARY}",
    f"a#{CANARY}",
    f"12#{CANARY}",
    f"a?{CANARY}",
    f"12?{CANARY}",
    f"a[{CANARY}",
    f"a]{CANARY}/",
    f"{CANARY}/{CANARY}@{CANARY}",
    f"a/{CANARY}?b=c",
    f"a@{CANARY}",
]
GOOD_PASSWORDS = [CANARY, f"a:{CANARY}", quote(f"a/#?[]@:%{CANARY}", safe="")]


@pytest.fixture(autouse=True)
def _loud(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Every logger says all it can say, and nothing of it is the canary."""
    caplog.set_level(logging.DEBUG)
    yield
    for record in caplog.get_records("call"):
        shown = logging.Formatter().format(record)
        assert CANARY not in shown
        assert HEX_CANARY not in shown


def assert_unseen(*shown: object) -> None:
    for each in shown:
        text = (
            "".join(traceback.format_exception(each))
            if isinstance(each, BaseException)
            else f"{each} {each!r}"
        )
        assert CANARY not in text, text
        assert HEX_CANARY not in text, text


def url_with(url: str, password: str) -> str:
    return re.sub(r"//(\w+):?@", lambda found: f"//{found[1]}:{password}@", url)


# --- the password of a URL ------------------------------------------------------------------------


@pytest.mark.parametrize("password", BAD_PASSWORDS)
@pytest.mark.parametrize(
    "form", ["postgresql://ada:{}@db.example/app", "postgres://ada:{}@h:1,i:2"]
)
def test_an_unreadable_url_is_refused_without_repeating_it(form: str, password: str) -> None:
    with pytest.raises(InvalidInput, match="percent-encoded") as refused:
        open_store(form.format(password))
    assert refused.value.fields["field"] == "url"
    assert_unseen(refused.value, refused.value.as_dict())


@pytest.mark.parametrize("url", [CANARY, f"{CANARY}:pw@host/db", f"//ada:{CANARY}@h/db", "", 5])
def test_text_that_is_not_a_url_is_not_repeated_either(url: Any) -> None:
    with pytest.raises(InvalidInput, match="expected memory") as refused:
        open_store(url)
    assert_unseen(refused.value)


@pytest.mark.parametrize("password", GOOD_PASSWORDS)
def test_a_password_is_never_shown_by_the_sdk(postgres_url: str, password: str) -> None:
    async def story() -> None:
        ff = Fabric(url_with(postgres_url, password))

        @ff.task
        async def work() -> int:
            return 1

        async with ff:
            engine = await ff.start()
            worker = Worker(ff)
            shift = asyncio.create_task(worker.run(handle_signals=False))
            run = await ff.submit(work)
            await run.result()
            worker.stop()
            await shift
            report = await engine.doctor()
            assert_unseen(ff, ff.config, engine, inner(engine).store, worker, report, run, ff.sync)

    asyncio.run(story())


@pytest.mark.parametrize("password", GOOD_PASSWORDS)
def test_a_password_is_never_in_the_error_of_a_server_that_is_not_there(password: str) -> None:
    async def story() -> None:
        for place in ("127.0.0.1:1", "no-such-host.invalid", "127.0.0.1:1,127.0.0.1:2"):
            ff = Fabric(f"postgresql://ada:{password}@{place}/app")
            with pytest.raises(FlowFabricError) as refused:
                await ff.start()
            assert_unseen(refused.value)

    asyncio.run(story())


def test_a_password_is_not_in_the_error_of_a_login_that_is_refused(
    postgres: PostgresServer,
) -> None:
    async def story(url: str) -> None:
        nobody = re.sub(r"//\w+:?@", f"//nobody:{CANARY}@", url)
        with pytest.raises(StoreError) as refused:
            await open_engine(nobody).start()
        assert not refused.value.retryable
        assert_unseen(refused.value)

    with postgres.database() as url:
        asyncio.run(story(url))


COMMANDS = [
    ("db", "migrate"),
    ("db", "status"),
    ("doctor",),
    ("ps",),
    ("lanes",),
    ("ps", "--json"),
    ("doctor", "--json"),
    ("db", "status", "--json"),
    ("ps", "--debug"),
    ("worker", "no_such_module:ff"),
]
PLACES = ["real", "postgresql://ada:{}@127.0.0.1:1/app"]


@pytest.mark.parametrize("way", ["option", "environment"])
@pytest.mark.parametrize("place", PLACES)
def test_a_password_is_never_printed_by_a_command(
    postgres_url: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    place: str,
) -> None:
    for password in [*GOOD_PASSWORDS, *BAD_PASSWORDS]:
        url = url_with(postgres_url, password) if place == "real" else place.format(password)
        for words in COMMANDS:
            if way == "option":
                main([*words, "--url", url])
            else:
                monkeypatch.setenv(URL_VARIABLE, url)
                main([*words])
            assert_unseen(*capfd.readouterr())


def test_a_password_is_not_in_the_start_line_of_a_worker(postgres_url: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "from flowfabric import Fabric\n\nff = Fabric()\n\n\n@ff.task\ndef work() -> None: ...\n"
    )
    for form in ((), ("--json",)):
        process = subprocess.Popen(
            [sys.executable, "-m", "flowfabric.cli", "worker", "app:ff", *form],
            cwd=tmp_path,
            env={**os.environ, URL_VARIABLE: url_with(postgres_url, CANARY)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        said = ""
        while "***" not in said:
            assert process.poll() is None, said
            said += process.stdout.readline()
        process.terminate()
        said += process.stdout.read()
        process.wait(60)
        process.stdout.close()
        assert_unseen(said)


# --- signing secrets, tokens and links ------------------------------------------------------------


def test_a_signing_secret_is_never_shown(
    postgres_url: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async def story() -> None:
        config = EngineConfig(loops=False, waitpoint_secret=HEX_CANARY)
        async with open_engine(postgres_url, config=config) as engine:
            keys = await engine.list_waitpoint_hmac_kids()
            assert_unseen(config, engine, keys, await engine.doctor())
            with pytest.raises(FlowFabricError) as refused:
                await engine.seed_waitpoint_hmac_secret(kid="k", secret_hex=f"{HEX_CANARY}x")
            assert_unseen(refused.value)
        for wrong in (HEX_CANARY[::-1], f"{HEX_CANARY}xyz", HEX_CANARY[:8]):
            other = EngineConfig(loops=False, waitpoint_secret=wrong)
            with pytest.raises(FlowFabricError) as refused:
                await open_engine(postgres_url, config=other).start()
            assert wrong not in "".join(traceback.format_exception(refused.value))
            assert wrong not in repr(other)

    asyncio.run(story())
    file = tmp_path / "secret"
    file.write_text(HEX_CANARY[6:] + "facade")
    for words in (("keys", "rotate", "--secret-file", str(file)), ("keys", "ls"), ("doctor",)):
        main([*words, "--url", postgres_url])
        said = "".join(capfd.readouterr())
        assert_unseen(said)
        assert file.read_text() not in said


def test_a_token_is_shown_only_by_the_call_that_asks_for_it(
    postgres_url: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> tuple[str, str]:
        async with Fabric(postgres_url, config=EngineConfig(loops=False)) as ff:
            engine = await ff.start()
            await engine.create_execution(execution_kind="k")
            (claimed,) = await engine.claim(
                lanes=("default",), worker_id="w", worker_instance_id="i", limit=1
            )
            now = await engine.server_time_ms()
            request = SuspendRequest(
                resume_condition=Single("go"),
                timeout_at=now + 3_600_000,
                reason_code="waiting_for_signal",
                waitpoints=(Fresh("go"),),
            )
            answer: Any = await engine.suspend(claimed.handle, request)
            token = answer.waitpoints[0].token.reveal()
            link = await ff.link(claimed.execution_id, "go")
            secrets = (token.rpartition(":")[2], link)
            wrong = link[:-4] + "AAAA"
            with pytest.raises(FlowFabricError) as refused:
                await ff.signal(wrong, "go")
            shown = [answer, refused.value, await ff.waits(), await engine.doctor()]
            delivered = await ff.signal(link, "go")
            for each in [*shown, delivered]:
                assert all(secret not in f"{each} {each!r}" for secret in secrets)
            assert wrong not in "".join(traceback.format_exception(refused.value))
            return secrets

    secrets = asyncio.run(story())
    for words in (("waits", "ls"), ("ps",), ("doctor",), ("waits", "ls", "--json")):
        main([*words, "--url", postgres_url])
        said = "".join(capfd.readouterr())
        assert all(secret not in said for secret in secrets)
    assert all(secret not in caplog.text for secret in secrets)


# --- what is not installed ------------------------------------------------------------------------


def test_a_missing_driver_is_named_with_its_extra() -> None:
    program = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "from flowfabric import Fabric\n"
        "from flowfabric.cli import main\n"
        "from flowfabric.errors import InvalidInput\n"
        "import asyncio\n"
        "try:\n"
        "    asyncio.run(Fabric('postgresql://ada:c4n4ry@db/app').start())\n"
        "except InvalidInput as error:\n"
        "    print(error)\n"
        "sys.exit(main(['ps', '--url', 'postgresql://ada:c4n4ry@db/app']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert "pip install 'flowfabric[postgres]'" in done.stdout
    assert "flowfabric[postgres]" in done.stderr
    assert "Traceback" not in done.stderr
    assert_unseen(done.stdout, done.stderr)
