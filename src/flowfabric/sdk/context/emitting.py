"""What a handler shows while it runs, as frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from flowfabric import limits
from flowfabric.errors import InvalidInput, RetentionLimitExceeded
from flowfabric.model.checks import check_name
from flowfabric.model.limit_checks import check_word
from flowfabric.model.shown import shown
from flowfabric.model.stream import BestEffort, FrameKind, NewFrame, PatchKind
from flowfabric.model.words import StreamMode
from flowfabric.sdk import codec
from flowfabric.sdk.durations import Duration, to_ms


class Emitter(Protocol):
    """An owner that sends frames."""

    async def emit(self, frame: NewFrame) -> None:
        """Put a frame on its way."""
        ...

    async def change_summary(self, frame: NewFrame) -> int:
        """Change the summary; the version it has then."""
        ...


def frame_of(
    payload: Any,
    *,
    frame_type: str,
    kind: FrameKind | str,
    mode: StreamMode | str | None,
    ttl: Duration | None,
    correlation_id: str | None,
) -> NewFrame:
    """A frame from a handler's arguments; what is wrong is refused where its traceback helps."""
    data, encoding = _encoded(payload)
    if len(data) > limits.FRAME_BYTES:
        detail = f"payload: {len(data)} bytes is over the limit {limits.FRAME_BYTES}"
        raise RetentionLimitExceeded(detail, field="payload", limit=limits.FRAME_BYTES)
    if ttl is not None and mode is None:
        mode = StreamMode.BEST_EFFORT
    chosen = None if mode is None else check_word(mode, StreamMode, field="mode")
    if chosen is StreamMode.SUMMARY:
        raise InvalidInput("mode: a summary is changed with ctx.summary(…)", field="mode")
    settings = None
    if ttl is not None:
        settings = BestEffort(ttl_ms=max(1, to_ms(ttl, field="ttl")))
    return NewFrame(
        payload=data,
        encoding=encoding,
        kind=check_word(kind, FrameKind, field="kind"),
        frame_type=check_name(frame_type, field="frame_type") if frame_type else "",
        mode=chosen,
        correlation_id=_name(correlation_id),
        best_effort=settings,
    )


def patch_of(
    patch: Mapping[str, Any] | None,
    append: Mapping[str, str | Sequence[Any]] | None,
    expected_version: int | None,
) -> NewFrame:
    """A change of the summary: values to merge, or text and lists to append by their paths."""
    if (patch is None) is (append is None):
        raise InvalidInput("patch: give it, or append, but not both", field="patch")
    merged: Any = patch
    kind = PatchKind.MERGE
    if append is not None:
        kind = PatchKind.APPEND
        merged = _appended(append)
    try:
        data = codec.encode(merged)
    except codec.EncodeErrors as error:
        raise InvalidInput(f"patch: cannot be written as JSON: {error}", field="patch") from None
    return NewFrame(
        payload=data,
        encoding=codec.JSON,
        mode=StreamMode.SUMMARY,
        patch_kind=kind,
        expected_version=expected_version,
    )


def _encoded(payload: Any) -> tuple[bytes, str]:
    if isinstance(payload, str):
        return payload.encode(errors="replace"), "utf8"
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload), "binary"
    try:
        return codec.encode(payload), codec.JSON
    except codec.EncodeErrors as error:
        raise InvalidInput(
            f"payload: cannot be written as JSON: {error}", field="payload"
        ) from None


def _name(value: str | None) -> str | None:
    return None if value is None else check_name(value, field="correlation_id")


def _appended(append: object) -> list[dict[str, Any]]:
    """What is appended where; a name without a slash is one at the root."""
    if not isinstance(append, Mapping) or not all(isinstance(name, str) for name in append):
        detail = f"append: give a mapping of names to text or lists, not {shown(append)}"
        raise InvalidInput(detail, field="append")
    return [
        {"path": name if name.startswith("/") else f"/{name}", "value": value}
        for name, value in append.items()
    ]


class Emitting:
    """What an async handler shows."""

    __slots__ = ()
    _owner: Any

    async def emit(
        self,
        payload: Any,
        frame_type: str = "",
        *,
        kind: str = FrameKind.EVENT,
        mode: str | None = None,
        ttl: Duration | None = None,
        correlation_id: str | None = None,
    ) -> None:
        """Show something to those that read `run.stream()`: text, bytes, or a value as JSON.

            async for token in model.answer(question):
                await ctx.emit(token, "token")

        Frames are sent in the order of the calls, several at once, and stored before the handler's
        end is recorded. `mode` is `durable` unless the task's policy says otherwise, or
        `best_effort`: such a frame is kept for `ttl` only, for readers that look now. The frames of
        an earlier attempt stay where they are; the next one begins a stream of its own.
        """
        frame = frame_of(
            payload,
            frame_type=frame_type,
            kind=kind,
            mode=mode,
            ttl=ttl,
            correlation_id=correlation_id,
        )
        await self._owner.emit(frame)

    async def summary(
        self,
        patch: Mapping[str, Any] | None = None,
        *,
        append: Mapping[str, str | Sequence[Any]] | None = None,
        expected_version: int | None = None,
    ) -> int:
        """Change the summary of this attempt, which `run.summary()` reads; returns its version.

            await ctx.summary({"step": "reading", "draft": None})
            await ctx.summary(append={"answer": " and more", "tools/used": ["search"]})

        `patch` is a JSON merge patch (RFC 7396): None removes a field, objects are merged, all else
        replaces. `append` adds to text or lists, by path.
        """
        frame = patch_of(patch, append, expected_version)
        changed: int = await self._owner.change_summary(frame)
        return changed


class SyncEmitting:
    """What a sync handler shows."""

    __slots__ = ()
    _owner: Any

    def emit(
        self,
        payload: Any,
        frame_type: str = "",
        *,
        kind: str = FrameKind.EVENT,
        mode: str | None = None,
        ttl: Duration | None = None,
        correlation_id: str | None = None,
    ) -> None:
        """Show something to readers of the stream: see `Context.emit`."""
        frame = frame_of(
            payload,
            frame_type=frame_type,
            kind=kind,
            mode=mode,
            ttl=ttl,
            correlation_id=correlation_id,
        )
        self._owner.wait_for(self._owner.emit(frame))

    def summary(
        self,
        patch: Mapping[str, Any] | None = None,
        *,
        append: Mapping[str, str | Sequence[Any]] | None = None,
        expected_version: int | None = None,
    ) -> int:
        """Change the summary of this attempt: see `Context.summary`."""
        changed: int = self._owner.wait_for(
            self._owner.change_summary(patch_of(patch, append, expected_version))
        )
        return changed
