"""Finding executions and flows by a part of their id, as people copy it.

Ids begin with their time, so those of one moment share long beginnings; their random ends differ. A
beginning is a range of the primary key. An end is searched among the newest only: an index of ends
made creating 9 to 29 % slower, because it grows at random places.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from flowfabric import limits
from flowfabric.api import executions as api
from flowfabric.api.page import Page, at_name
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers
from flowfabric.errors import InvalidInput
from flowfabric.model.checks import check_integer, check_name, check_text
from flowfabric.model.flow import FlowRow
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import FLOWS, Key

_KINDS = Listing("list_kinds", at_name)

_DIGITS: Final = 32
_DASHES: Final = (8, 12, 16, 20)  # before these digits
_PART: Final = re.compile(r"[0-9a-f-]+")


@answers(api.FindExecutions)
async def find_executions(machine: Machine, request: api.FindExecutions) -> tuple[str, ...]:
    """Ids with this beginning, then ids with this end."""
    digits, limit = check_part(request.part), request.limit
    check_integer(limit, field="limit", least=1, most=limits.PAGE_MAX)
    first, last = _spelled(digits.ljust(_DIGITS, "0")), _spelled(digits.ljust(_DIGITS, "f"))
    ending = _ending(digits)

    async def work(reader: Reader) -> tuple[str, ...]:
        found = await reader.ids_between(first, last, limit)
        if len(digits) < _DIGITS:
            found += await reader.ids_ending(ending, limits.FIND_AMONG, limit)
        return tuple(dict.fromkeys(found))[:limit]

    return await machine.read(work)


@answers(api.FindFlows)
async def find_flows(machine: Machine, request: api.FindFlows) -> tuple[str, ...]:
    """Flows with this beginning and, within the limit, with this end."""
    digits, limit = check_part(request.part), request.limit
    check_integer(limit, field="limit", least=1, most=limits.PAGE_MAX)

    async def work(reader: Reader) -> tuple[str, ...]:
        found = await _flows_beginning(reader, digits, limit)
        if len(digits) < _DIGITS and len(found) < limit:
            found += await _flows_ending(reader, _ending(digits), limit)
        return tuple(dict.fromkeys(found))[:limit]

    return await machine.read(work)


@answers(api.ListKinds)
async def list_kinds(machine: Machine, request: api.ListKinds) -> Page[str]:
    """The kinds in the catalog of routes."""
    namespace, limit = request.namespace, check_limit(request.limit)
    after = _KINDS.place(request.cursor) or ("",)
    if namespace is not None:
        check_name(namespace, field="namespace")
    catalog = await machine.read(lambda reader: reader.catalog())
    routes = (r for r in catalog.routes if namespace is None or r.namespace == namespace)
    kinds = sorted({r.execution_kind for r in routes if r.execution_kind > after[0]})
    return _KINDS.page(kinds, limit, place_of=lambda kind: (kind,), show=str)


async def _flows_beginning(reader: Reader, digits: str, limit: int) -> list[str]:
    beginning = _spelled(digits)
    behind = (f"{beginning}~",)  # a character that sorts behind every digit
    rows = await reader.search(_newest_flows(behind, limit))
    return [row.flow_id for row in rows if row.flow_id.startswith(beginning)]


def _newest_flows(behind: Key | None, limit: int) -> Search[FlowRow]:
    return Search(by_key(FLOWS), after=behind, limit=limit, is_backwards=True, skips_corrupt=True)


async def _flows_ending(reader: Reader, ending: str, limit: int) -> list[str]:
    found: list[str] = []
    behind = None
    for _ in range(limits.FIND_FLOWS_AMONG // limits.PAGE_MAX):
        page = await reader.search(_newest_flows(behind, limits.PAGE_MAX))
        found += [row.flow_id for row in page if row.flow_id.endswith(ending)]
        if len(found) >= limit or len(page) < limits.PAGE_MAX:
            break
        behind = (page[-1].flow_id,)
    return found


def check_part(value: object) -> str:
    """The digits of a part of an id, without dashes."""
    text = check_text(value, field="part", max_bytes=limits.NAME_BYTES).lower()
    digits = text.replace("-", "")
    if _PART.fullmatch(text) is None or not limits.FIND_DIGITS_MIN <= len(digits) <= _DIGITS:
        detail = f"part: expected {limits.FIND_DIGITS_MIN} to {_DIGITS} hex digits of an id"
        raise InvalidInput(detail, field="part")
    return digits


def _spelled(digits: str) -> str:
    """Digits from the beginning, with dashes where a UUID has them."""
    cuts = (0, *_DASHES, _DIGITS)
    parts = (digits[start:end] for start, end in pairwise(cuts))
    return "-".join(part for part in parts if part)


def _ending(digits: str) -> str:
    """Digits up to the end, with dashes where a UUID has them."""
    spelled = _spelled(digits.rjust(_DIGITS, "0"))
    dashes = sum(1 for cut in _DASHES if cut > _DIGITS - len(digits))
    return spelled[len(spelled) - len(digits) - dashes :]
