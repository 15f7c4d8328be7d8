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


_COUNTER, _GAUGE, _HISTOGRAM = Form.COUNTER, Form.GAUGE, Form.HISTOGRAM
_PROCESS, _STORE = Source.PROCESS, Source.STORE


def _metric(
    form: Form,
    source: Source,
    name: str,
    text: str,
    labels: str = "",
    *,
    most: int = 1,
    closed: str = "",
    bounds: tuple[float, ...] = (),
) -> Metric:
    """`closed`: labels whose few values are known."""
    names = tuple(labels.split())
    is_open = tuple(each for each in names if each not in closed.split())
    return Metric(name, form, source, text, names, most, is_open, bounds)


CATALOGUE: Final = (
    # requests
    _metric(
        *(_COUNTER, _PROCESS, "ff_http_requests_total", "Requests that were answered"),
        labels="route method status",
        most=120,
        closed="status",
    ),
    _metric(
        *(_HISTOGRAM, _PROCESS, "ff_http_request_seconds", "Time to answer, waits included"),
        labels="route method",
        most=16,
        bounds=REQUEST_S,
    ),
    _metric(_GAUGE, _PROCESS, "ff_http_in_flight", "Requests that are being answered"),
    _metric(_GAUGE, _PROCESS, "ff_http_waits", "Requests that wait for something to happen"),
    _metric(_GAUGE, _PROCESS, "ff_http_streams", "Answers that go on and on"),
    # executions, from minute statistics
    _metric(
        *(_COUNTER, _STORE, "ff_executions_total", "What happened to executions"),
        labels="lane kind event",
        most=300,
        closed="event",
    ),
    _metric(
        *(_HISTOGRAM, _STORE, "ff_pickup_seconds", "From when work was claimable until its lease"),
        labels="lane kind",
        most=18,
        bounds=WORK_S,
    ),
    _metric(
        *(_HISTOGRAM, _STORE, "ff_run_seconds", "Running time of attempts that ended"),
        labels="lane kind",
        most=18,
        bounds=WORK_S,
    ),
    # what stands where
    _metric(_GAUGE, _STORE, "ff_ready", "Executions a worker may claim", "lane", most=30),
    _metric(_GAUGE, _STORE, "ff_running", "Executions with a lease", "lane", most=30),
    _metric(_GAUGE, _STORE, "ff_suspended", "Executions that are suspended", "lane", most=30),
    _metric(
        *(_GAUGE, _STORE, "ff_oldest_ready_seconds", "How long the first of the ready work waits"),
        labels="lane",
        most=30,
    ),
    # leases
    _metric(
        *(_COUNTER, _PROCESS, "ff_lease_renewals_total", "Renewals of leases: renewed, refused"),
        labels="outcome",
        most=2,
        closed="outcome",
    ),
    _metric(
        *(_COUNTER, _STORE, "ff_leases_lost_total", "Leases that ran out or were revoked"),
    ),
    _metric(
        *(_COUNTER, _PROCESS, "ff_stale_writes_refused_total", "Writes under a lease that is over"),
        labels="outcome",
        most=8,
        closed="outcome",
    ),
    # limits
    _metric(
        *(_COUNTER, _PROCESS, "ff_admission_denied_total", "Starts that a limit did not admit"),
        labels="limit",
        most=60,
    ),
    _metric(
        *(_GAUGE, _STORE, "ff_budget_used_ratio", "Part of the hard limit, else of the soft one"),
        labels="limit dimension",
        most=120,
    ),
    _metric(
        *(_COUNTER, _STORE, "ff_budget_spend_total", "What budgets spent"),
        labels="limit dimension",
        most=120,
    ),
    _metric(
        *(_COUNTER, _STORE, "ff_budget_breaches_total", "How often limits were passed"),
        labels="limit level",
        most=80,
        closed="level",
    ),
    # workers
    _metric(
        *(_GAUGE, _STORE, "ff_unroutable", "Executions that need what no live worker offers"),
        labels="capability",
        most=30,
    ),
    _metric(_GAUGE, _STORE, "ff_workers", "Live workers", "lane", most=30),
    _metric(
        *(_GAUGE, _PROCESS, "ff_worker_slots", "Handlers this worker may run at once"),
        labels="lane",
        most=30,
    ),
    _metric(
        *(_GAUGE, _PROCESS, "ff_worker_slots_busy", "Handlers this worker runs"),
        labels="lane",
        most=30,
    ),
    # the engine
    _metric(
        *(_HISTOGRAM, _PROCESS, "ff_store_seconds", "Time of one transaction or read"),
        labels="operation",
        most=2,
        closed="operation",
        bounds=REQUEST_S,
    ),
    _metric(
        *(_COUNTER, _PROCESS, "ff_store_errors_total", "Transactions and reads that failed"),
        labels="operation",
        most=2,
        closed="operation",
    ),
    _metric(
        *(_HISTOGRAM, _PROCESS, "ff_batch_size", "Commands that shared a commit"),
        bounds=COUNTS,
    ),
    _metric(_COUNTER, _PROCESS, "ff_conflicts_total", "Transactions that collided"),
    _metric(
        *(_HISTOGRAM, _PROCESS, "ff_pool_wait_seconds", "Waits for a connection (PostgreSQL)"),
        bounds=REQUEST_S,
    ),
    # the background
    _metric(_GAUGE, _PROCESS, "ff_loop_lag_seconds", "Worst delay of the event loop in 10 s"),
    _metric(_GAUGE, _STORE, "ff_due_backlog", "Executions that are due and were not moved yet"),
    _metric(_GAUGE, _STORE, "ff_event_lag_seconds", "How far statistics are behind"),
    _metric(_GAUGE, _PROCESS, "ff_store_up", "Whether the store answered the last look: 1 or 0"),
)
