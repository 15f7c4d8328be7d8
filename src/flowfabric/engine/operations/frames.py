"""The checks of frames, wherever they come with."""

from __future__ import annotations

from typing import Any, TypeGuard, TypeVar

from flowfabric import limits
from flowfabric.config import EngineConfig
from flowfabric.engine.operations.new_entries import checkpoint_command
from flowfabric.engine.operations.new_lines import lines_command
from flowfabric.errors import InvalidInput, RetentionLimitExceeded
from flowfabric.kernel.execution.complete import Complete
from flowfabric.kernel.execution.fail import Fail
from flowfabric.kernel.execution.own import Delay
from flowfabric.kernel.journal.chapter import Continue
from flowfabric.kernel.stream.append import AppendFrames, EndWithOutput
from flowfabric.model.checks import check_integer, check_list, check_name, check_text
from flowfabric.model.handle import Handle
from flowfabric.model.limit_checks import check_word
from flowfabric.model.record import replace
from flowfabric.model.stream import BestEffort, FrameKind, NewFrame, PatchKind
from flowfabric.model.words import StreamMode

E = TypeVar("E", Complete, Fail, Delay, Continue)
_SEQ_MAX = (1 << 53) - 1


def with_output(
    end: E,
    handle: Handle,
    config: EngineConfig,
    *,
    frames: Any = (),
    logs: Any = None,
    entries: Any = (),
) -> E | EndWithOutput:
    """The end of a lease, with its last frames, lines and entries if it has any."""
    checked = check_frames(frames)
    append = journaled = None
    if checked:
        append = AppendFrames(
            execution_id=handle.execution_id,
            fence=handle.fence,
            attempt_index=handle.attempt_index,
            frames=checked,
        )
    lines = None if logs is None else lines_command(handle, logs)
    if entries != ():
        several = check_list(entries, field="entries")
        journaled = checkpoint_command(handle, several, None, config) if several else None
    if append is None and lines is None and journaled is None:
        return end
    return EndWithOutput(
        execution_id=handle.execution_id, append=append, lines=lines, entries=journaled, end=end
    )


def check_frames(frames: Any, *, least: int = 0) -> tuple[NewFrame, ...]:
    """Frames that may be written."""
    several = frames if type(frames) is tuple else check_list(frames, field="frames")
    if not least <= len(several) <= limits.FRAMES_MAX:
        detail = f"frames: {len(several)} is not between {least} and {limits.FRAMES_MAX}"
        raise InvalidInput(detail, field="frames")
    checked = tuple(map(check_frame, several))
    if (size := sum(len(frame.payload) for frame in checked)) > limits.APPEND_BYTES_MAX:
        raise _too_large(size, limits.APPEND_BYTES_MAX, "frames")
    return checked


def check_frame(frame: object) -> NewFrame:
    """One frame, with its words as words and its numbers as numbers."""
    if _is_plain(frame):
        return frame
    if not isinstance(frame, NewFrame):
        detail = f"frame: expected a NewFrame, got {type(frame).__name__}"
        raise InvalidInput(detail, field="frame")
    payload: object = frame.payload
    if not isinstance(payload, bytes | bytearray | memoryview):
        got = type(payload).__name__
        raise InvalidInput(f"frame.payload: expected bytes, got {got}", field="frame.payload")
    data = payload if type(payload) is bytes else bytes(payload)
    if len(data) > limits.FRAME_BYTES:
        raise _too_large(len(data), limits.FRAME_BYTES, "frame.payload")
    mode = None if frame.mode is None else check_word(frame.mode, StreamMode, field="frame.mode")
    return replace(
        frame,
        payload=data,
        kind=check_word(frame.kind, FrameKind, field="frame.kind"),
        frame_type=check_text(
            frame.frame_type, field="frame.frame_type", max_bytes=limits.NAME_BYTES, empty=True
        ),
        mode=mode,
        encoding=_name(frame.encoding, "frame.encoding"),
        correlation_id=_name(frame.correlation_id, "frame.correlation_id"),
        seq=_number(frame.seq, "frame.seq", 1),
        patch_kind=check_word(frame.patch_kind, PatchKind, field="frame.patch_kind"),
        expected_version=_number(frame.expected_version, "frame.expected_version", 0),
        best_effort=_best_effort(frame.best_effort),
    )


def _is_plain(frame: object) -> TypeGuard[NewFrame]:
    """Whether a frame is of the usual form, which needs no copy: many come at once."""
    return (
        type(frame) is NewFrame
        and type(frame.payload) is bytes
        and len(frame.payload) <= limits.FRAME_BYTES
        and type(frame.kind) is FrameKind
        and frame.frame_type == ""
        and frame.encoding is None
        and frame.correlation_id is None
        and (frame.mode is None or type(frame.mode) is StreamMode)
        and (frame.seq is None or (type(frame.seq) is int and 0 < frame.seq <= _SEQ_MAX))
        and type(frame.patch_kind) is PatchKind
        and frame.expected_version is None
        and frame.best_effort is None
    )


def _name(value: str | None, field: str) -> str | None:
    return None if value is None else check_name(value, field=field)


def _number(value: int | None, field: str, least: int) -> int | None:
    return None if value is None else check_integer(value, field=field, least=least, most=_SEQ_MAX)


def _best_effort(value: BestEffort | None) -> BestEffort | None:
    if value is None:
        return None
    field = "frame.best_effort"
    if not isinstance(value, BestEffort):
        raise InvalidInput(f"{field}: expected a BestEffort", field=field)
    alpha: object = value.ema_alpha
    if not isinstance(alpha, int | float) or not 0 < alpha <= 1:
        name = f"{field}.ema_alpha"
        raise InvalidInput(f"{name}: must be above 0 and at most 1", field=name)
    most = limits.DURABLE_FRAMES_MAX
    return BestEffort(
        ttl_ms=check_integer(
            value.ttl_ms, field=f"{field}.ttl_ms", least=1, most=limits.DURATION_MS_MAX
        ),
        maxlen_floor=check_integer(
            value.maxlen_floor, field=f"{field}.maxlen_floor", least=1, most=most
        ),
        maxlen_ceiling=check_integer(
            value.maxlen_ceiling, field=f"{field}.maxlen_ceiling", least=1, most=most
        ),
        ema_alpha=float(alpha),
    )


def _too_large(size: int, limit: int, field: str) -> RetentionLimitExceeded:
    return RetentionLimitExceeded(
        f"{field}: {size} bytes is over the limit {limit}", field=field, limit=limit
    )
