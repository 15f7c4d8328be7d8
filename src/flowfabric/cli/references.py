"""From a typed reference to an execution or a flow to its id.

A full id, its UUID, a unique beginning or end of that, `latest`, or `-` for the last one shown. The
form is checked with the command line; the meaning is looked up when the store is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from flowfabric import limits
from flowfabric.api.backend import EngineBackend
from flowfabric.cli.call import Call
from flowfabric.cli.exits import CommandFailed, Exit, not_found
from flowfabric.cli.shown import Kind
from flowfabric.cli.values import LATEST, SHOWN
from flowfabric.model.results import ExecutionSnapshot
from flowfabric.model.state import PublicState

_SHORT: Final = 8  # digits of a short id: one in four thousand million
_CANDIDATES: Final = 6  # named when a part matches several


def short_ids(ids: Sequence[str]) -> dict[str, str]:
    """Each id with its shortest end that differs from all others of the listing."""
    bare = {each: each[-36:].replace("-", "") for each in ids}
    for length in range(_SHORT, 32):
        ends = {each: digits[-length:] for each, digits in bare.items()}
        if len(set(ends.values())) == len(ends):
            return ends
    return bare


def as_shown(call: Call, kind: Kind, ids: Sequence[str]) -> dict[str, str]:
    """The ids of a listing as shown: short, or whole with --wide."""
    call.shown.remember(kind, list(ids), is_listing=True)
    return {each: each for each in ids} if call.arguments.wide else short_ids(ids)


async def execution_of(
    call: Call, engine: EngineBackend, word: str, *, waiting: bool = False
) -> str:
    """The id of the referenced execution; `waiting`: `latest` is the newest that waits."""
    if word == LATEST:
        return await _latest_execution(call, engine, waiting)
    if word == SHOWN:
        return _last_shown(call, "execution")
    if word.startswith("{"):
        return word
    found = await engine.find_executions(part=word, limit=_CANDIDATES + 1)
    return _only(call, "execution", word, found)


async def executions_of(call: Call, engine: EngineBackend, words: Iterable[str]) -> list[str]:
    """The ids of all references: all are resolved before the first is changed."""
    found = [await execution_of(call, engine, word) for word in words]
    return list(dict.fromkeys(found))


async def flow_of(call: Call, engine: EngineBackend, word: str) -> str:
    """The id of the referenced flow, by its own id or by one of a member."""
    if word == LATEST:
        page = await engine.list_flows(
            namespace=call.arguments.namespace, limit=1, newest_first=True
        )
        return _newest("flow", [each.flow_id for each in page.items])
    if word == SHOWN and (last := call.shown.last("flow")) is not None:
        return last
    if not word.startswith(("{", SHOWN)):
        found = await engine.find_flows(part=word, limit=_CANDIDATES + 1)
        members = () if found else await engine.find_executions(part=word, limit=_CANDIDATES + 1)
        if not members:
            return _only(call, "flow", word, found)
        word = _only(call, "execution", word, members)
    return await _flow_of_member(call, engine, word)


async def _flow_of_member(call: Call, engine: EngineBackend, word: str) -> str:
    execution_id = _last_shown(call, "flow") if word == SHOWN else word
    flow_id = await engine.resolve_execution_flow_id(execution_id=execution_id)
    if flow_id is None:
        raise not_found(
            f"execution {execution_id} belongs to no flow", advice="ff flow ls lists the flows"
        )
    return flow_id


async def _latest_execution(call: Call, engine: EngineBackend, waiting: bool) -> str:
    page = await engine.list_executions(
        namespace=call.arguments.namespace,
        states=(PublicState.SUSPENDED.value,) if waiting else (),
        limit=1,
    )
    what = "execution that waits" if waiting else "execution"
    return _newest(what, [each.execution_id for each in page.items])


def _newest(what: str, ids: Sequence[str]) -> str:
    if not ids:
        raise not_found(f"there is no {what} yet", advice="ff submit makes one, or --namespace")
    return ids[0]


def _last_shown(call: Call, kind: Kind) -> str:
    last = call.shown.last(kind) or call.shown.last("execution")
    if last is None:
        raise not_found(
            f"no {kind} of this store was shown yet", advice=f"name one: {_LISTED_BY[kind]}"
        )
    return last


_LISTED_BY: Final = {"execution": "ff ps lists them", "flow": "ff flow ls lists them"}


def _only(call: Call, kind: Kind, word: str, found: Sequence[str]) -> str:
    """The one match; rows of the last listing count however old they are."""
    digits = word.replace("-", "")
    seen = [each for each in call.shown.listed(kind) if each.replace("-", "").endswith(digits)]
    ids = list(dict.fromkeys([*found, *seen]))
    if len(ids) == 1:
        return ids[0]
    if ids:
        raise _ambiguous(kind, word, ids)
    among = limits.FIND_AMONG if kind == "execution" else limits.FIND_FLOWS_AMONG
    raise not_found(
        f"no {kind} begins with {word}, and none of the newest {among:,} ends with it",
        advice=f"{_LISTED_BY[kind]}; finished work is removed when its retention ends",
    )


def _ambiguous(kind: Kind, word: str, ids: Sequence[str]) -> CommandFailed:
    named = ids[:_CANDIDATES]
    more = " and more" if len(ids) > len(named) else ""
    return CommandFailed(
        f"{word} fits several {kind}s: {', '.join(short_ids(named).values())}{more}",
        advice="give more digits; these are their ends",
        exit_code=Exit.USAGE,
        code="ambiguous",
        fields={"candidates": list(named)},
    )


async def found(engine: EngineBackend, execution_id: str) -> ExecutionSnapshot:
    """The execution, or a failure with advice."""
    snapshot = await engine.describe_execution(execution_id=execution_id)
    if snapshot is None:
        raise not_found(
            f"no execution {execution_id}",
            advice="ff ps lists ids; finished work is removed when its retention ends",
        )
    return snapshot


async def named(call: Call, engine: EngineBackend, *, waiting: bool = False) -> ExecutionSnapshot:
    """The execution named on the command line; from now on it is the last one shown."""
    execution_id = await execution_of(call, engine, call.arguments.id, waiting=waiting)
    snapshot = await found(engine, execution_id)
    call.shown.remember("execution", [execution_id], is_listing=False)
    return snapshot
