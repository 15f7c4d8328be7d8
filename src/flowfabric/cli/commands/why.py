"""`ff why`: the engine's explanation, with advice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser, add_id
from flowfabric.cli.references import named
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column, clean
from flowfabric.cli.show.times import both
from flowfabric.model.results import Explanation
from flowfabric.model.telling import facts_of, limits_of, waits_of, workers_of

_LIMIT_COLUMNS: Final = (
    Column("LIMIT"),
    Column("USAGE", shrinks=True),
    Column("KEEPS IT BACK"),
    Column("ROOM AGAIN", shrinks=True),
)
_WAIT_COLUMNS: Final = (
    Column("KEY"),
    Column("NAME"),
    Column("WAITS FOR"),
    Column("HAVE", right=True),
)
_WORKER_COLUMNS: Final = (Column("WORKER"), Column("CAN RUN IT"), Column("LACKS", shrinks=True))


def add_arguments(parser: FfParser) -> None:
    """The execution."""
    add_id(parser)
    parser.set_defaults(handler=why)


async def why(call: Call) -> Exit:
    """The engine's explanation, with advice."""
    async with call.engine() as engine:
        snapshot = await named(call, engine)
        explanation = await engine.explain(execution_id=snapshot.execution_id)
        now = await engine.server_time_ms()
    if call.terminal.as_json:
        call.terminal.document(plain(explanation))
    else:
        show_explanation(call, explanation, now)
    return Exit.OK


def show_explanation(call: Call, explanation: Explanation, now: int) -> None:
    """The summary first: it answers the question."""
    terminal = call.terminal
    state = explanation.public_state.value
    terminal.text(f"{state}: {explanation.summary}", state=state)
    facts = [(each.name, each.text or both(each.at, now)) for each in facts_of(explanation, now)]
    terminal.facts([(name, clean(value)) for name, value in facts])
    limits = [(*row, both(clears_at, now)) for *row, clears_at in limits_of(explanation)]
    tables: tuple[tuple[tuple[Column, ...], Sequence[tuple[str, ...]]], ...] = (
        (_WAIT_COLUMNS, waits_of(explanation)),
        (_LIMIT_COLUMNS, limits),
        (_WORKER_COLUMNS, workers_of(explanation)),
    )
    for columns, rows in tables:
        if rows:
            terminal.line()
            terminal.table(columns, rows)
