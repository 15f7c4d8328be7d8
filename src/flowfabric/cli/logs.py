"""The log of `ff worker`: lines for people, or one JSON object per line."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

_TEXT: Final = "%(asctime)s %(levelname)-7s %(message)s"
_NAMED: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_OWN: Final = "flowfabric.worker"  # its lines are the usual ones; others show their logger's name
# The attributes of every record. All others were given with the line, and belong to it.
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

About = Callable[[], Mapping[str, object]]


class Lines(logging.Formatter):
    """For people: the time, the level, the text."""

    def __init__(self) -> None:
        super().__init__(_TEXT, "%Y-%m-%d %H:%M:%S")
        self._others = logging.Formatter(_NAMED, "%Y-%m-%d %H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback below it where there is one."""
        return super().format(record) if record.name == _OWN else self._others.format(record)


class JsonLines(logging.Formatter):
    """For machines: one object per line; the fields of each event are documented.

    `about`: what a line belongs to that does not say so itself, such as the request that is being
    answered while a library logs.
    """

    def __init__(self, about: About | None = None) -> None:
        super().__init__()
        self._about = about

    def format(self, record: logging.LogRecord) -> str:
        """The four fields that every line has, then its own."""
        moment = datetime.fromtimestamp(record.created, UTC)
        document: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        more = {name: value for name, value in vars(record).items() if name not in _USUAL}
        about = {} if self._about is None else self._about()
        return json.dumps({**about, **more, **document}, default=str, ensure_ascii=False)


def write_logs(stream: TextIO, *, level: int, form: str, about: About | None = None) -> None:
    """Send everything the process logs to a stream, from a level on. `about`: as of `JsonLines`."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines(about) if form == "json" else Lines())
    logging.basicConfig(level=level, handlers=[handler])
    # What it tells of its start and end, our own lines tell better.
    logging.getLogger("uvicorn.error").setLevel(max(level, logging.WARNING))
