"""Workers in other languages: the page about them is true, and a small one passes every case."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowfabric.server.conformance import conduct
from tests.support.http import NOTHING, Desk
from tests.support.lab import Lab, scenario

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "worker-protocol.md"
EXAMPLE = ROOT / "examples" / "worker_without_sdk.py"
_EXCHANGE = re.compile(r"(?ms)^```http\n(\w+) (\S+)\n(.*?)\n?\n(\d+)\n(.*?)\n```$")
_INSTANT = re.compile(r"(_at|_ms|_time)$")


class Reader:
    """What the page shortens, by what it stood for."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def sent(self, text: str) -> bytes:
        for short, whole in self.known.items():
            text = text.replace(json.dumps(short, ensure_ascii=False), json.dumps(whole))
        return text.encode()

    def fits(self, shown: Any, real: Any, at: str = "") -> None:
        if isinstance(shown, dict):
            assert isinstance(real, dict), at
            assert shown.keys() <= real.keys(), at  # fields may join an answer later
            for word, each in shown.items():
                self.fits(each, real[word], f"{at}/{word}")
        elif isinstance(shown, list):
            assert len(shown) == len(real), at
            for number, (one, other) in enumerate(zip(shown, real, strict=True)):
                self.fits(one, other, f"{at}/{number}")
        elif isinstance(shown, str) and shown.endswith("…"):
            if at.endswith(("_id", "/handle")):
                assert self.known.setdefault(shown, real) == real, at
        elif _INSTANT.search(at) and "/limits/" not in at and shown is not None:
            assert isinstance(real, int), at
        else:
            assert shown == real, at


@scenario
async def test_the_transcript_of_the_page_is_what_a_server_answers(quick: Lab) -> None:
    desk, reader = Desk(quick.engine), Reader()
    await desk.created("send", lane_id="mail", input={"to": "ada@example.com"})
    exchanges = _EXCHANGE.findall(PAGE.read_text("utf-8"))
    assert len(exchanges) == 7
    for method, path, body, status, answer in exchanges:
        given = reader.sent(body) if body else NOTHING
        told = await desk.ask(method, path, given)
        assert told.status == int(status), (path, told)
        reader.fits(json.loads(answer), told.json, path)


def test_every_path_of_the_page_is_one_of_the_server() -> None:
    from flowfabric.server.routes.all import ROUTES

    named = set(re.findall(r"`?(?:POST|DELETE|GET) (/v1/[\w/-]+)", PAGE.read_text("utf-8")))
    there = {each.path.replace("{worker_instance_id}", "mailer-7f3a") for each in ROUTES}
    assert named <= there


def test_the_60_line_worker_passes_ff_conformance_worker() -> None:
    """Scenario 43: the 60-line worker passes `ff conformance worker`."""
    words = ["conformance", "worker", "--json", "--at", "http://127.0.0.1:0", "--patience", "30s"]
    done = subprocess.run(
        [sys.executable, "-m", "flowfabric.cli", *words, "--", sys.executable, str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    told = json.loads(done.stdout)
    assert [each for each in told["cases"] if each["problem"] or each["skipped"]] == [], done.stderr
    assert (done.returncode, told["ok"]) == (0, len(conduct.chosen()))
    assert told["ok"] >= 40


WRONG = {  # what is changed in the small worker, and the case that notices
    '"limit": free': ('"limit": 9', "never asks for more"),
    '"claim_id": str(uuid.uuid4())': ('"claim_id": "same"', "id of its own"),
}


@pytest.mark.parametrize("right", WRONG)
def test_a_worker_that_does_it_wrong_is_found(right: str, tmp_path: Path) -> None:
    wrong, name = WRONG[right]
    source = EXAMPLE.read_text("utf-8")
    assert source.count(right) == 1
    (tmp_path / "worker.py").write_text(source.replace(right, wrong))
    words = ["conformance", "worker", "--json", "--at", "http://127.0.0.1:0", "--patience", "10s"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "flowfabric.cli", *words, "--only", "Of many executions"),
            *("--only", name, "--", sys.executable, str(tmp_path / "worker.py")),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    failed = [each["case"] for each in json.loads(done.stdout)["cases"] if each["problem"]]
    assert done.returncode == 1
    assert any(name in each for each in failed), done.stdout
