"""Requests, and the register of all operations.

A request is a frozen struct with the arguments of one operation. All that is known of an operation
stands at its request; the capability report, the typed methods of `EngineBackend`, HTTP routes and
the reference page are derived from the register.

`wait_ms` is how long an operation may wait for what it is asked for: so many milliseconds; 0 is not
at all: it looks once. None, where a request takes it, is as long as it lasts. The request says what
is answered when the wait was in vain: `WaitTimeout`, or as much as there is.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar, get_args

from flowfabric.errors import (
    Corruption,
    FlowFabricError,
    ForkedProcess,
    InvalidInput,
    OutcomeUnknown,
    RetryExhausted,
    StoreCorrupt,
    StoreError,
    StoreReplaced,
    StoreUnavailable,
)
from flowfabric.model.access import Scope as Scope
from flowfabric.model.record import Record

R = TypeVar("R")
Q = TypeVar("Q", bound="Request[Any]")


class Kind(StrEnum):
    """What an operation does to the store, and to the caller."""

    READ = "read"  # changes nothing
    WRITE = "write"  # one commit, or nothing
    WAIT = "wait"  # answers when something has happened, or when a time is over
    ADMIN = "admin"  # about the installation itself


Errors = tuple[type[FlowFabricError], ...]

# What any operation may raise: of a wrong argument, a row that cannot be read, the store's trouble.
COMMON_ERRORS: Final[Errors] = (
    InvalidInput,
    Corruption,
    StoreUnavailable,
    OutcomeUnknown,
    RetryExhausted,
    StoreReplaced,
    StoreCorrupt,
    StoreError,
    ForkedProcess,
)


class Request(Record, Generic[R], frozen=True, kw_only=True):
    """The arguments of one operation; R is what it answers.

    Nothing is checked when one is made: the operation checks its arguments, and its error names the
    field.
    """


class UnsafeRequest(Request[R], Generic[R], frozen=True, kw_only=True):
    """A request that changes what belongs to others, and is audited as an operator event.

    `actor`: in whose name, for the audit trail; none: that of the engine's configuration.
    """

    actor: str | None = None


class Operation(Record, frozen=True, kw_only=True):
    """One line of the register."""

    name: str  # the seeds', and the method of `EngineBackend`
    kind: Kind
    scope: Scope
    request: type[Request[Any]]
    reply: Any  # a type, a union or None
    errors: Errors  # its own, beside `COMMON_ERRORS`
    positional: tuple[str, ...]  # fields that the method takes by position, too
    is_local: bool  # only beside the store: it carries a connection, or is no business of callers
    also: tuple[Scope, ...] = ()  # scopes that suffice as well

    def may_raise(self, error: FlowFabricError) -> bool:
        """Whether it says so."""
        return type(error) in (*self.errors, *COMMON_ERRORS)


OPERATIONS: Final[dict[str, Operation]] = {}


def operation(
    name: str,
    kind: Kind,
    scope: Scope,
    *,
    errors: Errors = (),
    positional: tuple[str, ...] = (),
    is_local: bool = False,
    also: tuple[Scope, ...] = (),
) -> Callable[[type[Q]], type[Q]]:
    """Enter a request into the register. A `handle` is always taken by position."""

    def enter(request: type[Q]) -> type[Q]:
        if name in OPERATIONS:
            raise ValueError(f"{name} is entered twice")
        first = request.__struct_fields__[:1]
        OPERATIONS[name] = Operation(
            name=name,
            kind=kind,
            scope=scope,
            request=request,
            reply=_reply_of(request),
            errors=errors,
            positional=positional or (first if first == ("handle",) else ()),
            is_local=is_local,
            also=also,
        )
        return request

    return enter


def _reply_of(request: type[Request[Any]]) -> Any:
    bases: tuple[Any, ...] = getattr(request, "__orig_bases__", ())
    return next(get_args(base)[0] for base in bases if get_args(base))
