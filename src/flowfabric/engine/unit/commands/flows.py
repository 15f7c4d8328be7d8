"""Commands about flows."""

from __future__ import annotations

from typing import Any

from flowfabric.engine.unit.flows.book import FLOW_COMMANDS
from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.command import Command


@handles(*FLOW_COMMANDS)
async def decide(unit: Unit, command: Command[Any]) -> Any:
    """By the graph."""
    return await unit.flows.decide(command)
