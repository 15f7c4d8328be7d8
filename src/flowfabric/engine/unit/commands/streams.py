"""Commands about streams."""

from __future__ import annotations

from typing import Any, Final

from flowfabric import limits
from flowfabric.engine.unit.answers import first_answer
from flowfabric.engine.unit.commands.journal import begin_chapter, record, refuse_children
from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.errors import Corruption
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.fence import refuse_unless_owner
from flowfabric.kernel.journal.chapter import Continue
from flowfabric.kernel.journal.checkpoint import Checkpoint
from flowfabric.kernel.stream.append import AppendFrames, EndWithOutput, Facts, append_frames
from flowfabric.kernel.stream.log_lines import AppendLines, append_lines
from flowfabric.kernel.stream.retention import trimmed_away
from flowfabric.model.log_lines import LogsAppended
from flowfabric.model.stream import Appended, FrameId, FrameMark, StreamRow
from flowfabric.model.words import StreamMode
from flowfabric.stores.base import Corrupt
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import FRAME_MARKS, FRAMES, RUN_LOGS, STREAMS, SUMMARIES, Key

_MARKS: Final = by_key(FRAMES).reading(FRAME_MARKS)


@handles(AppendFrames)
async def append(unit: Unit, command: AppendFrames) -> Appended | Refused:
    """By the owner of the lease."""
    view, key = unit.view, (command.execution_id, command.attempt_index)
    current = view.executions.get(command.execution_id)
    if isinstance(current, Corrupt):
        return Refused(Corruption, f"execution {current.execution_id}: {current.detail}")
    stream = view.rows.get(STREAMS, key)
    known = await _repeated(unit, command, stream)
    facts = Facts(stream, view.rows.get(SUMMARIES, key), known)
    decision = append_frames(current, facts, command, view.at)
    if not decision.saves:
        return decision.reply
    view.effects.grown.add(command.execution_id)
    reply = view.apply(None, decision, command)
    await _trim(unit, stream, key)
    return reply


@handles(AppendLines)
async def append_to_log(unit: Unit, command: AppendLines) -> LogsAppended | Refused:
    """By the owner of the lease."""
    reply = _append_lines(unit, command)
    if not isinstance(reply, Refused):
        unit.view.effects.grown.add(command.execution_id)
    return reply


def _append_lines(unit: Unit, command: AppendLines) -> LogsAppended | Refused:
    view = unit.view
    current = view.executions.get(command.execution_id)
    if isinstance(current, Corrupt):
        return Refused(Corruption, f"execution {current.execution_id}: {current.detail}")
    log = view.rows.get(RUN_LOGS, (command.execution_id, command.attempt_index))
    return view.apply(None, append_lines(current, log, command, view.at), command)


@handles(EndWithOutput)
async def end_with_output(unit: Unit, command: EndWithOutput) -> Any:
    """The parts first, then the end, which wakes readers. A repeated call finds its lease over and
    nothing to write: it gets its first reply."""
    view = unit.view
    if isinstance(command.end, Continue):  # before anything is written with it
        refused = await refuse_children(unit, command.end)
        if refused is not None:
            return refused
    for own in command.parts:
        execution = view.execution(command.execution_id)
        if refuse_unless_owner(execution, command.execution_id, own.fence, view.at.now):
            continue
        if isinstance(own, AppendLines):
            appended: object = _append_lines(unit, own)
        elif isinstance(own, Checkpoint):
            appended = await record(unit, own)
        else:
            appended = await append(unit, own)
        if isinstance(appended, Refused):
            return appended
    reply: Any
    if isinstance(command.end, Continue):
        reply = await begin_chapter(unit, command.end)
    else:
        reply = view.decide(command.end)
    if isinstance(reply, Refused):
        return await first_answer(unit.tx, view, command.end) or reply
    return reply


async def _repeated(
    unit: Unit, command: AppendFrames, stream: StreamRow | None
) -> dict[int, FrameId]:
    """The frames of an append that were written before, by their writer's numbers. A call is
    repeated soon, so they are among the newest."""
    modes = {
        frame.mode
        for frame in command.frames
        if stream is not None and frame.seq is not None and frame.seq <= stream.client_seq
    }
    if not modes:
        return {}
    found: dict[int, FrameId] = {}
    wanted = tuple(StreamMode) if None in modes else sorted(each for each in modes if each)
    limit = len(command.frames) + limits.TRIM_MAX
    for mode in wanted:
        key = (command.execution_id, command.attempt_index)
        for mark in await _marks(unit, key, mode, limit, newest=True):
            if mark.client_seq is not None:
                found[mark.client_seq] = mark.frame_id
    return found


async def _trim(unit: Unit, before: StreamRow | None, key: Key) -> None:
    """Delete the frames that the stream no longer keeps."""
    view = unit.view
    stream = view.rows.get(STREAMS, key)
    if stream is None:
        return
    for mode in StreamMode:
        more = stream.trimmed_of(mode) - (0 if before is None else before.trimmed_of(mode))
        if more:
            marks = await _marks(unit, key, mode, more)
            for mark in trimmed_away(stream, marks):
                view.rows.drop_unseen(FRAMES, FRAME_MARKS.key_of(mark))


async def _marks(
    unit: Unit, key: Key, mode: StreamMode, limit: int, *, newest: bool = False
) -> list[FrameMark]:
    search = Search(_MARKS, ((*key, mode.value),), limit=limit, is_backwards=newest)
    return await unit.overlay.search(search)
