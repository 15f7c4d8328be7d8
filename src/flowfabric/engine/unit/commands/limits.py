"""Commands about budgets and quotas."""

from __future__ import annotations

from typing import Any

from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.limits import LIMIT_COMMANDS
from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.command import Command


@handles(*LIMIT_COMMANDS)
async def decide(unit: Unit, command: Command[Any]) -> Any:
    """By the budget or the gate."""
    return unit.limits.decide(command)
