"""The roles of the guide: its SQL is run as it stands there, and each role can do its work."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from flowfabric import Fabric, all_of
from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.errors import SchemaMismatch, StoreError
from tests.support.databases import PostgresServer
from tests.support.inner import inner

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "postgres.md"
SQL = re.compile(r"^```sql\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROLES = ("ff_migrator", "ff_app", "shop")
QUIET = EngineConfig(loops=False)


def blocks() -> list[str]:
    """The SQL of the section about roles: the schema, then a role that only submits."""
    section = GUIDE.read_text(encoding="utf-8").partition("## Roles and grants")[2]
    return SQL.findall(section)


class Site:
    """A database with the guide's roles, under names that nothing else on the server has."""

    def __init__(self, server: PostgresServer, url: str) -> None:
        self._server = server
        self._admin_url = url
        self._names = {role: f"{role}_{server.token}" for role in ROLES}

    def sql(self, text: str) -> str:
        return re.sub(r"\b(ff_migrator|ff_app|shop)\b", lambda found: self._names[found[0]], text)

    async def run(self, text: str) -> None:
        connection = await asyncpg.connect(self._admin_url)
        try:
            await connection.execute(self.sql(text))
        finally:
            await connection.close()

    def url_of(self, role: str) -> str:
        return re.sub(r"//[^@/]*@", f"//{self._names[role]}:pw@", self._admin_url)


@contextmanager
def site_on(server: PostgresServer) -> Iterator[Site]:
    with server.empty_database() as url:
        site = Site(server, url)
        asyncio.run(site.run(blocks()[0]))
        asyncio.run(site.run("CREATE ROLE shop LOGIN"))
        for role in ROLES:
            asyncio.run(site.run(f"ALTER ROLE {role} PASSWORD 'pw'"))
        try:
            yield site
        finally:
            for role in ROLES:
                asyncio.run(site.run(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}"))


def fabric(url: str) -> tuple[Fabric, Any]:
    ff = Fabric(url, config=QUIET)

    @ff.task
    async def ship(order: int) -> int:
        return order

    return ff, ship


def test_the_roles_of_the_guide_can_do_what_it_says_and_no_more(postgres: PostgresServer) -> None:
    async def story(site: Site) -> None:
        with pytest.raises(SchemaMismatch):
            await open_engine(site.url_of("ff_app"), config=QUIET).start(migrate=False)
        engine = open_engine(site.url_of("ff_migrator"), config=QUIET)
        await engine.start(migrate=True)
        await engine.close()
        await site.run(blocks()[1])
        ff, ship = fabric(site.url_of("ff_app"))
        async with ff:
            await ff.create_budget("gpt", hard={"tokens": 10}, scope="lane:default")
            await ff.create_quota("slow", starts=100)
            await submit_as_shop(site, ff, ship)
            await whole_life(ff)
            engine = inner(await ff.start())
            assert (await engine.doctor()).healthy
            assert len((await engine.dump())["executions"]) == 5
            owner = await asyncpg.connect(site.url_of("ff_app"))
            for forbidden in ("DROP TABLE ff_route", "ALTER TABLE ff_route ADD x INT"):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await owner.execute(forbidden)
            await owner.close()

    with site_on(postgres) as site:
        asyncio.run(story(site))


async def submit_as_shop(site: Site, ff: Fabric, ship: Any) -> None:
    """Its connections submit, also under limits and as a flow; they read no results."""
    mine = await asyncpg.connect(site.url_of("shop"))
    try:
        async with mine.transaction():
            options = {"key": "a", "tags": {"a.b": "c"}, "budgets": ["gpt"], "quota": "slow"}
            first = await ff.submit(ship, 1, **options, connection=mine)
            again = await ff.submit(ship, 1, **options, connection=mine)
            assert (first.id, first.is_new, again.id) == (again.id, True, first.id)
            await ff.submit_many(ship, [2], connection=mine)
            with ff.flow("orders", key="f") as f:
                f.add(ship, order=f.add(ship, 3), after=all_of(f.add(ship, 4)))
            await f.submit(connection=mine)
        for table in ("ff_attempt", "ff_waitpoint_hmac", "ff_worker_registry"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await mine.execute(f"SELECT * FROM {table}")
    finally:
        await mine.close()


async def whole_life(ff: Fabric) -> None:
    engine = await ff.start()
    for _ in range(5):
        for claimed in await engine.claim(
            lanes=("default",), worker_id="w", worker_instance_id="i", limit=10
        ):
            await engine.complete(claimed.handle, result=b"1")
        await inner(engine).tick()


def test_a_role_without_its_grants_is_a_typed_error(postgres: PostgresServer) -> None:
    async def story(site: Site) -> None:
        engine = open_engine(site.url_of("ff_migrator"), config=QUIET)
        await engine.start(migrate=True)
        await engine.close()
        ff, ship = fabric(site.url_of("ff_app"))
        async with ff:
            await site.run("GRANT USAGE ON SCHEMA flowfabric TO shop")
            await site.run("ALTER ROLE shop SET search_path = flowfabric")
            mine = await asyncpg.connect(site.url_of("shop"))
            async with mine.transaction():
                with pytest.raises(StoreError, match="permission denied") as refused:
                    await ff.submit(ship, 1, connection=mine)
                assert not refused.value.retryable
                await mine.execute("SELECT 1")
            await mine.close()

    with site_on(postgres) as site:
        asyncio.run(story(site))
