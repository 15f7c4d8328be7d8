"""Commands of operators about lines."""

from __future__ import annotations

from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.errors import Corruption
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.order.release import (
    RecountLine,
    ReleaseLine,
    refuse_release,
    released,
    set_right,
)
from flowfabric.limits import PAGE_MAX
from flowfabric.model.execution import Execution
from flowfabric.model.line import LineReleased, PlaceRow
from flowfabric.model.record import replace
from flowfabric.model.repair import Correction
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import PLACES, Key


@handles(ReleaseLine)
async def release_line(unit: Unit, command: ReleaseLine) -> LineReleased | Refused:
    """The turn passes to what is next."""
    lines, view = unit.tied.lines, unit.view
    await lines.lock([command.key])
    line = lines.line(command.key)
    if (refusal := refuse_release(line, command)) is not None or line is None:
        return refusal or Refused(Corruption, f"line {command.serial_key}")
    event = released(line, view.at)
    view.note_event(replace(event, actor=command.actor) if command.actor else event)
    await lines.pass_turns([command.key])
    after = lines.line(command.key)
    return LineReleased(command.serial_key, line.head_id, None if after is None else after.head_id)


@handles(RecountLine)
async def recount_line(unit: Unit, command: RecountLine) -> tuple[Correction, ...] | Refused:
    """Under the lock of the line, as it stands."""
    lines, view = unit.tied.lines, unit.view
    await lines.lock([command.key])
    if (line := lines.line(command.key)) is None:
        return ()
    places = await _places(unit, command.key)
    ids = [line.head_id, *(each.execution_id for each in places)]
    found = await unit.tx.get(ids)
    known = {
        each: image if isinstance(image, Execution) else None
        for each in ids
        if (image := found.get(each)) is None or isinstance(image, Execution)
    }
    if line.head_id not in known:
        return ()
    decision = set_right(line, known[line.head_id], places, known, view.at)
    return view.apply(None, decision, command)


async def _places(unit: Unit, key: Key) -> list[PlaceRow]:
    search, found = Search(by_key(PLACES), (key,), limit=PAGE_MAX), []
    while page := await unit.overlay.search(search):
        found += page
        if len(page) < PAGE_MAX:
            break
        search = replace(search, after=(page[-1].number,))
    return found
