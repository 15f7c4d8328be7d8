"""Where a case is played: the server, the worker's requests, and work for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from flowfabric.api.backend import EngineBackend
from flowfabric.clock import monotonic
from flowfabric.errors import FlowFabricError, WaitTimeout
from flowfabric.model.policy import ExecutionPolicy, FixedBackoff, RetryPolicy
from flowfabric.model.results import Outcome
from flowfabric.server.conformance.watch import CLAIM, COMMANDS, REGISTER, Exchange, Fault, Watch

LANE: Final = "conformance"
ECHO, SLEEP, FAIL, PROGRESS = (f"{LANE}.{each}" for each in ("echo", "sleep", "fail", "progress"))
KINDS: Final = (ECHO, SLEEP, FAIL, PROGRESS)
LEASE_MS_MAX: Final = 10_000  # cases wait for several leases: longer ones are not waited for


class CaseFailed(Exception):
    """The worker did not do what it should; the text says what."""


class CaseSkipped(Exception):
    """The case cannot be played here; the text says why."""


class WorkerProcess(Protocol):
    """The worker as a program that can be started and stopped."""

    def start(self) -> None:
        """Start it again."""
        ...

    def terminate(self) -> None:
        """Ask it to end, as a process manager does."""
        ...

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        ...


def expect(is_so: object, text: str) -> None:
    """Fail the case unless it is so."""
    if not is_so:
        raise CaseFailed(text)


@dataclass(slots=True)
class Stage:
    """One run of the cases. `patience_s`: how long a worker may take for anything."""

    engine: EngineBackend
    watch: Watch
    token: str
    process: WorkerProcess | None
    patience_s: float

    # --- work ----------------------------------------------------------------------------------

    async def submit(
        self, kind: str, value: Any = None, *, raw: bytes | None = None, retries: int = 0
    ) -> str:
        """A new execution for the worker."""
        policy = ExecutionPolicy(
            retry_policy=RetryPolicy(max_retries=retries, backoff=FixedBackoff(delay_ms=1))
        )
        made: Any = await self.engine.create_execution(
            execution_kind=kind,
            lane_id=LANE,
            input_payload=json.dumps(value).encode() if raw is None else raw,
            policy=policy,
        )
        return str(made.execution_id)

    async def outcome(self, execution_id: str, what: str = "it") -> Outcome:
        """How it ended."""
        try:
            return await self.engine.wait_for_outcome(
                execution_id=execution_id, wait_ms=round(self.patience_s * 1_000)
            )
        except WaitTimeout:
            raise CaseFailed(f"{what} has not ended within {self.patience_s:g} s") from None

    async def result(self, execution_id: str, what: str = "it") -> Any:
        """What it returned, as a value."""
        found = await self.outcome(execution_id, what)
        state = found.ended.public_state.value
        expect(found.result is not None, f"{what} should have completed with a result, is {state}")
        return json.loads(found.result or b"null")

    async def attempts(self, execution_id: str) -> int:
        """How many there were."""
        return len((await self.engine.list_attempts(execution_id=execution_id)).items)

    async def is_state(self, execution_id: str, *states: str) -> bool:
        """Whether it is in one of the states."""
        found = await self.engine.describe_execution(execution_id=execution_id)
        return found is not None and found.public_state.value in states

    async def begun(self, *ids: str) -> None:
        """Return when the worker has all of them."""
        for each in ids:
            await self.until(partial(self.is_state, each, "active"), "the worker claims it")

    async def cancel(self, *ids: str) -> None:
        """Whatever they are doing."""
        for each in ids:
            try:
                await self.engine.cancel_execution(
                    execution_id=each, reason="conformance", source="operator_override"
                )
            except FlowFabricError:  # it has ended
                continue

    # --- what the worker does ------------------------------------------------------------------

    async def until(
        self, is_so: Callable[[], bool | Awaitable[bool]], what: str, within_s: float | None = None
    ) -> None:
        """Return when it is so; the case fails when it is not in time."""
        until = monotonic() + (within_s or self.patience_s)
        while True:
            changed = self.watch.changed
            found = is_so()
            if found if isinstance(found, bool) else await found:
                return
            left = until - monotonic()
            expect(left > 0, f"not within {within_s or self.patience_s:g} s: {what}")
            try:
                await asyncio.wait_for(changed.wait(), min(left, 0.05))
            except TimeoutError:
                continue

    async def ready(self) -> None:
        """Return when the worker waits for work."""
        await self.until(self.is_waiting, "the worker claims with a wait")

    def is_waiting(self) -> bool:
        """Whether a claim of the worker waits."""
        claims = self.watch.of(CLAIM)
        return any(not each.is_over and each.body.get("limit") != 0 for each in claims)

    @property
    def registered(self) -> dict[str, Any]:
        """What the worker said of itself last."""
        found = self.watch.of(REGISTER)
        expect(found, f"the worker never asked POST {REGISTER}")
        return found[-1].body

    @property
    def instance(self) -> str:
        """Its name for itself."""
        return str(self.registered.get("worker_instance_id", ""))

    @property
    def concurrency(self) -> int:
        """How many it runs at once."""
        found = self.registered.get("concurrency")
        return found if isinstance(found, int) else 1

    def claimed(self) -> Iterator[tuple[Exchange, dict[str, Any]]]:
        """Every lease that reached the worker."""
        for each in self.watch.of(CLAIM):
            for item in (each.answer or {}).get("items", ()) if each.status == 200 else ():
                yield each, item

    def commands(self, word: str) -> Iterator[tuple[Exchange, dict[str, Any]]]:
        """Every command of a type that it gave."""
        for each in self.watch.of(COMMANDS):
            for item in each.items(word):
                yield each, item

    def handles(self, execution_id: str) -> list[str]:
        """The handles of its leases of one execution."""
        items = [item for _, item in self.claimed()]
        return [each["handle"] for each in items if each["execution_id"] == execution_id]

    def reports(self, execution_id: str) -> list[Exchange]:
        """The requests in which it said how this one ended, one for each time it said so."""
        mine = set(self.handles(execution_id))
        words = ("complete", "fail", "cancel", "delay")
        found = [one for word in words for one in self.commands(word) if one[1]["handle"] in mine]
        return [each for each, _ in found]

    @property
    def lease_ms(self) -> int:
        """The length of its leases, as the server gave them."""
        for each, item in self.claimed():
            return int(item["lease_expires_at"] - each.answer["server_time_ms"])
        raise CaseSkipped("it never got a lease")

    def require_short_leases(self) -> float:
        """Their length in seconds; the case is left out where it would take too long."""
        if self.lease_ms > LEASE_MS_MAX:
            raise CaseSkipped("its leases are long: claim without lease_ttl_ms to be tested")
        return self.lease_ms / 1_000

    @contextmanager
    def fault(self, path: str, **how: Any) -> Iterator[Fault]:
        """Requests to a path meet a fault meanwhile."""
        fault = Fault(path, **how)
        self.watch.faults.append(fault)
        try:
            yield fault
        finally:
            self.watch.faults.remove(fault)
