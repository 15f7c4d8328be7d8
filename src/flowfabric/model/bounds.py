"""The bounds of an execution: budgets it spends from, a quota it is admitted under."""

from __future__ import annotations

from flowfabric.model.record import Record

DEFAULT_DIMENSION = "default"


class Bounds(Record, frozen=True, kw_only=True):
    """Attached at creation, from the call and from the lane's defaults.

    >>> Bounds(quota_policy_id="crawl", concurrency_key="customer-7").dimension
    'customer-7'
    """

    budget_ids: tuple[str, ...] = ()
    quota_policy_id: str | None = None
    concurrency_key: str | None = None  # the quota's limits hold for each key by itself

    @property
    def dimension(self) -> str:
        """Which of the quota's counters applies."""
        return self.concurrency_key or DEFAULT_DIMENSION

    @property
    def gate(self) -> tuple[str, str] | None:
        """The quota's counter row, if there is a quota."""
        if self.quota_policy_id is None:
            return None
        return (self.quota_policy_id, self.dimension)


UNBOUNDED = Bounds()
