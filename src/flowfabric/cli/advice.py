"""Advice about an error, in commands of `ff`; and the nearest name where one was misspelt."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final

from flowfabric.api.backend import EngineBackend
from flowfabric.api.page import every_item
from flowfabric.cli.exits import CommandFailed, Exit
from flowfabric.cli.values import nearest
from flowfabric.errors import FlowFabricError, NotFound
from flowfabric.limits import PAGE_MAX
from flowfabric.sdk.limits import all_budgets, all_quotas

Names = Callable[[EngineBackend], Awaitable[list[str]]]


async def lanes(engine: EngineBackend) -> list[str]:
    """Every lane that has or had work, or was switched."""
    found = await every_item(
        lambda at: engine.list_lanes(with_counts=False, cursor=at, limit=PAGE_MAX)
    )
    return [lane.lane_id for lane in found]


async def kinds(engine: EngineBackend) -> list[str]:
    """Every kind of execution that was ever created, or that a live worker runs."""
    workers = await every_item(lambda at: engine.list_workers(cursor=at, limit=PAGE_MAX))
    offered = {kind for worker in workers for kind in worker.kinds or ()}
    known = await every_item(lambda at: engine.list_kinds(cursor=at, limit=PAGE_MAX))
    return sorted({*known, *offered})


async def budgets(engine: EngineBackend) -> list[str]:
    """Every budget."""
    return [each.budget_id for each in await all_budgets(engine)]


async def quotas(engine: EngineBackend) -> list[str]:
    """Every quota."""
    return [each.quota_policy_id for each in await all_quotas(engine)]


NAMES: Final[dict[str, Names]] = {
    "lanes": lanes,
    "kinds": kinds,
    "budgets": budgets,
    "quotas": quotas,
}
_NAME: Final = re.compile(r"(?:budget|quota policy) (.+?)(?=: |$)")
_ENTITIES: Final = {"budget": ("budget", budgets), "quota_policy": ("quota", quotas)}


async def named(engine: EngineBackend, error: NotFound) -> FlowFabricError | CommandFailed:
    """A missing budget or quota by its name, with the one that may be meant."""
    entity = _ENTITIES.get(str(error.fields.get("entity")))
    found = _NAME.search(error.detail)
    if entity is None or found is None:
        return error
    what, list_names = entity
    word = found[1].strip("'")
    hint = nearest(word, await list_names(engine))
    return CommandFailed(
        f"no {what} {word}",
        advice=f"{hint} ff {what} ls lists them, ff {what} create makes one".strip(),
        exit_code=Exit.NOT_FOUND,
        code=error.code,
        fields=error.fields,
    )


async def misspelt(engine: EngineBackend, *, kind: str | None, lane: str | None) -> str:
    """Why a listing may be empty: a kind or lane that nothing ever had."""
    for what, word, list_names in (("kind", kind, kinds), ("lane", lane, lanes)):
        if word is None:
            continue
        known = await list_names(engine)
        if word not in known:
            hint = nearest(word, known)
            return f"no execution was ever of {what} {word}{'; ' if hint else ''}{hint}"
    return ""
