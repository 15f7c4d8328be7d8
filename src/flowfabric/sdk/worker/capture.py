"""Takes what handlers log to the logs of their attempts.

A handler is found by a context variable, so tasks it makes and `asyncio.to_thread` count as its
own, whichever logger of whichever library they use. FlowFabric's own loggers are left out, except
that of `ctx.log`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from flowfabric import limits
from flowfabric.model.checks import clip_text
from flowfabric.model.log_lines import NewLine
from flowfabric.sdk.worker.held import Held

_OWN: Final = "flowfabric"
_OF_TASKS: Final = "flowfabric.task"  # that of `ctx.log`
_LEVEL_MAX: Final = 100
_BUSY: Final = threading.local()
_PLAIN: Final = logging.Formatter()


class Capture(logging.Handler):
    """A handler of the root logger while a worker runs.

    It takes no lock while it formats: the text of a record is made by user code, which must not
    keep the event loop waiting. None of its errors reaches the code that logs.
    """

    def handle(self, record: logging.LogRecord) -> bool:
        """Keep a record of a handler."""
        if (held := Held.current.get()) is not None and not getattr(_BUSY, "is_busy", False):
            _BUSY.is_busy = True  # the text of a record may log in turn
            try:
                with suppress(Exception):  # there is no log to tell it to
                    _keep(held, record)
            finally:
                _BUSY.is_busy = False
        if len(logging.root.handlers) == 1:
            with suppress(Exception):
                self._stand_in(record)
        return True

    def _stand_in(self, record: logging.LogRecord) -> None:
        """In a program without any handler `logging` prints warnings by itself; this one must not
        keep it from doing so."""
        last = logging.lastResort
        if last is None or record.levelno < last.level:
            return
        logger = logging.root.manager.loggerDict.get(record.name, logging.root)
        while isinstance(logger, logging.Logger):
            if any(each is not self for each in logger.handlers):
                return
            if logger.parent is None:
                last.handle(record)
                return
            logger = logger.parent


def _keep(held: Held, record: logging.LogRecord) -> None:
    """Add a line that the engine takes, whatever a program put into the record: a report goes with
    it."""
    level, name = held.task.log_level, record.name
    if level is None or record.levelno < level or _is_ours(name) or not held.may_log:
        return
    line = NewLine(
        _text(record),
        max(0, min(limits.INSTANT_MS_MAX, int(record.created * 1000))),
        max(0, min(_LEVEL_MAX, int(record.levelno))),
        name if _is_short(name, limits.NAME_BYTES) else _name(name),
    )
    held.log(line)


def _is_ours(name: str) -> bool:
    return name.startswith(_OWN) and name != _OF_TASKS and name[len(_OWN) :][:1] in ("", ".")


def _text(record: logging.LogRecord) -> str:
    """The message, and below it the traceback if there is one; cut where it is too long."""
    text = _message(record)
    if record.exc_info:
        text += f"\n{record.exc_text or _PLAIN.formatException(record.exc_info)}"
    if record.stack_info:
        text += f"\n{record.stack_info}"
    most = limits.LOG_LINE_BYTES
    if _is_short(text, most):
        return text
    clean = clip_text(text[: most + 1], 2 * most, field="message")
    if len(text) <= most and len(clean.encode()) <= most:
        return clean
    end = f"… (cut, {len(text)} characters)"
    return clip_text(clean, most - len(end.encode()), field="message") + end


def _message(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except Exception as error:  # noqa: BLE001 - a wrong format; other handlers complain about it
        return f"{record.msg!s} (cannot be formatted: {type(error).__name__})"
    if record.name == _OF_TASKS:  # the log has these facts already
        facts = vars(record)
        text = text.removeprefix(f"[{facts.get('execution_id')} #{facts.get('attempt')}] ")
    return text


def _is_short(text: str, most: int) -> bool:
    """Whether a text is of the usual form, which needs no change."""
    return len(text) <= most and text.isascii() and text.isprintable()


def _name(name: str) -> str:
    printable = "".join(each if each.isprintable() else "\ufffd" for each in name)
    return clip_text(printable, limits.NAME_BYTES, field="logger")


# --- while workers run ---------------------------------------------------------------------------


class _Installed:
    """The one handler of this process, and how many workers need it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.workers = 0
        self.handler = Capture()
        self.changed: list[tuple[logging.Logger, int, int]] = []  # before, and since


_INSTALLED: Final = _Installed()


@contextmanager
def capturing() -> Iterator[None]:
    """Capture while the block runs; several workers of a process share one handler."""
    with _INSTALLED.lock:
        _INSTALLED.workers += 1
        if _INSTALLED.workers == 1:
            _INSTALLED.changed = _listen_to_infos()
            logging.root.addHandler(_INSTALLED.handler)
    try:
        yield
    finally:
        with _INSTALLED.lock:
            _INSTALLED.workers -= 1
            if _INSTALLED.workers == 0:
                logging.root.removeHandler(_INSTALLED.handler)
                for logger, before, since in _INSTALLED.changed:
                    if logger.level == since:
                        logger.setLevel(before)


def still_capture() -> None:
    """Install the handler again: a program that configures its logging removes it."""
    if _INSTALLED.handler not in logging.root.handlers:
        with _INSTALLED.lock:
            if _INSTALLED.workers:
                logging.root.addHandler(_INSTALLED.handler)


def _listen_to_infos() -> list[tuple[logging.Logger, int, int]]:
    """In a program that has not configured its logging every record below a warning is lost. Such a
    one has no handler that could print more than before; our own loggers stay as they are."""
    root = logging.root
    loggers = [
        each for each in root.manager.loggerDict.values() if isinstance(each, logging.Logger)
    ]
    if root.level != logging.WARNING or any(map(_has_handler, (root, *loggers))):
        return []
    changed = []
    for name, level in (
        (_OWN, logging.WARNING),
        (_OF_TASKS, logging.INFO),
        (None, logging.INFO),
    ):
        logger = logging.getLogger(name)
        if name is None or logger.level == logging.NOTSET:
            changed.append((logger, logger.level, level))
            logger.setLevel(level)
    return changed


def _has_handler(logger: logging.Logger) -> bool:
    return any(not isinstance(each, logging.NullHandler) for each in logger.handlers)
