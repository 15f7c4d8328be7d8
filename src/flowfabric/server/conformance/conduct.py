"""Play the cases, one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final

from flowfabric.api.backend import EngineBackend
from flowfabric.api.operation import Scope
from flowfabric.server.conformance import endings, faults, leases, record, work
from flowfabric.server.conformance.case import CASES, Case
from flowfabric.server.conformance.stage import (
    CaseFailed,
    CaseSkipped,
    Stage,
    WorkerProcess,
)
from flowfabric.server.conformance.watch import Watch
from flowfabric.server.serve import Server
from flowfabric.server.settings import ServerSettings

LEASE_MS: Final = 4_000  # of claims that name no length: cases wait for several
_MODULES: Final = (work, leases, faults, record, endings)


class WatchedServer(Server):
    """A server whose requests are written down, and disturbed on purpose."""

    def __init__(self, engine: EngineBackend, settings: ServerSettings) -> None:
        super().__init__(engine, settings)
        self.watch = Watch(self.application, self.cut)
        self.application = self.watch


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a case ended. `problem`: what the worker did wrong; `skipped`: why it was not played."""

    case: Case
    problem: str | None = None
    skipped: str | None = None


def chosen(names: tuple[str, ...] = ()) -> list[Case]:
    """All cases in their order, or those whose group or name has one of these words."""
    order = [each.__name__ for each in _MODULES]
    cases = sorted(CASES, key=lambda each: order.index(each.play.__module__))
    if not names:
        return cases
    return [each for each in cases if any(n in each.group or n in each.name for n in names)]


async def token_for(engine: EngineBackend) -> str:
    """A token that a worker may show, and nothing more."""
    made: Any = await engine.create_access_token(name="conformance", scopes=(Scope.WORKER.value,))
    return str(made.token.reveal())


async def conducted(
    server: WatchedServer,
    token: str,
    cases: list[Case],
    *,
    process: WorkerProcess | None,
    patience_s: float,
    is_over: Callable[[], bool] = lambda: False,
) -> AsyncIterator[Verdict]:
    """How each case ended."""
    stage = Stage(server.service.engine, server.watch, token, process, patience_s)
    for each in cases:
        if is_over():
            return
        yield await _played(each, stage)


async def _played(case: Case, stage: Stage) -> Verdict:
    if case.needs_process and stage.process is None:
        return Verdict(case, skipped="it ends the worker: give its command behind --")
    try:
        await case.play(stage)
    except CaseFailed as error:
        await _cleared(stage)
        return Verdict(case, problem=str(error))
    except CaseSkipped as reason:
        return Verdict(case, skipped=str(reason))
    return Verdict(case)


async def _cleared(stage: Stage) -> None:
    """What a failed case has left must not disturb the next one."""
    if stage.process is not None and stage.process.exit_code is not None:
        stage.process.start()
    page = await stage.engine.list_executions(limit=1_000)
    await stage.cancel(
        *(each.execution_id for each in page.items if each.public_state.value != "completed")
    )
