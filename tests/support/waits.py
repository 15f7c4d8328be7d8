"""Words for tests about suspension, and the check that what is stored tells one story."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

from flowfabric.api.waits import Signal, SuspendRequest
from flowfabric.engine.engine import Engine
from flowfabric.kernel.wait.condition import contributes, is_met
from flowfabric.kernel.wait.episode import (
    contribution,
)
from flowfabric.model.execution import Execution
from flowfabric.model.results import Claimed
from flowfabric.model.state import LifecyclePhase
from flowfabric.model.suspension import (
    AllOf,
    AlreadyMet,
    AnyOf,
    Contribution,
    Count,
    CountKind,
    ResumeCause,
    ResumeCondition,
    SignalAccepted,
    SignalDuplicate,
    SignalEffect,
    SignalRow,
    Single,
    Suspended,
    SuspensionInfo,
    SuspensionRow,
    WaitpointDetails,
    WaitpointRow,
    WaitpointState,
)
from flowfabric.stores.tables import SIGNALS, SUSPENSIONS, WAITPOINTS
from tests.support.lab import LANE, Lab, scenario

P = ParamSpec("P")
Answer = SignalAccepted | SignalDuplicate

# One of every kind a signal can meet, and signals (key, name, source) that meet it with the last.
CONDITIONS: dict[str, tuple[ResumeCondition, list[tuple[str, str, str]]]] = {
    "single": (Single("a", "go"), [("a", "go", "x")]),
    "wildcard": (Single("a"), [("a", "anything", "x")]),
    "all_of": (
        AllOf((Single("a", "go"), Single("b"))),
        [("b", "one", "x"), ("a", "go", "x")],
    ),
    "any_of": (AnyOf((Single("a", "go"), Single("b", "go"))), [("b", "go", "x")]),
    "waitpoints": (
        Count(2, CountKind.DISTINCT_WAITPOINTS, ("a", "b", "c")),
        [("c", "go", "x"), ("a", "go", "x")],
    ),
    "signals": (
        Count(3, CountKind.DISTINCT_SIGNALS, ("a",), "go"),
        [("a", "go", "x"), ("a", "go", "x"), ("a", "go", "x")],
    ),
    "sources": (
        Count(2, CountKind.DISTINCT_SOURCES, ("a",), "go"),
        [("a", "go", "x"), ("a", "go", "y")],
    ),
    "nested": (
        AllOf((AnyOf((Single("a"), AllOf((Single("b", "one"), Single("b", "two"))))), Single("c"))),
        [("c", "go", "x"), ("b", "one", "x"), ("b", "two", "x")],
    ),
}


class Waiting:
    """A suspended execution, and the means to signal it."""

    def __init__(self, lab: Lab, claimed: Claimed, outcome: Suspended) -> None:
        self.lab = lab
        self.claimed = claimed
        self.outcome = outcome
        self.execution_id = claimed.execution_id
        self.at = {each.waitpoint_key: each for each in outcome.waitpoints}

    def signal(self, name: str = "go", by: str = "alice", at: str = "", **fields: Any) -> Signal:
        """A signal to one of its waitpoints, the first unless named."""
        details = self.at[at] if at else self.outcome.waitpoints[0]
        return signal_to(self.execution_id, details, name, by, **fields)

    async def send(self, name: str = "go", by: str = "alice", at: str = "", **fields: Any) -> Any:
        """Deliver one; its answer."""
        return await self.lab.engine.deliver_signal(self.signal(name, by, at, **fields))

    async def effect(self, *args: Any, **fields: Any) -> SignalEffect:
        """Deliver one that must be new; what it did."""
        answer = await self.send(*args, **fields)
        assert isinstance(answer, SignalAccepted), answer
        return answer.effect


def signal_to(
    owner: str, details: WaitpointDetails, name: str = "go", by: str = "alice", **rest: Any
) -> Signal:
    """A signal with the right token."""
    fields: dict[str, Any] = {
        "execution_id": owner,
        "waitpoint_id": details.waitpoint_id,
        "token": details.token,
        "signal_name": name,
        "source_type": "user",
        "source_identity": by,
    }
    return Signal(**{**fields, **rest})


async def suspended(
    lab: Lab,
    condition: ResumeCondition | None = None,
    claimed: Claimed | None = None,
    created: dict[str, Any] | None = None,
    **request: Any,
) -> Waiting:
    """An execution (a new one, unless claimed) that waits for `go` on its waitpoint `a`."""
    running = claimed or await lab.started(**(created or {}))
    asked = SuspendRequest(resume_condition=condition or Single("a", "go"), **request)
    outcome = await lab.engine.suspend(running.handle, asked)
    assert isinstance(outcome, Suspended), outcome
    return Waiting(lab, running, outcome)


async def met_early(lab: Lab, claimed: Claimed, **request: Any) -> AlreadyMet:
    """A suspend that early signals satisfy at once."""
    outcome = await lab.engine.suspend(claimed.handle, SuspendRequest(**request))
    assert isinstance(outcome, AlreadyMet), outcome
    return outcome


async def pending(
    lab: Lab, claimed: Claimed, key: str = "a", expires_in_ms: int = 60_000, **fields: Any
) -> WaitpointDetails:
    """A waitpoint handed out before the suspension."""
    return await lab.engine.create_waitpoint(
        claimed.handle, waitpoint_key=key, expires_in_ms=expires_in_ms, **fields
    )


async def early(lab: Lab, claimed: Claimed, details: WaitpointDetails, *args: str) -> None:
    """A signal that comes before the suspension."""
    answer = await lab.engine.deliver_signal(signal_to(claimed.execution_id, details, *args))
    assert isinstance(answer, SignalAccepted)
    assert answer.effect is SignalEffect.BUFFERED


async def claim_with(engine: Engine, worker: str = "w1") -> list[Claimed]:
    """What another engine hands a worker."""
    return await engine.claim(lanes=(LANE,), worker_id=worker, worker_instance_id=worker, limit=100)


# --- what is stored ----------------------------------------------------------------------------


async def episode(lab: Lab, execution_id: str) -> SuspensionInfo:
    """The last episode."""
    return (await lab.engine.list_suspensions(execution_id=execution_id)).items[-1]


async def waitpoints(lab: Lab, execution_id: str) -> list[WaitpointRow]:
    """Every waitpoint ever made, whatever its state."""
    rows = (await lab.dump())[WAITPOINTS.name]
    return [row for row in rows if row.execution_id == execution_id]


async def signals(lab: Lab, execution_id: str) -> list[SignalRow]:
    """Every signal that was accepted."""
    rows = (await lab.dump())[SIGNALS.name]
    return [row for row in rows if row.execution_id == execution_id]


def told(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A scenario after which everything stored about suspensions must agree."""

    @wraps(test)
    async def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        await test(*args, **kwargs)
        lab = kwargs["lab"]
        assert isinstance(lab, Lab)
        await assert_sound(lab)

    return scenario(checked)


async def assert_sound(lab: Lab) -> None:
    """Episodes, waitpoints and signals agree, judged from everything that is stored."""
    dump = await lab.dump()
    executions = {e.execution_id: e for e in dump["executions"] if isinstance(e, Execution)}
    episodes: dict[str, SuspensionRow] = {r.suspension_id: r for r in dump[SUSPENSIONS.name]}
    opened = Counter(row.execution_id for row in episodes.values() if row.is_open)
    for key, execution in executions.items():
        waits = execution.state.lifecycle_phase is LifecyclePhase.SUSPENDED
        assert waits == (execution.suspension_id is not None)
        assert opened[key] == waits, f"{key} has {opened[key]} open episodes"
        if waits:
            assert episodes[execution.suspension_id or ""].is_open
            assert not execution.is_leased
    log: dict[str, list[SignalRow]] = {}
    for signal in sorted(dump[SIGNALS.name], key=lambda row: (row.waitpoint_id, row.sequence)):
        log.setdefault(signal.waitpoint_id, []).append(signal)
    for waitpoint in dump[WAITPOINTS.name]:
        execution = executions[waitpoint.execution_id]
        _check_waitpoint(waitpoint, execution, episodes, log.get(waitpoint.waitpoint_id, []))
    for row in episodes.values():
        bound = [each for each in dump[WAITPOINTS.name] if each.suspension_id == row.suspension_id]
        _check_episode(row, bound, log)
    stored = Counter(each.signal_id for rows in log.values() for each in rows)
    events = [event for event in dump["signal_events"] if event.execution_id in executions]
    assert stored == Counter(event.signal_id for event in events)
    assert (await lab.engine.doctor()).problems == ()


def _check_waitpoint(
    waitpoint: WaitpointRow,
    execution: Execution,
    episodes: dict[str, SuspensionRow],
    log: list[SignalRow],
) -> None:
    assert [each.sequence for each in log] == list(range(waitpoint.signal_count))
    if waitpoint.state is WaitpointState.PENDING:
        assert waitpoint.suspension_id is None
        assert not execution.is_terminal, "a pending waitpoint outlived its execution"
    elif waitpoint.state is WaitpointState.ACTIVE:
        assert waitpoint.suspension_id == execution.suspension_id
        assert episodes[waitpoint.suspension_id or ""].is_open
    else:
        assert waitpoint.closed_at is not None
        assert waitpoint.due_at is None


def _check_episode(
    row: SuspensionRow, bound: list[WaitpointRow], log: dict[str, list[SignalRow]]
) -> None:
    """Progress is only a cache of the log, and one signal at most ended the wait."""
    assert bound, "an episode without an address"
    if not row.is_open:
        assert {each.state for each in bound} == {WaitpointState.CLOSED}
        assert row.cause is not None
        assert row.actor
        assert row.close_reason
    heard = [(each, one) for each in bound for one in log.get(each.waitpoint_id, [])]
    enders = [one for _, one in heard if one.effect is SignalEffect.RESUMED]
    assert len(enders) <= 1
    if enders:
        assert row.cause in (ResumeCause.SIGNAL, ResumeCause.TIMEOUT)
    progress: list[Contribution] = []
    for each, one in heard:
        found = contribution(one, each.waitpoint_key)
        if one.source_type != "system" and contributes(row.condition, progress, found):
            progress.append(found)
    met = is_met(row.condition, progress)
    kept = [each for each in row.progress if each.source_type != "system"]
    assert met == is_met(row.condition, kept)
    assert met == (row.cause is ResumeCause.SIGNAL)
