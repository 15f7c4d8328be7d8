"""`ff why`: the engine's explanation, with advice."""

from __future__ import annotations

from typing import Final

from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser, add_id
from flowfabric.cli.references import named
from flowfabric.cli.show.executions import origin_of, schedule_of, successors_of
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column, clean
from flowfabric.cli.show.times import both, span
from flowfabric.limits import FAIR_COUNTED_MAX
from flowfabric.model.results import Explanation
from flowfabric.model.state import TERMINAL_STATES, PublicState

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
_DUE_WORDS: Final = {PublicState.ACTIVE: "lease ends", PublicState.SUSPENDED: "timeout"}
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
    due = _DUE_WORDS.get(explanation.public_state, "due")
    pairs = [
        ("since", both(explanation.since, now)),
        ("waiting for", explanation.waiting_for.removeprefix("waiting_for_").replace("_", " ")),
        ("fair key", _fair(explanation)),
        ("runs step", _step(explanation, now)),
        (due, both(explanation.due_at, now)),
        ("missing", ", ".join(explanation.missing_capabilities)),
        ("started by", schedule_of(explanation.schedule)),
        ("follows", origin_of(explanation.origin)),
        *(("then", each) for each in successors_of(explanation.successors)),
        *(("try", hint) for hint in explanation.hints),
    ]
    terminal.facts([(name, clean(value)) for name, value in pairs if value])
    if explanation.public_state in TERMINAL_STATES:
        return
    _show_tables(call, explanation, now)


def _fair(explanation: Explanation) -> str:
    """Its fair key, and how many are before it."""
    key, ahead = explanation.fair_key, explanation.fair_ahead
    if key is None or ahead is None:
        return key or ""
    count = f"{ahead} or more" if ahead >= FAIR_COUNTED_MAX else str(ahead)
    return f"{key}; {count} with fair keys before it"


def _step(explanation: Explanation, now: int) -> str:
    """The step that runs, and for how long."""
    if explanation.step is None or explanation.step_since is None:
        return ""
    return f"{explanation.step} for {span(max(0, now - explanation.step_since))}"


def _show_tables(call: Call, explanation: Explanation, now: int) -> None:
    """The condition of a suspended execution, its limits, and the workers that could run it."""
    waits = [
        (
            ", ".join(line.waitpoint_keys),
            line.signal_name or "any",
            line.what,
            f"{line.have}/{line.need}",
        )
        for line in explanation.waits
        if line.waitpoint_keys
    ]
    limits = [
        (
            f"{limit.kind} {limit.limit_id}",
            limit.usage,
            "yes" if limit.keeps_back else "no",
            both(limit.clears_at, now),
        )
        for limit in explanation.limits
    ]
    workers = [
        (f"{fit.worker_id}/{fit.worker_instance_id}", "yes" if fit.fits else "no", fit.lacks)
        for fit in explanation.could_run
        # it runs already, or the cause is not a missing worker
        if explanation.public_state not in _DUE_WORDS
    ]
    tables = ((_WAIT_COLUMNS, waits), (_LIMIT_COLUMNS, limits), (_WORKER_COLUMNS, workers))
    for columns, rows in tables:
        if rows:
            call.terminal.line()
            call.terminal.table(columns, rows)
