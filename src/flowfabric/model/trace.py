"""Traces: by which a submit, its attempts and its children are one picture elsewhere (W3C Trace
Context)."""

from __future__ import annotations

import re
from typing import Final

from flowfabric.model.record import Record

_PARENT: Final = re.compile(
    r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL
)
_MEMBER: Final = re.compile(r"[a-z0-9][a-z0-9_*/@-]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,256}")
_PARENT_MAX: Final = 256
_STATE_MAX: Final = 512
_MEMBERS_MAX: Final = 32
_INVALID_VERSION: Final = "ff"


class Trace(Record, frozen=True):
    """Where in a trace an execution was submitted, as `traceparent` and `tracestate` say it."""

    parent: str
    state: str | None = None


def trace_text(trace: Trace) -> str:
    """A trace as it is stored: the one header, and the other in a line of its own."""
    return trace.parent if trace.state is None else f"{trace.parent}\n{trace.state}"


def trace_of(text: str) -> Trace:
    """The inverse.

    >>> trace_of("p\\na=1"), trace_of("p")
    (Trace(parent='p', state='a=1'), Trace(parent='p', state=None))
    """
    parent, _, state = text.partition("\n")
    return Trace(parent, state or None)


def read_trace(parent: object, state: object = None) -> Trace | None:
    """The trace that two headers name; None where the first is not sound. A state that is not
    sound is dropped by itself.

    >>> read_trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").parent[3:9]
    '0af765'
    """
    if not isinstance(parent, str) or len(parent) > _PARENT_MAX:
        return None
    found = _PARENT.fullmatch(parent)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == _INVALID_VERSION or (version == "00" and more is not None):
        return None
    if not (trace_id.strip("0") and span_id.strip("0")):
        return None
    # A later version is read as the one that is known here.
    return Trace(f"00-{trace_id}-{span_id}-{flags}", _state(state))


def _state(given: object) -> str | None:
    if not isinstance(given, str) or not 0 < len(given) <= _STATE_MAX:
        return None
    members = [each.strip(" \t") for each in given.split(",")]
    named = [each for each in members if each]
    is_sound = len(named) <= _MEMBERS_MAX and all(map(_MEMBER.fullmatch, named))
    return given if named and is_sound else None
