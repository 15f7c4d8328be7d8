"""The streams and logs one transaction appends to: loaded under their executions' locks."""

from __future__ import annotations

from flowfabric.engine.unit.view import View
from flowfabric.kernel.command import Needs
from flowfabric.stores.base import Found, Wanted
from flowfabric.stores.tables import RUN_LOGS, STREAMS, SUMMARIES


def want_streams(need: Needs, wanted: Wanted) -> None:
    """What appends ask of the look."""
    if need.streams:
        wanted.rows[STREAMS] = sorted(need.streams)
        wanted.rows[SUMMARIES] = sorted(need.summaries)
    if need.run_logs:
        wanted.rows[RUN_LOGS] = sorted(need.run_logs)


def take_streams(view: View, found: Found, need: Needs) -> None:
    """Every change of a stream is made under the lock of its execution, so no row of it needs a
    lock of its own."""
    if need.streams:
        view.rows.take(STREAMS, found.rows[STREAMS])
        view.rows.take(SUMMARIES, found.rows[SUMMARIES])
    if need.run_logs:
        view.rows.take(RUN_LOGS, found.rows[RUN_LOGS])
