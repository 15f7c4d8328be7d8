"""The schedules of a program, written when its worker starts."""

from __future__ import annotations

import asyncio
import logging

from flowfabric.api.backend import EngineBackend
from flowfabric.errors import FlowFabricError, StoreError
from flowfabric.model.schedule import DeclaredAs, SchedulesDeclared
from flowfabric.sdk.fabric import Fabric
from flowfabric.sdk.schedules import declare

_LOGGER = logging.getLogger("flowfabric.worker")
_AGAIN_S = 5.0


class Declaring:
    """Tells the engine once what the program declares; a store that is down is waited for."""

    def __init__(self, engine: EngineBackend, fabric: Fabric, name: str) -> None:
        self._engine = engine
        self._fabric = fabric
        self._actor = f"worker {name}"  # so that the audit trail tells deploys apart

    async def run(self) -> None:
        """Until it was told, or refused."""
        while True:
            try:
                fabric = self._fabric
                answer = await declare(
                    self._engine, fabric.declarations, fabric.tasks.values(), actor=self._actor
                )
            except StoreError as error:
                _LOGGER.warning("schedules are not written yet: %s", error)
                await asyncio.sleep(_AGAIN_S)
            except FlowFabricError as error:
                _LOGGER.error("the schedules of this program are refused: %s", error)
                return
            else:
                tell(answer)
                return


def tell(answer: SchedulesDeclared) -> None:
    """What is odd about declarations, in the log."""
    for each in answer.declared:
        if each.outcome is DeclaredAs.CONFLICT:
            _LOGGER.error("schedule %s is not written: %s", each.schedule_id, each.detail)
        elif each.outcome is DeclaredAs.CHANGED and each.flaps:
            text = "schedule %s: two versions of the code take turns to declare it (%d times); %s"
            _LOGGER.warning(text, each.schedule_id, each.flaps, each.detail)
    if answer.undeclared:
        names = ", ".join(answer.undeclared)
        _LOGGER.warning("no longer declared, and still in force (ff schedule prune): %s", names)
