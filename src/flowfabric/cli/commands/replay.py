"""`ff replay`: would the present code do again what runs have recorded?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from flowfabric import limits
from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.commands.worker import load
from flowfabric.cli.exits import Exit, not_found, usage
from flowfabric.cli.grammar import FfParser
from flowfabric.cli.show.terminal import clean
from flowfabric.sdk.fabric import Fabric, answered_by
from flowfabric.testing import replay as replaying
from flowfabric.testing.errors import ReplayMismatch
from flowfabric.testing.histories import files_in, read_history
from flowfabric.testing.history import DamagedHistory, History, history_of
from flowfabric.testing.loop import run
from flowfabric.testing.tape import Nowhere

_SAMPLE: Final = 200
Found = tuple[str, History | DamagedHistory]  # with its name


def add_arguments(parser: FfParser) -> None:
    """Which histories, and where the code is."""
    parser.add_argument(
        "words", nargs="+", metavar="FILE… MODULE:APP", help="files or folders; the app comes last"
    )
    parser.add_argument("--live", metavar="KIND", help="runs of this task in the store, not files")
    parser.add_argument(
        "--sample",
        type=values.whole_number,
        default=_SAMPLE,
        metavar="N",
        help=f"how many of them, the newest first (default {_SAMPLE})",
    )
    parser.set_defaults(handler=replay)


def replay(call: Call) -> Exit:
    """Exit 0 if all fit, 1 if one does not, 2 if one cannot be read."""
    *files, app = call.arguments.words
    if call.arguments.live is None and not files:
        raise usage("no history", advice="write ff replay FILE… MODULE:APP, or --live KIND")
    if call.arguments.live is not None and files:
        raise usage("--live reads the store, not files", advice="leave out one of the two")
    fabric = load(app)
    if call.arguments.live is not None:
        if call.arguments.live not in fabric.tasks:
            known = ", ".join(sorted(fabric.tasks)) or "none"
            raise usage(
                f"--live: there is no task {call.arguments.live!r} in the app",
                advice=f"name one of its tasks: {known}",
            )
        found: list[Found] = [(each.execution_id, each) for each in asyncio.run(_live(call))]
        if not found:
            call.terminal.note(f"no run of {call.arguments.live} is in the store: nothing to try")
    else:
        found = list(_read(files))
    return run(_checked(call, fabric, found))


def _read(words: list[str]) -> Iterator[Found]:
    for word in words:
        path = Path(word)
        if not path.exists():
            raise not_found(f"no file {word}", advice="ff journal ID --export FILE writes one")
        for file in files_in(path) if path.is_dir() else [path]:
            try:
                yield str(file), read_history(file)
            except DamagedHistory as error:
                yield str(file), error


async def _live(call: Call) -> list[History]:
    """The newest runs of a kind, as far as they have come."""
    found: list[History] = []
    async with call.engine() as engine:
        cursor: str | None = None
        while len(found) < call.arguments.sample:
            page = await engine.list_executions(
                execution_kind=call.arguments.live,
                cursor=cursor,
                limit=min(limits.PAGE_MAX, call.arguments.sample - len(found)),
            )
            for each in page.items:
                found.append(await history_of(engine, each.execution_id))  # noqa: PERF401 - awaits
            cursor = page.next_cursor
            if cursor is None:
                break
    return found


async def _checked(call: Call, fabric: Fabric, found: list[Found]) -> Exit:
    with answered_by(fabric, Nowhere()):
        return await _compared(call, fabric, found)


async def _compared(call: Call, fabric: Fabric, found: list[Found]) -> Exit:
    code = Exit.OK
    for name, history in found:
        said, problem = Exit.OK, None
        if isinstance(history, DamagedHistory):
            said, problem = Exit.USAGE, history.detail
        elif (task := fabric.tasks.get(history.kind)) is None:
            known = ", ".join(sorted(fabric.tasks)) or "none"
            problem = f"{name}:1: there is no task {history.kind!r} in the app; there are: {known}"
            said = Exit.USAGE
        else:
            try:
                await replaying.check(task, history)
            except ReplayMismatch as error:
                said, problem = Exit.FAILED, str(error)
        _tell(call, name, problem)
        code = max(code, said)
    return code


def _tell(call: Call, name: str, problem: str | None) -> None:
    if call.terminal.as_json:
        call.terminal.record({"history": name, "fits": problem is None, "problem": problem})
        return
    call.terminal.line(clean(f"{name}: {'fits' if problem is None else problem}"))
