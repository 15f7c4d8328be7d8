"""The writer keeps images of what it will soon be asked for. Nobody may ever be able to tell."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import FlowEdge, FlowNode
from flowfabric.api.leases import Complete
from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.errors import Corruption, LeaseRevoked, NotFound, StaleLease
from flowfabric.model.flow_results import FlowSubmitted
from flowfabric.model.record import replace
from flowfabric.model.results import Claimed
from flowfabric.stores.base import Changes, Transaction
from flowfabric.stores.sqlite import images

Story = Callable[[Engine, Path], Awaitable[None]]
QUIET = EngineConfig(loops=False)


def told(tmp_path: Path, story: Story) -> None:
    async def run() -> None:
        path = tmp_path / "images.db"
        async with open_engine(f"sqlite:///{path}", config=QUIET) as engine:
            await story(engine, path)

    asyncio.run(run())


async def leased(engine: Engine, count: int = 1, **fields: Any) -> list[Claimed]:
    await engine.create_executions([NewExecution(execution_kind="k", **fields)] * count)
    return await claims(engine, count)


async def claims(engine: Engine, count: int = 1) -> list[Claimed]:
    return await engine.claim(
        lanes=("default",), worker_id="w", worker_instance_id="i", limit=count
    )


def kept(engine: Engine) -> int:
    return len(engine.store._images)  # type: ignore[attr-defined]


def test_leased_executions_are_kept_and_ended_ones_are_not(tmp_path: Path) -> None:
    async def story(engine: Engine, path: Path) -> None:
        first, second = await leased(engine, 2)
        assert kept(engine) == 2
        await engine.renew(first.handle)
        await engine.complete(first.handle)
        assert kept(engine) == 1
        await engine.fail(second.handle, reason="no")
        assert kept(engine) == 0

    told(tmp_path, story)


def test_a_kept_image_is_what_the_file_holds(tmp_path: Path) -> None:
    async def story(engine: Engine, path: Path) -> None:
        claimed = (await leased(engine, tags={"a.b": "1"}))[0]
        key = claimed.execution_id
        await engine.progress(claimed.handle, percent=7, message="on its way")
        await engine.set_execution_tag(execution_id=key, key="c.d", value="2")

        async def load(tx: Transaction) -> Any:
            return await tx.load((key,))

        assert kept(engine) == 1
        stored = await engine.read(lambda reader: reader.get((key,)))
        assert await engine.transact(load) == stored

    told(tmp_path, story)


def test_another_engine_on_the_file_is_noticed(tmp_path: Path) -> None:
    async def story(engine: Engine, path: Path) -> None:
        claimed = (await leased(engine))[0]
        async with open_engine(f"sqlite:///{path}", config=QUIET) as rival:
            await rival.revoke_lease(execution_id=claimed.execution_id, reason="stop")
            with pytest.raises(LeaseRevoked):
                await engine.complete(claimed.handle)

    told(tmp_path, story)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("UPDATE ff_exec_core SET lease_epoch = 9", StaleLease),
        ("UPDATE ff_exec_core SET next_attempt_type = 'strange'", Corruption),
        ("DELETE FROM ff_exec_core", NotFound),
    ],
)
def test_any_other_connection_to_the_file_is_noticed(
    tmp_path: Path, change: str, error: type[Exception]
) -> None:
    async def story(engine: Engine, path: Path) -> None:
        claimed = (await leased(engine))[0]
        with closing(sqlite3.connect(path, isolation_level=None)) as rival:
            rival.execute(change)
        with pytest.raises(error):
            await engine.complete(claimed.handle)

    told(tmp_path, story)


def test_new_members_that_wait_are_kept_as_the_file_has_them(tmp_path: Path) -> None:
    async def story(engine: Engine, path: Path) -> None:
        policy = {"timeout_policy": {"execution_deadline_ms": 60_000}}
        plain = NewExecution(execution_kind="k", tags={"a.b": "1"}, priority=3, policy=policy)
        later = NewExecution(execution_kind="k", delay_until=9_999_999_999_999)
        nodes = [
            FlowNode(name=name, execution=work)
            for name, work in (("first", plain), ("next", plain), ("late", later))
        ]
        edges = [FlowEdge(upstream="first", downstream=name) for name in ("next", "late")]
        made = await engine.submit_flow(nodes=nodes, edges=edges)
        assert isinstance(made, FlowSubmitted)
        waiting = [made.execution_ids[name] for name in ("next", "late")]
        assert kept(engine) == 2
        from_file = await engine.store.read(lambda reader: reader.get(waiting))
        assert await engine.store.transact(lambda tx: tx.load(waiting)) == from_file
        first = (await claims(engine))[0]
        await engine.complete(first.handle)
        assert kept(engine) == 0
        assert [each.execution_id for each in await claims(engine)] == waiting[:1]

    told(tmp_path, story)


def test_a_rolled_back_transaction_leaves_no_image(tmp_path: Path) -> None:
    async def story(engine: Engine, path: Path) -> None:
        claimed = (await leased(engine))[0]
        key = claimed.execution_id

        async def change_and_break(tx: Transaction) -> None:
            execution: Any = (await tx.load((key,)))[key]
            changes = Changes()
            changes.updated[key] = replace(execution, lease_epoch=9)
            await tx.save(changes)
            assert (await tx.load((key,)))[key] == changes.updated[key]
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await engine.store.transact(change_and_break)
        assert kept(engine) == 0
        await engine.complete(claimed.handle)

    told(tmp_path, story)


def test_images_do_not_outlive_their_connection(tmp_path: Path) -> None:
    """A new connection counts the commits of others from the start, so numbers say nothing."""

    async def story(engine: Engine, path: Path) -> None:
        claimed = (await leased(engine))[0]
        await engine.store.close()
        with closing(sqlite3.connect(path, isolation_level=None)) as rival:
            rival.execute("UPDATE ff_exec_core SET lease_epoch = 9")
        await engine.store.open(migrate=False)
        engine.store._images._version = 1  # type: ignore[attr-defined]
        with pytest.raises(StaleLease):
            await engine.complete(claimed.handle)

    told(tmp_path, story)


def test_only_so_many_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "KEPT_MAX", 3)

    async def story(engine: Engine, path: Path) -> None:
        claimed = [*await leased(engine, 2), *await leased(engine, 2), *await leased(engine, 1)]
        assert kept(engine) <= 3
        replies = await engine.complete_many([Complete(handle=each.handle) for each in claimed])
        assert not [reply for reply in replies if isinstance(reply, Exception)]

    told(tmp_path, story)


def test_a_worker_that_writes_into_its_tags_changes_only_its_own(tmp_path: Path) -> None:
    async def story(engine: Engine, path: Path) -> None:
        for tags in ({}, {"a.b": "1"}):
            claimed = (await leased(engine, tags=tags))[0]
            claimed.tags["x.y"] = "mine"  # type: ignore[index]
            await engine.complete(claimed.handle)
        dump = await engine.store.dump()
        assert [event.tags for event in dump["completion_events"]] == [{}, {"a.b": "1"}]

    told(tmp_path, story)
