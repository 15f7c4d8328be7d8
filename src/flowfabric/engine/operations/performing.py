"""Which function performs which request.

An operation that is decided by one command is a function from the checked request to that command;
many of them share a commit. Any other is a coroutine that answers the request itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from flowfabric.api.operation import Request
from flowfabric.engine.core import EngineCore

Q = TypeVar("Q", bound=Request[Any])
T = TypeVar("T")

COMMANDS: Final[dict[type[Request[Any]], Callable[[EngineCore, Any], Any]]] = {}
ANSWERS: Final[dict[type[Request[Any]], Callable[[EngineCore, Any], Awaitable[Any]]]] = {}


def commands(
    request: type[Q],
) -> Callable[[Callable[[EngineCore, Q], T]], Callable[[EngineCore, Q], T]]:
    """This function makes the one command that decides the request."""

    def enter(make: Callable[[EngineCore, Q], T]) -> Callable[[EngineCore, Q], T]:
        COMMANDS[request] = make
        return make

    return enter


def answers(
    request: type[Q],
) -> Callable[[Callable[[EngineCore, Q], Awaitable[T]]], Callable[[EngineCore, Q], Awaitable[T]]]:
    """This coroutine answers the request."""

    def enter(
        answer: Callable[[EngineCore, Q], Awaitable[T]],
    ) -> Callable[[EngineCore, Q], Awaitable[T]]:
        ANSWERS[request] = answer
        return answer

    return enter
