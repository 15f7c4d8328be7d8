"""Every metric there is: its name, its labels, and how many series it may have.

All bounds together are at most `SERIES_MAX`, whatever lanes, kinds and budgets exist: what does not
fit is counted under `other`. A label is never an id, a tenant or a key.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

SERIES_MAX: Final = 2_000
OTHER: Final = "other"

# Upper bounds in seconds, inclusive. Those of work are a part of the bounds that minute statistics
# count by, so that the two never disagree.
REQUEST_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
WORK_S: Final = (0.005, 0.02, 0.05, 0.2, 0.5, 1.0, 5.0, 20.0, 60.0, 300.0, 1_800.0, 3_600.0)
COUNTS: Final = tuple(float(2**power) for power in range(10))


class Form(StrEnum):
    """What a metric is."""

    COUNTER = "counter"  # it only rises, from 0 when the process starts
    GAUGE = "gauge"  # as it is now
    HISTOGRAM = "histogram"  # how many values lie below each bound


class Source(StrEnum):
    """What a metric tells of."""

    PROCESS = "process"  # what this process did: add processes up
    STORE = "store"  # what the store knows: every process tells the same, take one


class Metric(NamedTuple):
    """A line of the catalogue.

    `most`: how many sets of labels it may have. `open`: labels whose values people choose; they
    become `other` in the set that takes the rest.
    """

    name: str
    form: Form
    source: Source
    text: str
    labels: tuple[str, ...] = ()
    most: int = 1
    open: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    @property
    def series(self) -> int:
        """How many lines of a scrape it may have."""
        each = len(self.bounds) + 3 if self.form is Form.HISTOGRAM else 1
        return each * self.most


_WORK: Final = ("lane", "kind")
_PROCESS, _STORE = Source.PROCESS, Source.STORE
_COUNTER, _GAUGE, _HISTOGRAM = Form.COUNTER, Form.GAUGE, Form.HISTOGRAM

CATALOGUE: Final = (
    # requests
    Metric(
        "ff_http_requests_total",
        *(_COUNTER, _PROCESS, "Requests that were answered"),
        *(("route", "method", "status"), 120, ("route", "method")),
    ),
    Metric(
        "ff_http_request_seconds",
        *(_HISTOGRAM, _PROCESS, "Time to answer a request, waits included"),
        *(("route", "method"), 16, ("route", "method"), REQUEST_S),
    ),
    Metric("ff_http_in_flight", _GAUGE, _PROCESS, "Requests that are being answered"),
    Metric("ff_http_waits", _GAUGE, _PROCESS, "Requests that wait for something to happen"),
    Metric("ff_http_streams", _GAUGE, _PROCESS, "Answers that go on and on"),
    # executions, from minute statistics
    Metric(
        "ff_executions_total",
        *(_COUNTER, _STORE, "What happened to executions"),
        *(("lane", "kind", "event"), 300, _WORK),
    ),
    Metric(
        "ff_pickup_seconds",
        *(_HISTOGRAM, _STORE, "From when work could be claimed until a worker had it"),
        *(_WORK, 18, _WORK, WORK_S),
    ),
    Metric(
        "ff_run_seconds",
        *(_HISTOGRAM, _STORE, "Running time of attempts that ended"),
        *(_WORK, 18, _WORK, WORK_S),
    ),
    Metric(
        "ff_end_to_end_seconds",
        *(_HISTOGRAM, _STORE, "From the creation of executions until they ended"),
        *(_WORK, 18, _WORK, WORK_S),
    ),
    Metric("ff_ready", _GAUGE, _STORE, "Executions a worker may claim", ("lane",), 30, ("lane",)),
    Metric("ff_running", _GAUGE, _STORE, "Executions with a lease", ("lane",), 30, ("lane",)),
    Metric(
        "ff_suspended",
        *(_GAUGE, _STORE, "Executions that wait for signals, times or their children"),
        *(("lane",), 30, ("lane",)),
    ),
    Metric(
        "ff_oldest_ready_seconds",
        *(_GAUGE, _STORE, "How long the work has waited for a worker that has waited longest"),
        *(("lane",), 30, ("lane",)),
    ),
    # leases
    Metric(
        "ff_lease_renewals_total",
        *(_COUNTER, _PROCESS, "Renewals of leases"),
        *(("outcome",), 2),
    ),
    Metric(
        "ff_leases_lost_total",
        *(_COUNTER, _STORE, "Leases that ran out or were revoked; their work is run again"),
    ),
    Metric(
        "ff_stale_writes_refused_total",
        *(_COUNTER, _PROCESS, "Writes under a lease that is over, by the refusal's code"),
        *(("outcome",), 8, ("outcome",)),
    ),
    # limits
    Metric(
        "ff_admission_denied_total",
        *(_COUNTER, _PROCESS, "Starts that a budget or a quota did not admit"),
        *(("limit",), 60, ("limit",)),
    ),
    Metric(
        "ff_budget_used_ratio",
        *(_GAUGE, _STORE, "Used and reserved part of the hard limit, else of the soft one"),
        *(("limit", "dimension"), 120, ("limit", "dimension")),
    ),
    Metric(
        "ff_budget_spend_total",
        *(_COUNTER, _STORE, "What budgets spent"),
        *(("limit", "dimension"), 120, ("limit", "dimension")),
    ),
    Metric(
        "ff_budget_breaches_total",
        *(_COUNTER, _STORE, "How often limits were passed"),
        *(("limit", "level"), 80, ("limit",)),
    ),
    # workers
    Metric(
        "ff_unroutable",
        *(_GAUGE, _STORE, "Executions that need what no live worker offers, by what they need"),
        *(("capability",), 30, ("capability",)),
    ),
    Metric("ff_workers", _GAUGE, _STORE, "Live workers", ("lane",), 30, ("lane",)),
    Metric(
        "ff_worker_slots",
        *(_GAUGE, _PROCESS, "Handlers this worker may run at once, for each lane it serves"),
        *(("lane",), 30, ("lane",)),
    ),
    Metric(
        "ff_worker_slots_busy",
        *(_GAUGE, _PROCESS, "Handlers this worker runs"),
        *(("lane",), 30, ("lane",)),
    ),
    # the engine
    Metric(
        "ff_store_seconds",
        *(_HISTOGRAM, _PROCESS, "Time of one transaction or one read"),
        *(("operation",), 3, (), REQUEST_S),
    ),
    Metric(
        "ff_batch_size",
        *(_HISTOGRAM, _PROCESS, "Commands that shared a commit"),
        *((), 1, (), COUNTS),
    ),
    Metric("ff_conflicts_total", _COUNTER, _PROCESS, "Transactions that collided"),
    Metric(
        "ff_store_errors_total",
        *(_COUNTER, _PROCESS, "Transactions and reads that failed"),
        *(("operation",), 3),
    ),
    Metric(
        "ff_pool_wait_seconds",
        *(_HISTOGRAM, _PROCESS, "Waits for a connection of the pool (PostgreSQL)"),
        *((), 1, (), REQUEST_S),
    ),
    # the background
    Metric("ff_loop_lag_seconds", _GAUGE, _PROCESS, "Worst delay of the event loop in 10 s"),
    Metric("ff_due_backlog", _GAUGE, _STORE, "Executions that are due and were not moved yet"),
    Metric("ff_event_lag_seconds", _GAUGE, _STORE, "How far statistics are behind"),
    Metric("ff_store_up", _GAUGE, _PROCESS, "Whether the store answered the last look: 1 or 0"),
)
