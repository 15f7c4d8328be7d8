"""The failures: what is broken, since when, how much of it, and is it one thing?"""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import urlencode

from flowfabric.api.bulk import StartOperation
from flowfabric.api.dead import ListDead
from flowfabric.api.failures import DescribeFailureGroup, ListFailureGroups
from flowfabric.api.operation import Scope
from flowfabric.errors import NotFound
from flowfabric.ids import new_uuid7s
from flowfabric.model.bulk import BulkCounted
from flowfabric.server.exchange import Call
from flowfabric.server.places import Nav
from flowfabric.server.routes.asking import ask
from flowfabric.server.routes.route import Reach
from flowfabric.server.service import Service
from flowfabric.server.ui.clocks import now_of
from flowfabric.server.ui.doing import failures as doing
from flowfabric.server.ui.frame import address_of
from flowfabric.server.ui.pages import Act, Action, Page
from flowfabric.server.ui.views.failures import PATH, Failure, Failures, failure_of, failures_of

_PAGE: Final = 100
_LETTERS: Final = 50


async def failures(service: Service, call: Call) -> Failures:
    """Groups with a failure in the last day."""
    given = dict(call.query)
    with_known = given.get("known") == "1"
    request = ListFailureGroups(
        with_known=with_known, cursor=given.get("cursor") or None, limit=_PAGE
    )
    page = await ask(service, call, request)
    further = None
    if page.next_cursor is not None:
        words = {"cursor": page.next_cursor, **({"known": "1"} if with_known else {})}
        further = f"{PATH}?{urlencode(words)}"
    return failures_of(
        page.items,
        now=await now_of(service, call),
        with_known=with_known,
        next_page=further,
    )


async def failure(service: Service, call: Call) -> Failure:
    """One group, and the runs of it that nobody has run again."""
    name, given = call.params["fingerprint"], dict(call.query)
    space = given.get("namespace") or None
    cursor = given.get("cursor") or None
    group, letters, open_letters = await asyncio.gather(
        ask(service, call, DescribeFailureGroup(fingerprint=name, namespace=space)),
        ask(
            service,
            call,
            ListDead(fingerprint=name, namespace=space, cursor=cursor, limit=_LETTERS),
        ),
        _open(service, call, name, space),
    )
    if group is None:
        raise NotFound("failure: there is no group of this fingerprint, or not any more")
    following = letters.next_cursor
    (operation_id,) = new_uuid7s(1)
    return failure_of(
        group,
        letters.items,
        open_letters=open_letters,
        now=await now_of(service, call),
        operation_id=operation_id,
        next_page=None if following is None else address_of(call, cursor=following),
    )


async def _open(service: Service, call: Call, name: str, space: str | None) -> int:
    """How many would be run again; nothing for a caller that may not ask."""
    if Scope.OPERATE not in call.caller.scopes:
        return 0
    counting = StartOperation(action="retry", fingerprint=name, namespace=space, dry_run=True)
    counted = await ask(service, call, counting)
    return counted.matched if isinstance(counted, BulkCounted) else 0


def _action(word: str, title: str, act: Act, operation: str) -> Action:
    return Action(
        path=f"{PATH}/{{fingerprint}}/{word}",
        title=title,
        act=act,
        scope=Scope.OPERATE,
        reach=Reach.NAMED,
        asks=(operation,),
    )


PAGES: Final = (
    Page(
        path=PATH,
        title="Failures",
        view=failures,
        template="failures.html",
        asks=("list_failure_groups",),
        parts=("failures",),
        topics=("tick:5s",),
        nav=Nav(label="Failures", icon="failures", key="f", group=0, order=4),
    ),
    Page(
        path=f"{PATH}/{{fingerprint}}",
        title="Failure",
        view=failure,
        template="failure.html",
        asks=("describe_failure_group", "list_dead", "start_operation"),
    ),
)
ACTIONS: Final[tuple[Action, ...]] = (
    _action(
        "change", "Run a group of failures again, or dismiss it", doing.all_of, "start_operation"
    ),
    _action("known", "Mark a group of failures as known", doing.known, "mark_failure_group"),
)
