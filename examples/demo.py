"""See durability in under a minute: retries, progress, a worker killed in the middle of steps, and
the same work by HTTP.

Everything happens on a fresh SQLite file in a temporary folder, which is removed at the end unless
`--keep` is given. The workers are processes of their own, started as anyone would start them:
`ff worker demo_jobs:ff`. The tasks are in demo_jobs.py. The server of the last act stays until
Ctrl-C where a person is at the terminal; elsewhere it ends with the story.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import demo_jobs as jobs

from flowfabric import Fabric, FlowFabricError
from flowfabric.cli import main as run_ff
from flowfabric.config import EngineConfig

HERE = Path(__file__).resolve().parent
LEASE = "2s"  # how soon a dead worker is noticed; the default is 30 seconds
PAGES = 10


class Stage:
    """Tells the story and keeps count of what did not go as told."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.failures: list[str] = []
        self.is_watched = sys.stdout.isatty()

    def chapter(self, title: str) -> None:
        print(f"\n── {title} {'─' * max(0, 70 - len(title))}")

    def say(self, text: str) -> None:
        print(f"   {text}", flush=True)

    def expect(self, what: str, holds: bool) -> None:
        print(f"   {'✓' if holds else '✗'} {what}", flush=True)
        if not holds:
            self.failures.append(what)

    def ff(self, *words: str, at: str | None = None) -> None:
        """Show a command of the `ff` program and run it; `at`: by the address of a server."""
        where = f" --url {at}" if at else ""
        print(f"\n   $ ff {' '.join(words)}{where}", flush=True)
        code = run_ff([*words, "--url", at or self.url])
        print(flush=True)
        if code == 130:
            raise KeyboardInterrupt
        if code != 0:
            self.failures.append(f"ff {words[0]} ended with exit code {code}")

    def history(self, execution_id: str) -> list[str]:
        """How each attempt ended, from the JSON that every command can print."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            run_ff(["show", execution_id, "--json", "--url", self.url])
        return [attempt["outcome"] for attempt in json.loads(printed.getvalue())["attempts"]]

    def bar(self, percent: int, text: str) -> None:
        """A progress bar: redrawn on a terminal, a line for every quarter elsewhere."""
        line = f"   [{'#' * (percent // 4):<25}] {percent:3d}%  {text:<20}"
        if self.is_watched:
            print(f"\r{line}", end="\n" if percent == 100 else "", flush=True)
        elif percent % 25 == 0:
            print(line.rstrip(), flush=True)


class FfProcess:
    """A command of `ff` as an operating-system process, so that it can really be killed."""

    def __init__(self, *words: str, log: Path) -> None:
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flowfabric.cli", *words],
                cwd=HERE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                start_new_session=True,  # Ctrl-C is the demo's: it ends its processes itself
            )

    def kill(self) -> None:
        """kill -9: no goodbye, no clean-up."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def stop(self) -> None:
        """Ctrl-C: it finishes what it has and leaves."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.kill()


def start_worker(url: str, log: Path) -> FfProcess:
    options = ["--url", url, "--lease-ttl", LEASE, "--concurrency", "4"]
    return FfProcess("worker", "demo_jobs:ff", *options, log=log)


class ServerProcess(FfProcess):
    """`ff serve` on a free port of this machine."""

    def __init__(self, url: str, log: Path) -> None:
        super().__init__("serve", "--json", "--bind", "127.0.0.1:0", "--url", url, log=log)

    def address(self) -> str:
        """Where it listens; it says so when it serves."""
        told = ""
        for line in self.process.stdout or ():
            told += line
            if line.startswith("}"):
                return str(json.loads(told)["address"])
        raise FlowFabricError("the server did not start")


def everyday_work(stage: Stage, ff: Any) -> None:
    stage.chapter("1. Everyday work: a job set, a failure that is retried, live progress")
    greetings = ff.submit_many(jobs.greet, ["Ada", "Grace", "Katherine"])
    rate = ff.submit(jobs.exchange_rate, "EUR")
    film = ff.submit(jobs.render, 20)
    stage.say("submitted: three greetings, an exchange rate from an unreliable service, a film")

    said = [run.result(timeout="20s") for run in greetings]
    stage.expect(f"the greetings came back: {' / '.join(said)}", len(said) == 3)

    watch(stage, film)
    stage.expect(f"the film is done: {film.result(timeout='20s')}", True)

    answer = rate.result(timeout="20s")
    stage.say("the exchange failed twice; the task's policy (retries=3) tried again by itself:")
    stage.ff("show", rate.id)
    stage.expect(
        f"third attempt, result {answer}", answer == 1.08 and rate.info().total_attempt_count == 3
    )


def watch(stage: Stage, run: Any) -> None:
    """Follow the progress that the task reports."""
    shown = -1
    give_up = time.monotonic() + 20
    while shown < 100 and time.monotonic() < give_up:
        info = run.info()
        percent = 100 if info.public_state.value == "completed" else info.progress_pct or 0
        for step in range(shown + 1, percent + 1):
            if step % 5 == 0:
                stage.bar(step, info.progress_message or "")
        shown = max(shown, percent)
        time.sleep(0.05)


def killed_in_the_middle(stage: Stage, ff: Any, worker: FfProcess, folder: Path) -> Any:
    stage.chapter(f"2. kill -9 in the middle of {PAGES} steps")
    run = ff.submit(jobs.report, PAGES, str(folder / "ledger.txt"))
    wait_until(lambda: (run.info().progress_pct or 0) >= 50)
    stage.say(f"worker {worker.process.pid} is at: {run.info().progress_message}")
    worker.kill()
    stage.say(f"kill -9 {worker.process.pid}: it could not say goodbye, and no worker is left")
    stage.expect("the execution is still on record as running", run.state().value == "active")

    lease = run.info().current_lease
    wait_until(lambda: lease is None or time.time() * 1000 > lease.expires_at)
    stage.say(f"its lease of {LEASE} has run out. Why is it not running?")
    stage.ff("why", run.id)
    return run


def recovered(stage: Stage, run: Any, worker: FfProcess, folder: Path) -> None:
    stage.chapter("3. Another worker appears, and nobody has to do anything")
    began = time.monotonic()
    result = run.result(timeout="30s")
    stage.say(f"worker {worker.process.pid} took over: {time.monotonic() - began:.1f} s to the end")
    stage.expect(f"result: {result}", result == f"a report of {PAGES} pages")
    stage.ff("show", run.id)

    info = run.info()
    lines = (folder / "ledger.txt").read_text(encoding="utf-8").splitlines()
    stage.say("the ledger that the steps themselves kept:")
    for line in lines:
        stage.say(f"   {line}")
    # One, unless this machine stands still for longer than a lease: then it is recovered again.
    stage.expect("its recovery is on record", info.reclaim_count >= 1)
    stage.expect(
        "the first attempt was interrupted, the last one succeeded",
        stage.history(run.id) == ["interrupted_reclaimed"] * info.reclaim_count + ["ended_success"],
    )
    again = len(lines) - PAGES
    stage.expect(
        f"only the step it was killed in ran again: {PAGES} pages, {len(lines)} lines",
        again <= info.reclaim_count,
    )
    stage.ff("journal", run.id)


def wait_until(is_so: Any, timeout: float = 20.0) -> None:
    give_up = time.monotonic() + timeout
    while not is_so() and time.monotonic() < give_up:
        time.sleep(0.05)


def over_http(stage: Stage, server: ServerProcess) -> None:
    stage.chapter("4. The same by HTTP")
    at = server.address()
    stage.say(f"server:   process {server.process.pid}, {at}")
    asked = {"execution_kind": "greet", "input": {"name": "Joan"}}
    path = "/v1/executions?wait=20s"
    print(f"\n   $ curl '{at}{path}' --json '{json.dumps(asked)}'", flush=True)
    answer = asked_of(f"{at}{path}", asked)
    ended = answer["outcome"]["ended"]
    told = {name: ended[name] for name in ("execution_id", "execution_kind", "public_state")}
    result = answer["outcome"]["result"]
    stage.say(json.dumps({**told, "…": "…", "result": result}, ensure_ascii=False))
    print()
    stage.expect(f"the same worker ran it: {result}", result == "hello, Joan")
    stage.ff("ps", at=at)
    for path, what in (
        ("/ui", "the dashboard, for a browser"),
        ("/docs", "the HTTP API, as a page"),
        ("/openapi.json", "the same for programs"),
        ("/readyz", "is it ready"),
    ):
        stage.expect(f"{at}{path}  {what}", asked_of(at + path) is not None)


def asked_of(url: str, body: Any = None) -> Any:
    """The answer of a server: a document, or a page."""
    give_up = time.monotonic() + 30
    sent = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, sent, {"Content-Type": "application/json"})
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
                return json.loads(text) if "json" in answer.headers["content-type"] else text
        except urllib.error.HTTPError as error:
            if error.code != 503 or time.monotonic() > give_up:
                raise
            time.sleep(1)  # a machine that has too much to do asks to come back


def look_around(stage: Stage) -> None:
    """A person may ask the server and look at the work, until Ctrl-C."""
    if not (sys.stdin.isatty() and stage.is_watched):
        return
    print("\nThe server and a worker stay for you to look around. Ctrl-C ends them.", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(3600)


def tell(stage: Stage, folder: Path, started: list[FfProcess]) -> None:
    """The whole story; what it `started` is ended by its caller."""
    first = start_worker(stage.url, folder / "worker-1.log")
    started.append(first)
    stage.say(f"worker:   process {first.process.pid}, leases of {LEASE}")
    # This process only submits and looks; recovery is left to the workers.
    with Fabric(stage.url, config=EngineConfig(loops=False)).sync as ff:
        everyday_work(stage, ff)
        run = killed_in_the_middle(stage, ff, first, folder)
        second = start_worker(stage.url, folder / "worker-2.log")
        started.append(second)
        recovered(stage, run, second, folder)
    server = ServerProcess(stage.url, folder / "server.log")
    started.append(server)
    over_http(stage, server)


def look_further(stage: Stage, folder: Path) -> None:
    stage.say("look further:")
    for command in ("ps", "lanes", "doctor", "show latest"):
        stage.say(f"  ff {command} --url {stage.url}")
    stage.say(f"and clean up with: rm -r {folder}")


def main() -> int:
    options = argparse.ArgumentParser(description="See durability in under a minute.")
    options.add_argument("--keep", action="store_true", help="leave the database to look at")
    keep = options.parse_args().keep
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended either way, it cleans up
    folder = Path(tempfile.mkdtemp(prefix="flowfabric-demo-"))
    os.environ["XDG_STATE_HOME"] = str(folder)  # what ff remembers of this is nobody's business
    try:
        return play(folder, keep=keep)
    except KeyboardInterrupt:
        print("\ninterrupted; all is stopped and nothing is left behind", file=sys.stderr)
        keep = False
        return 130
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def play(folder: Path, *, keep: bool) -> int:
    began = time.monotonic()
    stage = Stage(f"sqlite:///{folder / 'demo.db'}")
    print("FlowFabric: work that survives the death of its workers.")
    stage.say(f"database: {stage.url}")
    started: list[FfProcess] = []
    try:
        try:
            tell(stage, folder, started)
        except (FlowFabricError, OSError) as error:
            stage.failures.append(str(error))
        if keep:
            look_further(stage, folder)
        if not stage.failures:
            print(f"\nEverything went as told, in {time.monotonic() - began:.0f} s.")
            look_around(stage)
            for each in started:
                each.stop()
            return 0
    finally:
        for each in started:
            each.kill()
    for failure in stage.failures:
        print(f"\n✗ not as told: {failure}", file=sys.stderr)
    for log in sorted(folder.glob("*.log")):
        print(f"\n{log}:\n{log.read_text(encoding='utf-8')}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
