"""How a command ends: the exit codes, and the one-line failure a person can act on.

The codes are part of the interface: scripts branch on them, so a number never changes its meaning.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

from flowfabric.errors import (
    ContentionError,
    Corruption,
    ExecutionNotActive,
    ExecutionNotEligible,
    ExecutionNotSuspended,
    ExecutionNotTerminal,
    FlowAlreadyTerminal,
    FlowFabricError,
    InvalidInput,
    InvalidToken,
    LaneClosed,
    LimitConflict,
    MaxReplaysExhausted,
    NotFound,
    OutcomeUnknown,
    RetryExhausted,
    RotationConflict,
    SchemaMismatch,
    SignalLimitExceeded,
    StoreUnavailable,
    TargetNotSignalable,
    UnknownMailbox,
    ValidationError,
    WaitpointClosed,
    WaitTimeout,
)


class Exit(IntEnum):
    """The exit status for the shell."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    UNAVAILABLE = 5
    TIMEOUT = 6
    INTERRUPTED = 130


EXIT_MEANINGS: Final = {
    Exit.OK: "done",
    Exit.FAILED: "the thing asked about failed or is unhealthy",
    Exit.USAGE: "the command line is wrong",
    Exit.NOT_FOUND: "no such execution, module or database",
    Exit.REFUSED: "understood and refused; repeating it will not help",
    Exit.UNAVAILABLE: "the store or server is unavailable or busy; repeating it is safe",
    Exit.TIMEOUT: "not finished within the wait; the work goes on",
    Exit.INTERRUPTED: "interrupted by Ctrl-C",
}


class CommandFailed(Exception):
    """A failure found by the command line itself: the problem and the advice."""

    def __init__(
        self,
        what: str,
        *,
        advice: str,
        exit_code: Exit,
        code: str,
        fields: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(what)
        self.what, self.advice, self.exit_code, self.code = what, advice, exit_code, code
        self.fields = fields or {}

    def as_dict(self) -> dict[str, Any]:
        """The object that `--json` prints; the same keys as an engine error."""
        retryable = self.exit_code in (Exit.UNAVAILABLE, Exit.TIMEOUT)
        detail = f"{self.what} — {self.advice}"
        return {"code": self.code, "detail": detail, "retryable": retryable, **self.fields}


def usage(what: str, *, advice: str = "see ff --help") -> CommandFailed:
    """The command line is wrong."""
    return CommandFailed(what, advice=advice, exit_code=Exit.USAGE, code="usage")


def not_found(what: str, *, advice: str) -> CommandFailed:
    """Something named on the command line does not exist."""
    return CommandFailed(what, advice=advice, exit_code=Exit.NOT_FOUND, code="not_found")


def exit_of(error: Exception) -> Exit:
    """The exit code of an error."""
    match error:
        case CommandFailed():
            return error.exit_code
        case NotFound():
            return Exit.NOT_FOUND
        case WaitTimeout():
            return Exit.TIMEOUT
        case InvalidToken() | SignalLimitExceeded():
            return Exit.REFUSED
        case ValidationError() if not isinstance(error, Corruption):
            return Exit.USAGE
        case ContentionError() if not isinstance(error, RetryExhausted):
            # A program may re-read and try again; a person gets told that the moment is wrong.
            return Exit.REFUSED
        case FlowFabricError() if error.retryable:
            return Exit.UNAVAILABLE
        case FlowFabricError():
            return Exit.REFUSED
        case _:
            return Exit.FAILED


def describe(error: Exception) -> str:
    """`<problem> — <advice>`, on one line."""
    match error:
        case CommandFailed():
            text = f"{error.what} — {error.advice}"
        case FlowFabricError():
            text = _describe_engine_error(error)
        case _:
            text = f"{type(error).__name__}: {error} — run again with --debug for the traceback"
    return " ".join(text.split())


# Advice for the command line, where the error's own words are for programs.
_ADVICE: Final[dict[type[FlowFabricError], str]] = {
    InvalidInput: "correct it; nothing was changed",
    SchemaMismatch: "ff db check compares them, ff db migrate brings an older one up to date",
    StoreUnavailable: "is the store running, the URL right, may this user write? retrying is safe",
    OutcomeUnknown: "look with ff ps whether it was done; with --key a repeated submit is safe",
    ExecutionNotEligible: "ff show tells how it stands, ff why what it waits for",
    ExecutionNotActive: "ff show tells how it stands",
    ExecutionNotTerminal: "only a finished execution is run again; ff cancel ends it",
    MaxReplaysExhausted: "submit it anew with ff submit",
    FlowAlreadyTerminal: "ff flow retry runs again what was lost",
    LaneClosed: "ff lanes shows its switch, ff lanes resume opens it",
    ExecutionNotSuspended: "ff waits lists what waits",
    WaitpointClosed: "it takes no more signals; ff waits show tells how its wait ended",
    TargetNotSignalable: "ff show tells how it ended",
    UnknownMailbox: "ff mail lists those that there are",
    InvalidToken: "it says no more on purpose; ff waits link prints a link that is good",
    RotationConflict: "choose another name with --kid; ff keys lists them",
}
_OF_ENTITY: Final = {
    "execution": "ff ps lists ids; finished work is removed when its retention ends",
    "flow": "ff flow ls lists them; a finished flow is removed when its retention ends",
    "operation": "ff operations lists them; one that is over is removed after 14 days",
    "waitpoint": "ff waits show lists the keys of an execution",
}


def advice_of(error: FlowFabricError) -> str:
    """The advice: the command that helps, else the error's own."""
    if isinstance(error, NotFound) and error.fields.get("entity") in _OF_ENTITY:
        return _OF_ENTITY[error.fields["entity"]]
    if isinstance(error, LimitConflict):
        what = "quota" if error.detail.startswith("quota") else "budget"
        return f"ff {what} set changes it, ff {what} show tells what it is"
    if type(error) in _ADVICE:
        return _ADVICE[type(error)]
    first, rest = _words(error)
    return (rest or first).rstrip(".")


def _words(error: FlowFabricError) -> tuple[str, str]:
    """The first paragraph of an error's documentation: its meaning and advice."""
    paragraph = (type(error).__doc__ or error.code).strip().partition("\n\n")[0]
    first, _, rest = " ".join(paragraph.split()).partition(". ")
    return first, rest


def _describe_engine_error(error: FlowFabricError) -> str:
    """The specific detail, then the advice."""
    first, _ = _words(error)
    what = error.detail or first[:1].lower() + first[1:].rstrip(".")
    if isinstance(error, NotFound) and error.detail and "no " not in error.detail:
        what = f"no {error.detail}"
    advice = advice_of(error)
    if advice == what:
        return f"{what} ({error.code})"
    if advice.lower() in what.lower():
        return what
    return f"{what} — {advice[:1].lower()}{advice[1:]}"
