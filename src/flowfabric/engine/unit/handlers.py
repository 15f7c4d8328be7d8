"""Which function decides a command that needs more than the record of one execution.

Commands about one execution are decided by a rule alone (`kernel/registry.py`). All others have a
handler: it fetches what the rule asks for, and takes the decision into the unit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.command import Command

Handler = Callable[[Unit, Any], Awaitable[Any]]
H = TypeVar("H", bound=Handler)

HANDLERS: Final[dict[type[Command[object]], Handler]] = {}


def handles(*kinds: type[Command[object]]) -> Callable[[H], H]:
    """This function decides commands of these types."""

    def enter(handler: H) -> H:
        HANDLERS.update(dict.fromkeys(kinds, handler))
        return handler

    return enter
