"""What executions show, as one transaction changes it: streams, logs, what is published and which
step runs; loaded under their executions' locks."""

from __future__ import annotations

from flowfabric.engine.unit.view import View
from flowfabric.kernel.command import Needs
from flowfabric.stores.base import Found, Wanted
from flowfabric.stores.tables import (
    MAILBOXES,
    MESSAGE_KEYS,
    MESSAGES,
    PUBLISHED,
    RUN_LOGS,
    RUNNING,
    STREAMS,
    SUMMARIES,
)


def want_streams(need: Needs, wanted: Wanted) -> None:
    """What appends ask of the look."""
    if need.streams:
        wanted.rows[STREAMS] = sorted(need.streams)
        wanted.rows[SUMMARIES] = sorted(need.summaries)
    if need.run_logs:
        wanted.rows[RUN_LOGS] = sorted(need.run_logs)
    if need.published:
        wanted.rows[PUBLISHED] = sorted(need.published)
    if need.running:
        wanted.rows[RUNNING] = sorted(need.running)


def take_streams(view: View, found: Found, need: Needs) -> None:
    """Every change of a stream is made under the lock of its execution, so no row of it needs a
    lock of its own."""
    if need.streams:
        view.rows.take(STREAMS, found.rows[STREAMS])
        view.rows.take(SUMMARIES, found.rows[SUMMARIES])
    if need.run_logs:
        view.rows.take(RUN_LOGS, found.rows[RUN_LOGS])
    if need.published:
        view.rows.take(PUBLISHED, found.rows[PUBLISHED])
    if need.running:
        view.rows.take(RUNNING, found.rows[RUNNING])


def want_mail(need: Needs, wanted: Wanted) -> None:
    """What messages ask of the look."""
    for table, keys in (
        (MAILBOXES, need.mailboxes),
        (MESSAGES, need.messages),
        (MESSAGE_KEYS, need.message_keys),
    ):
        if keys:
            wanted.rows[table] = sorted(keys)


def take_mail(view: View, found: Found, need: Needs) -> None:
    """Likewise."""
    for table, keys in (
        (MAILBOXES, need.mailboxes),
        (MESSAGES, need.messages),
        (MESSAGE_KEYS, need.message_keys),
    ):
        if keys:
            view.rows.take(table, found.rows[table])
