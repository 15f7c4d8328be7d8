"""Dead letters: runs that failed or expired, until they are run again or dismissed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from flowfabric.api.backend import EngineBackend
from flowfabric.errors import InvalidInput
from flowfabric.limits import OPERATION_LIMIT_MAX, REASON_BYTES
from flowfabric.model.checks import check_flag, check_integer, check_list, clip_text
from flowfabric.model.dead import DeadCount, DeadLetter
from flowfabric.sdk.selecting import Change, ManyChanged, Tally, change_page
from flowfabric.sdk.task import Task

Opened = Callable[[], Awaitable[EngineBackend]]
_PAGE = 200


async def change_dead(
    engine: EngineBackend,
    wanted: dict[str, Any],
    change: Change,
    tally: Tally,
    *,
    limit: int | None = None,
    after_page: Callable[[], object] = lambda: None,
) -> None:
    """Change dead letters, the latest first, page by page. One that fails again comes before all
    others, so it is not met twice."""
    cursor: str | None = None
    left = limit
    while left is None or left > 0:
        size = _PAGE if left is None or wanted.get("is_dismissed") else min(_PAGE, left)
        page = await engine.list_dead(**wanted, cursor=cursor, limit=size)
        found = page.items if left is None else page.items[:left]
        if found:
            await change_page([each.execution_id for each in found], change, tally)
            after_page()
        left = None if left is None else left - len(found)
        cursor = page.next_cursor
        if cursor is None:
            return


class DeadLetters:
    """`ff.dead`: what failed or expired, and what becomes of it.

    ```
    for each in await ff.dead.count():
        print(each.execution_kind, each.category, each.number)
    await ff.dead.retry(category="timeout", limit=100)
    ```
    """

    def __init__(self, opened: Opened) -> None:
        self._opened = opened

    async def list(
        self,
        *,
        kind: str | Task[..., Any] | None = None,
        category: str | None = None,
        dismissed: bool = False,
        limit: int = 100,
    ) -> list[DeadLetter]:
        """The latest ones of the fabric's namespace, up to 1,000; or those that were dismissed,
        among so many that failed or expired."""
        engine = await self._opened()
        wanted = _wanted(kind, category)
        page = await engine.list_dead(**wanted, is_dismissed=dismissed, limit=limit)
        return list(page.items)

    async def count(
        self, *, kind: str | Task[..., Any] | None = None, category: str | None = None
    ) -> tuple[DeadCount, ...]:
        """How many there are of each kind and category, the most first."""
        return await (await self._opened()).count_dead(**_wanted(kind, category))

    async def retry(
        self,
        ids: Iterable[str] | None = None,
        *,
        kind: str | Task[..., Any] | None = None,
        category: str | None = None,
        limit: int | None = None,
        reason: str = "",
        fresh: bool = False,
    ) -> ManyChanged:
        """Run these again, or all that fit; `limit`: so many at most, the latest first."""
        reason = clip_text(reason, REASON_BYTES, field="reason")
        check_flag(fresh, field="fresh")
        engine = await self._opened()

        async def change(execution_id: str) -> object:
            return await engine.replay_execution(
                execution_id=execution_id, reason=reason, fresh=fresh
            )

        return await _change(engine, ids, _wanted(kind, category), change, limit)

    async def dismiss(
        self,
        ids: Iterable[str] | None = None,
        *,
        kind: str | Task[..., Any] | None = None,
        category: str | None = None,
        limit: int | None = None,
        reason: str = "",
    ) -> ManyChanged:
        """Take these out of the listing, or all that fit. They stay as long as any that failed."""
        reason = clip_text(reason, REASON_BYTES, field="reason")
        engine = await self._opened()

        async def change(execution_id: str) -> object:
            return await engine.dismiss_dead(execution_id=execution_id, reason=reason)

        return await _change(engine, ids, _wanted(kind, category), change, limit)

    async def restore(
        self,
        ids: Iterable[str] | None = None,
        *,
        kind: str | Task[..., Any] | None = None,
        category: str | None = None,
        limit: int | None = None,
        reason: str = "",
    ) -> ManyChanged:
        """Take these into the listing again, or all that were dismissed and fit.

        ```
        await ff.dead.restore(kind="brief", reason="it was no user's fault")
        ```
        """
        reason = clip_text(reason, REASON_BYTES, field="reason")
        engine = await self._opened()

        async def change(execution_id: str) -> object:
            return await engine.restore_dead(execution_id=execution_id, reason=reason)

        wanted = _wanted(kind, category)
        return await _change(engine, ids, wanted, change, limit, is_dismissed=True)


async def _change(
    engine: EngineBackend,
    ids: Iterable[str] | None,
    wanted: dict[str, Any],
    change: Change,
    limit: int | None,
    *,
    is_dismissed: bool = False,
) -> ManyChanged:
    tally = Tally()
    if limit is not None:
        check_integer(limit, field="limit", least=1, most=OPERATION_LIMIT_MAX)
    if ids is None:
        if is_dismissed:
            wanted = {**wanted, "is_dismissed": True}
        await change_dead(engine, wanted, change, tally, limit=limit)
        return tally.total()
    if wanted or limit is not None:
        raise InvalidInput("ids: give them, or what the runs have in common", field="ids")
    await change_page(check_list(ids, field="ids"), change, tally)
    return tally.total()


def _wanted(kind: str | Task[..., Any] | None, category: str | None) -> dict[str, Any]:
    name = kind.name if isinstance(kind, Task) else kind
    given = {"execution_kind": name, "category": category}
    return {name: value for name, value in given.items() if value is not None}


Waits = Callable[[Coroutine[Any, Any, Any]], Any]


class SyncDeadLetters:
    """`ff.sync.dead`: the same without asyncio; arguments as in `DeadLetters`."""

    def __init__(self, waits: Waits, dead: DeadLetters) -> None:
        self._waits = waits
        self._dead = dead

    def list(self, **wanted: Any) -> list[DeadLetter]:
        """The latest ones."""
        found: list[DeadLetter] = self._waits(self._dead.list(**wanted))
        return found

    def count(self, **wanted: Any) -> tuple[DeadCount, ...]:
        """How many there are of each kind and category."""
        found: tuple[DeadCount, ...] = self._waits(self._dead.count(**wanted))
        return found

    def retry(self, ids: Iterable[str] | None = None, **wanted: Any) -> ManyChanged:
        """Run these again, or all that fit."""
        changed: ManyChanged = self._waits(self._dead.retry(ids, **wanted))
        return changed

    def dismiss(self, ids: Iterable[str] | None = None, **wanted: Any) -> ManyChanged:
        """Take these out of the listing, or all that fit."""
        changed: ManyChanged = self._waits(self._dead.dismiss(ids, **wanted))
        return changed

    def restore(self, ids: Iterable[str] | None = None, **wanted: Any) -> ManyChanged:
        """Take these into the listing again, or all that were dismissed and fit."""
        changed: ManyChanged = self._waits(self._dead.restore(ids, **wanted))
        return changed
