"""Commands about suspensions."""

from __future__ import annotations

from typing import Any

from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.engine.unit.waits import EPISODE_COMMANDS
from flowfabric.kernel.command import ExecutionCommand


@handles(*EPISODE_COMMANDS)
async def decide(unit: Unit, command: ExecutionCommand[Any]) -> Any:
    """By the execution and its episode."""
    return unit.waits.decide(command)
