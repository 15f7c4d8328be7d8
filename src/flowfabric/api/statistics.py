"""Minute statistics: what happened on each lane, to each kind of work, and what budgets spent.

The background loop counts them from the logs every few seconds, so the newest are a little behind:
a reply says until which instant it is complete. They are kept for 30 days.
"""

from __future__ import annotations

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, operation
from flowfabric.api.words import StepGiven
from flowfabric.errors import InvalidCursor
from flowfabric.model.statistic import HOUR_MS, SpendingPage, Statistics, Step


@operation("read_statistics", Kind.READ, Scope.READ, errors=(InvalidCursor,))
class ReadStatistics(Request[Statistics], frozen=True, kw_only=True):
    """Statistics by time, namespace, lane and kind; without `since` of the last `last_ms`.

    They begin with the minute of `since` and end before `until`. `by`: a line for each minute,
    each hour, or one for all of it. `limit`: of how many minutes of a lane and kind a page is
    made; a line that the next page goes on with is added up by the caller.
    """

    since: int | None = None
    last_ms: int = HOUR_MS
    until: int | None = None
    namespace: str | None = None
    lane_id: str | None = None
    execution_kind: str | None = None
    by: StepGiven = Step.MINUTE
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("read_spending", Kind.READ, Scope.READ, errors=(InvalidCursor,))
class ReadSpending(Request[SpendingPage], frozen=True, kw_only=True):
    """What budgets spent, by time, budget and dimension; without `since` in the last `last_ms`.

    An amount is told in the minute in which the loop noticed it. `by` and `limit` as in
    `read_statistics`.
    """

    since: int | None = None
    last_ms: int = HOUR_MS
    until: int | None = None
    budget_id: str | None = None
    by: StepGiven = Step.MINUTE
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT
