"""Refused calls on their way to the audit trail: the first of a caller and a minute at once, with
those that come behind it in one entry more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from flowfabric.api.audit import RecordRefusals
from flowfabric.api.backend import EngineBackend
from flowfabric.clock import monotonic
from flowfabric.errors import (
    CrossSiteRequest,
    FlowFabricError,
    MissingNamespace,
    MissingScope,
    Unauthorized,
)
from flowfabric.model.audit import Refusals, RequestOrigin
from flowfabric.model.record import replace

_LOGGER: Final = logging.getLogger("flowfabric.server")
_MINUTE_S: Final = 60.0
_CALLERS_MAX: Final = 1_000  # within a minute; refusals of others are counted together
_REFUSALS: Final = (Unauthorized, MissingScope, MissingNamespace, CrossSiteRequest)
_OTHERS: Final = RequestOrigin()
Key = tuple[str, str]  # the actor and the address


class RefusalLog:
    """Those of one server."""

    def __init__(self, engine: EngineBackend, now: Callable[[], float] = monotonic) -> None:
        self._engine = engine
        self._now = now
        self._until = 0.0  # when the minute is over
        self._seen: set[Key] = set()
        self._gathered: dict[Key, Refusals] = {}
        self._writing: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def note(self, origin: RequestOrigin, action: str, error: FlowFabricError) -> None:
        """A call was refused for what its caller may do; other errors are none of these."""
        if not isinstance(error, _REFUSALS):
            return
        if self._now() >= self._until:
            self._turn()
        key = (origin.actor, origin.address)
        is_new = key not in self._seen
        if is_new and len(self._seen) >= _CALLERS_MAX:
            origin, key, is_new = _OTHERS, ("", ""), False
        refused = Refusals(
            actor=origin.actor,
            address=origin.address,
            action=action,
            code=error.code,
            request_id=origin.request_id,
            namespace=origin.namespace,
            times=1,
        )
        if is_new:
            self._seen.add(key)
            self._write([refused])
            return
        if self._timer is None:
            left_s = self._until - self._now()
            self._timer = asyncio.get_running_loop().call_later(left_s, self.look)
        before = self._gathered.get(key)
        times = 1 if before is None else before.times + 1
        self._gathered[key] = replace(refused, times=times)

    def _turn(self) -> None:
        """A minute is over: what it has gathered is written, and the next one begins."""
        self._until = self._now() + _MINUTE_S
        gathered = list(self._gathered.values())
        self._seen.clear()
        self._gathered.clear()
        if gathered:
            self._write(gathered)

    def look(self) -> None:
        """Write what was gathered, if its minute is over."""
        self._timer = None
        if self._gathered and self._now() >= self._until:
            self._turn()

    async def close(self) -> None:
        """Write what there is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._turn()
        await self.written()

    async def written(self) -> None:
        """Return when all that is to be written now is."""
        while self._writing:
            await asyncio.wait(self._writing)

    def _write(self, refusals: list[Refusals]) -> None:
        task = asyncio.create_task(self._record(refusals))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _record(self, refusals: list[Refusals]) -> None:
        try:
            await self._engine.call(RecordRefusals(refusals=refusals))
        except FlowFabricError as error:
            _LOGGER.warning("refused calls are missing in the audit trail: %s", error.code)
