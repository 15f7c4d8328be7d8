"""The function that performs each request.

An operation decided by one command is a function from the checked request to that command; many of
them share a commit. Each other one is a coroutine that returns the reply itself. One that may wait
has both: asked for together with others, and without a wait, it is a command among theirs. One that
has to look before it can be decided is made by a coroutine, and shares a commit all the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from flowfabric.api.operation import Request, UnsafeRequest
from flowfabric.engine.machine import Machine
from flowfabric.kernel.command import Command
from flowfabric.model.record import replace

Q = TypeVar("Q", bound=Request[Any])
C = TypeVar("C", bound=Command[object])
T = TypeVar("T")

COMMANDS: Final[dict[type[Request[Any]], Callable[[Machine, Any], Command[Any]]]] = {}
ANSWERS: Final[dict[type[Request[Any]], Callable[[Machine, Any], Awaitable[Any]]]] = {}
AT_ONCE: Final[dict[type[Request[Any]], Callable[[Machine, Any], Command[Any]]]] = {}
READIED: Final[dict[type[Request[Any]], Callable[[Machine, Any], Awaitable[Command[Any]]]]] = {}


def commands(
    request: type[Q],
) -> Callable[[Callable[[Machine, Q], C]], Callable[[Machine, Q], C]]:
    """This function makes the one command that decides the request."""

    def enter(make: Callable[[Machine, Q], C]) -> Callable[[Machine, Q], C]:
        COMMANDS[request] = _signed(make) if issubclass(request, UnsafeRequest) else make
        return make

    return enter


def _signed(
    make: Callable[[Machine, Any], Command[Any]],
) -> Callable[[Machine, Any], Command[Any]]:
    """A command with the request's actor."""

    def signed(machine: Machine, request: UnsafeRequest[Any]) -> Command[Any]:
        return replace(make(machine, request), actor=machine.actor(request.actor))

    return signed


def answers(
    request: type[Q],
) -> Callable[[Callable[[Machine, Q], Awaitable[T]]], Callable[[Machine, Q], Awaitable[T]]]:
    """This coroutine returns the reply to the request."""

    def enter(
        answer: Callable[[Machine, Q], Awaitable[T]],
    ) -> Callable[[Machine, Q], Awaitable[T]]:
        ANSWERS[request] = answer
        return answer

    return enter


def at_once(
    request: type[Q],
) -> Callable[[Callable[[Machine, Q], C]], Callable[[Machine, Q], C]]:
    """This function makes the command that decides the request where it asks for no wait."""

    def enter(make: Callable[[Machine, Q], C]) -> Callable[[Machine, Q], C]:
        AT_ONCE[request] = make
        return make

    return enter


def readied(
    request: type[Q],
) -> Callable[[Callable[[Machine, Q], Awaitable[C]]], Callable[[Machine, Q], Awaitable[C]]]:
    """This coroutine makes the command of the request once what it refers to is known."""

    def enter(
        make: Callable[[Machine, Q], Awaitable[C]],
    ) -> Callable[[Machine, Q], Awaitable[C]]:
        READIED[request] = make
        return make

    return enter


def maker_at_once(request: Request[Any]) -> Callable[[Machine, Any], Command[Any]] | None:
    """The function that makes the command of a request that may wait but asks not to."""
    make = AT_ONCE.get(type(request))
    if make is None:
        return None
    wait_ms = getattr(request, "wait_ms", None)
    return make if type(wait_ms) is int and wait_ms == 0 else None
