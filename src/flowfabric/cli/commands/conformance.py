"""`ff conformance worker`: does a worker in any language keep the protocol?"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from argparse import REMAINDER
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit, usage
from flowfabric.cli.grammar import FfParser, add_action, add_actions
from flowfabric.config import TOKEN_VARIABLE, URL_VARIABLE, EngineConfig, environment_with
from flowfabric.server.settings import ServerSettings

if TYPE_CHECKING:
    from flowfabric.server.conformance.conduct import Verdict

_AT: Final = "http://127.0.0.1:9191"
_PATIENCE_MS: Final = 15_000
_END_S: Final = 10.0


def add_arguments(parser: FfParser) -> None:
    """The one action."""
    actions = add_actions(parser)
    worker = add_action(
        actions, "worker", tested, "play the cases of the worker protocol with a worker"
    )
    worker.add_argument(
        "--at", default=_AT, metavar="URL", help=f"where the worker finds a server (default: {_AT})"
    )
    worker.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="cases with this in them"
    )
    worker.add_argument(
        "--patience",
        type=values.duration_ms,
        default=_PATIENCE_MS,
        metavar="TIME",
        help="how long the worker may take for anything (default: 15s)",
    )
    worker.add_argument(
        "program", nargs=REMAINDER, metavar="-- COMMAND", help="starts the worker, and again"
    )
    parser.set_defaults(handler=_without_action)


def _without_action(call: Call) -> Exit:
    raise usage("say what is tested: ff conformance worker -- COMMAND")


class Program:
    """The worker as a child of this process, with the address and the token in its environment."""

    def __init__(self, words: list[str], address: str, token: str) -> None:
        self._words = words
        self._environment = environment_with(**{URL_VARIABLE: address, TOKEN_VARIABLE: token})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; what it writes goes to standard error."""
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the command that was given
                self._words, env=self._environment, stdout=sys.stderr
            )
        except OSError as error:
            raise usage(f"cannot start {self._words[0]} ({error.strerror})") from None

    def terminate(self) -> None:
        """SIGTERM."""
        if self._process is not None:
            self._process.terminate()

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return None if self._process is None else self._process.poll()

    def end(self) -> None:
        """It is not needed any more."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self._process.kill()
        self._process.wait()


async def tested(call: Call) -> Exit:
    """Play the cases; the exit code tells whether all of them ended well."""
    from flowfabric.assemble import open_engine
    from flowfabric.server.conformance import conduct

    arguments = call.arguments
    words = [each for each in arguments.program if each != "--"]
    cases = conduct.chosen(tuple(arguments.only))
    if not cases:
        raise usage(f"no case has {' or '.join(arguments.only)!s:.200} in it")
    config = EngineConfig(lease_ttl_ms=conduct.LEASE_MS, retention_ms=3_600_000)
    settings = ServerSettings(bind=_bind(arguments.at), drain_delay_ms=0)
    found: list[Verdict] = []
    async with open_engine("memory://", config=config) as engine:
        token = await conduct.token_for(engine)
        async with conduct.WatchedServer(engine, settings) as server:
            program = Program(words, server.address, token) if words else None
            _begun(call, program, server.address, token)
            try:
                async for verdict in conduct.conducted(
                    server,
                    token,
                    cases,
                    process=program,
                    patience_s=arguments.patience / 1_000,
                ):
                    found.append(verdict)
                    _tell(call, verdict)
            finally:
                if program is not None:
                    await asyncio.to_thread(program.end)
    return _told(call, found)


def _bind(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or parts.port is None:
        raise usage(f"--at: expected http://host:port, got {url!s:.200}")
    return f"{parts.hostname}:{parts.port}"


def _begun(call: Call, program: Program | None, address: str, token: str) -> None:
    if program is not None:
        program.start()
        return
    call.terminal.complain(
        f"start the worker with {URL_VARIABLE}={address} {TOKEN_VARIABLE}={token}"
    )


def _tell(call: Call, verdict: Verdict) -> None:
    if call.terminal.as_json:
        return
    word = "failed" if verdict.problem else "skipped" if verdict.skipped else "ok"
    call.terminal.line(f"{word:<8}{verdict.case.group}: {verdict.case.name}")
    if (why := verdict.problem or verdict.skipped) is not None:
        call.terminal.line(f"        {why}")
    call.terminal.out.flush()


def _told(call: Call, found: list[Verdict]) -> Exit:
    counts = Counter(
        "failed" if each.problem else "skipped" if each.skipped else "ok" for each in found
    )
    if call.terminal.as_json:
        rows: list[dict[str, Any]] = [
            {
                "group": each.case.group,
                "case": each.case.name,
                "problem": each.problem,
                "skipped": each.skipped,
            }
            for each in found
        ]
        sums = {word: counts[word] for word in ("ok", "failed", "skipped")}
        call.terminal.document({"cases": rows, **sums})
    else:
        call.terminal.line(
            f"{len(found)} cases: {counts['ok']} ok, {counts['failed']} failed, "
            f"{counts['skipped']} skipped"
        )
    return Exit.FAILED if counts["failed"] else Exit.OK
