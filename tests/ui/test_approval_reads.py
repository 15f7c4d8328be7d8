"""What the pages of approvals read, however much else is suspended."""

from __future__ import annotations

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.model.suspension import AnyOf, Count, CountKind, ReasonCode, Single, TimeoutOnly
from flowfabric.server.routes.values import path_id
from tests.support.http import Desk
from tests.support.lab import Lab, scenario
from tests.support.reads import Reads, watched
from tests.support.waits import suspended

TWO = AnyOf((Count(2, CountKind.DISTINCT_SOURCES, ("a",), "approved"), Single("a", "rejected")))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return watched(monkeypatch)


@scenario
async def test_the_list_reads_a_page_of_approvals_and_their_waits(lab: Lab, reads: Reads) -> None:
    """Runs that sleep, or wait for signals, are not looked at."""
    if lab.url.startswith("memory"):
        return  # it has no statements
    await lab.engine.create_executions([NewExecution(execution_kind="brief")] * 140)
    claimed = await lab.claims(limit=140)
    for number, each in enumerate(claimed):
        if number % 2:
            later = lab.clock.now_ms() + 60_000
            await suspended(lab, TimeoutOnly(), each, timeout_at=later)
        else:
            await suspended(lab, TWO, each, reason_code=ReasonCode.WAITING_FOR_APPROVAL)
    desk = Desk(lab.engine)
    place = f"/ui/approvals/{path_id(claimed[0].execution_id)}/a"
    # Of the list: one statement for its page, one for the waits, one for the questions of budgets,
    # one that counts; the others read the clock for an operation, and say whether there are tokens.
    bounds = {
        "/ui/approvals?tab=all": (10, 110),
        "/ui/approvals": (10, 110),
        "/ui/approvals?tab=decided": (12, 10),
        place: (7, 10),
    }
    for path, (statements_max, rows_max) in bounds.items():
        reply, taken = await desk.get(path), []
        for _ in range(3):  # what is kept for some seconds may have to be read again once
            reads.take()
            reply = await desk.get(path)
            taken.append(reads.take())
        statements, rows = min(taken)
        assert reply.status == 200
        assert len(reply.body) <= 60 * 1024, path
        assert statements <= statements_max, (path, statements)
        assert rows <= rows_max, (path, rows)
