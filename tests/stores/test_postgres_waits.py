"""Suspensions and signals on Postgres: few round trips, and safe among rivals without a lock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.api.waits import Signal, SuspendRequest
from flowfabric.assemble import open_engine
from flowfabric.engine.engine import Engine
from flowfabric.errors import FlowFabricError
from flowfabric.model.results import Claimed
from flowfabric.model.suspension import (
    AllOf,
    Count,
    CountKind,
    SignalAccepted,
    SignalDuplicate,
    SignalEffect,
    Single,
    Suspended,
    WaitpointDetails,
)
from flowfabric.stores.indexes import WAITPOINTS_OF
from flowfabric.stores.postgres import store
from flowfabric.stores.postgres.transaction import PostgresTransaction
from tests.property.waiting import check_waits
from tests.stores.test_postgres_trips import (
    CONFIG,
    before_the_next_commit,
    claim,
    sent,
    words,
)

__all__ = ("sent",)  # a fixture

LOOK_AND_WRITE = ["SELECT", "SELECT", "WITH"]  # look, keys; the rows


def signal_to(claimed: Claimed, at: WaitpointDetails, who: str = "ann", **fields: Any) -> Signal:
    usual: dict[str, Any] = {
        "execution_id": claimed.execution_id,
        "waitpoint_id": at.waitpoint_id,
        "token": at.token,
        "signal_name": "ok",
        "source_identity": who,
    }
    return Signal(**{**usual, **fields})


async def started(engine: Engine) -> Claimed:
    await engine.create_execution(execution_kind="k")
    (claimed,) = await claim(engine)
    return claimed


async def suspended(engine: Engine, claimed: Claimed, condition: Any) -> tuple[Any, ...]:
    begun = await engine.suspend(claimed.handle, SuspendRequest(resume_condition=condition))
    assert isinstance(begun, Suspended)
    return begun.waitpoints


def test_a_lone_wait_takes_few_trips(postgres_url: str, sent: list[str]) -> None:
    async def story() -> None:
        async with open_engine(postgres_url, config=CONFIG) as engine:
            claimed = await started(engine)
            words(sent)
            (at,) = await suspended(engine, claimed, Count(2, CountKind.DISTINCT_SOURCES, ("a",)))
            assert words(sent) == LOOK_AND_WRITE
            delivery = ["SELECT", "SELECT", "SELECT", "SELECT", "WITH"]  # waitpoint, episode
            await engine.deliver_signal(signal_to(claimed, at, idempotency_key="once"))
            assert words(sent) == [*delivery[:-1], "SELECT", "WITH"]  # and the key
            again = await engine.deliver_signal(signal_to(claimed, at, idempotency_key="once"))
            assert isinstance(again, SignalDuplicate)
            assert words(sent) == ["SELECT"] * 5
            await engine.deliver_signal(signal_to(claimed, at, "bob"))
            assert words(sent) == delivery
            (resumed,) = await claim(engine)
            assert words(sent) == ["SELECT", "SELECT", "WITH"]
            both = AllOf((Single("a"), Single("b")))
            first, second = await suspended(engine, resumed, both)
            assert words(sent) == LOOK_AND_WRITE
            await engine.deliver_signal(signal_to(resumed, first))
            assert words(sent) == [*delivery[:-1], "SELECT", "WITH"]  # and the other waitpoint
            await engine.resume_execution(execution_id=resumed.execution_id)
            looks = ["SELECT"] * 4
            # Its entry in the audit trail is a new row, which takes a transaction.
            assert words(sent) == [*looks, "BEGIN", *looks, "WITH", "COMMIT"]
            assert second.waitpoint_key == "b"

    asyncio.run(story())


def test_a_past_of_many_waits_is_not_read(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hundredth wait of an execution costs what the first one did."""

    async def story() -> None:
        async with open_engine(postgres_url, config=CONFIG) as engine:
            claimed = await started(engine)
            for _ in range(100):
                (at,) = await suspended(engine, claimed, Single("a"))
                await engine.deliver_signal(signal_to(claimed, at))
                (claimed,) = await claim(engine)
            at, other = await suspended(engine, claimed, AllOf((Single("a"), Single("b"))))
            loaded: list[int] = []
            search = PostgresTransaction.search

            async def counted(self: Any, wanted: Any) -> Any:
                found = await search(self, wanted)
                if wanted.index is WAITPOINTS_OF:
                    loaded.append(len(found))
                return found

            monkeypatch.setattr(PostgresTransaction, "search", counted)
            await engine.deliver_signal(signal_to(claimed, at))
            await engine.deliver_signal(signal_to(claimed, other))
            assert loaded == [2, 2]

    asyncio.run(story())


# --- rivals ------------------------------------------------------------------------------------

Rival = Callable[[Engine, Claimed, tuple[WaitpointDetails, ...]], Awaitable[Any]]


async def the_same(engine: Engine, claimed: Claimed, at: tuple[WaitpointDetails, ...]) -> None:
    await engine.deliver_signal(signal_to(claimed, at[0], "ann", idempotency_key="once"))


async def another(engine: Engine, claimed: Claimed, at: tuple[WaitpointDetails, ...]) -> None:
    await engine.deliver_signal(signal_to(claimed, at[0], "bob"))


async def the_last(engine: Engine, claimed: Claimed, at: tuple[WaitpointDetails, ...]) -> None:
    for who in ("bob", "zoe"):
        await engine.deliver_signal(signal_to(claimed, at[0], who))


async def operator(engine: Engine, claimed: Claimed, at: tuple[WaitpointDetails, ...]) -> None:
    await engine.resume_execution(execution_id=claimed.execution_id)


async def cancel(engine: Engine, claimed: Claimed, at: tuple[WaitpointDetails, ...]) -> None:
    await engine.cancel_execution(
        execution_id=claimed.execution_id, reason="x", source="operator_override"
    )


async def resume_and_wait(
    engine: Engine, claimed: Claimed, at: tuple[WaitpointDetails, ...]
) -> None:
    await operator(engine, claimed, at)
    (again,) = await claim(engine)
    await suspended(engine, again, Single("a"))


RIVALS: dict[str, tuple[Rival, str]] = {
    "the same signal": (the_same, "SignalDuplicate"),
    "another signal": (another, SignalEffect.RESUMED.value),
    "the last signals": (the_last, "WaitpointClosed"),
    "an operator": (operator, "WaitpointClosed"),
    "a cancellation": (cancel, "TargetNotSignalable"),
    "the next wait": (resume_and_wait, "WaitpointClosed"),
}


@pytest.mark.parametrize("name", RIVALS)
def test_a_delivery_that_was_overtaken_is_decided_again(
    name: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "HOLD_S", 0.0)
    happening, expected = RIVALS[name]

    async def story() -> None:
        async with (
            open_engine(postgres_url, config=CONFIG) as one,
            open_engine(postgres_url, config=CONFIG) as two,
        ):
            claimed = await started(one)
            condition = Count(2, CountKind.DISTINCT_SOURCES, ("a",), "ok")
            at = await suspended(one, claimed, condition)
            before_the_next_commit(monkeypatch, lambda: happening(two, claimed, at))
            signal = signal_to(claimed, at[0], idempotency_key="once")
            assert await told(one.deliver_signal(signal)) == expected
            check_waits(await one.store.dump())

    asyncio.run(story())


async def told(call: Awaitable[Any]) -> str:
    try:
        answer = await call
    except FlowFabricError as error:
        return type(error).__name__
    return answer.effect.value if isinstance(answer, SignalAccepted) else type(answer).__name__


def test_an_early_signal_and_the_close_of_its_waitpoint(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever closes a waitpoint writes a new version of the execution, so the signal notices."""
    monkeypatch.setattr(store, "HOLD_S", 0.0)

    async def story() -> None:
        async with (
            open_engine(postgres_url, config=CONFIG) as one,
            open_engine(postgres_url, config=CONFIG) as two,
        ):
            claimed = await started(one)
            at = await one.create_waitpoint(claimed.handle, waitpoint_key="a", expires_in_ms=9_000)

            async def close() -> None:
                await two.close_waitpoint(
                    execution_id=claimed.execution_id, waitpoint_id=at.waitpoint_id
                )

            before_the_next_commit(monkeypatch, close)
            assert await told(one.deliver_signal(signal_to(claimed, at))) == "WaitpointClosed"
            dump = await one.store.dump()
            check_waits(dump)
            assert dump["ff_signal"] == []

    asyncio.run(story())


def test_a_suspend_that_was_overtaken(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "HOLD_S", 0.0)

    async def story() -> None:
        async with (
            open_engine(postgres_url, config=CONFIG) as one,
            open_engine(postgres_url, config=CONFIG) as two,
        ):
            claimed = await started(one)
            request = SuspendRequest(resume_condition=Single("a"))
            before_the_next_commit(monkeypatch, lambda: two.suspend(claimed.handle, request))
            assert await told(one.suspend(claimed.handle, request)) == "AlreadySuspended"
            dump = await one.store.dump()
            check_waits(dump)
            assert len(dump["ff_waitpoint"]) == 1

    asyncio.run(story())
