"""Where a failure comes from: its class, and the innermost function of the user's own code."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from types import FrameType
from typing import Final

from flowfabric.model.failure import FailureOrigin

_THIS: Final = f"{Path(__file__).parents[2]}/"
# What is installed is not the user's own code, nor is what the interpreter generates.
_INSTALLED: Final = tuple(
    f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


def origin_of(error: BaseException | None, version: str | None) -> FailureOrigin | None:
    """The origin of what ended a handler; without an own frame there is only the class."""
    if error is None:
        return None
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    found: tuple[FrameType, int] | None = None
    trace = error.__traceback__
    while trace is not None:
        if _is_own(trace.tb_frame.f_code.co_filename):
            found = trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next
    if found is None:
        return FailureOrigin(exception=name, version=version)
    frame, line = found
    place = f"{frame.f_globals.get('__name__', '')}:{frame.f_code.co_qualname}"
    return FailureOrigin(exception=name, frame=place, line=line, version=version)


def _is_own(file: str) -> bool:
    return not file.startswith((_THIS, "<", *_INSTALLED))
