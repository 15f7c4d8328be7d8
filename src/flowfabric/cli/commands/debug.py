"""`ff debug`: the handler of an execution in this process, answered from its journal."""

from __future__ import annotations

import asyncio
import pdb
import sys
from types import FrameType, TracebackType
from typing import Any

from flowfabric.cli.call import Call
from flowfabric.cli.commands.worker import load
from flowfabric.cli.exits import Exit, usage
from flowfabric.cli.grammar import FfParser, add_id
from flowfabric.cli.references import named
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import clean
from flowfabric.sdk.fabric import Fabric, answered_by
from flowfabric.sdk.task import Task
from flowfabric.testing.debugging import Pause, Stop, is_of_handler
from flowfabric.testing.debugging import debug as debugged
from flowfabric.testing.history import History, history_of
from flowfabric.testing.loop import run
from flowfabric.testing.tape import Nowhere


def add_arguments(parser: FfParser) -> None:
    """Which execution, and where the code is."""
    add_id(parser)
    parser.add_argument("app", metavar="MODULE:APP", help="where the code is")
    parser.add_argument(
        "--until",
        metavar="KEY",
        help="stop when this call is asked for: in pdb at a terminal; ff journal shows the keys",
    )
    parser.set_defaults(handler=debug)


def debug(call: Call) -> Exit:
    """Nothing is run, sent or stored: it stops at the first call without an answer."""
    fabric = load(call.arguments.app)
    history = asyncio.run(_read(call))
    task = fabric.tasks.get(history.kind)
    if task is None:
        known = ", ".join(sorted(fabric.tasks)) or "none"
        raise usage(f"there is no task {history.kind!r} in the app", advice=f"there are: {known}")
    pauses = sys.stdin.isatty() and not call.terminal.as_json
    stop = run(_debugged(fabric, task, history, call.arguments.until, _pause if pauses else None))
    if call.terminal.as_json:
        call.terminal.document(plain(stop))
    else:
        where = "" if stop.where is None else f" ({stop.where})"
        call.terminal.line(clean(f"{stop.why}{where}"))
    return Exit.OK if stop.fits else Exit.FAILED


async def _debugged(
    fabric: Fabric, task: Task[..., Any], history: History, until: str | None, pause: Pause | None
) -> Stop:
    with answered_by(fabric, Nowhere()):
        return await debugged(task, history, until=until, pause=pause)


async def _read(call: Call) -> History:
    async with call.engine() as engine:
        snapshot = await named(call, engine)
        return await history_of(engine, snapshot.execution_id)


def _pause(text: str) -> None:
    """In the handler's stack."""
    print(f"{text}; `next` goes on to the next line, `continue` to the end", file=sys.stderr)
    _Debugger().set_trace(sys._getframe())


class _Debugger(pdb.Pdb):
    """It stops in our code and begins at the line of the handler that led there."""

    def setup(self, f: FrameType | None, tb: TracebackType | None) -> None:
        """Choose the innermost frame that is the handler's."""
        super().setup(f, tb)
        for at in reversed(range(len(self.stack))):
            if is_of_handler(self.stack[at][0]):
                self.curindex = at
                self.curframe = self.stack[at][0]
                self.curframe_locals = self.curframe.f_locals
                return
