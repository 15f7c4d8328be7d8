"""A worker's log lines: a text for people, and the same as fields for machines.

Every line here has an `event`, and every event always the same fields: they are attributes of the
log record, so that any formatter may use them. A line below the log's level costs one comparison.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from flowfabric.clock import monotonic
from flowfabric.model.shown import mask
from flowfabric.model.telling import headline
from flowfabric.sdk.durations import span
from flowfabric.sdk.worker.held import Held
from flowfabric.sdk.worker.settings import Settings

_LOGGER = logging.getLogger("flowfabric.worker")
_REASON_MAX: Final = 300  # characters of a line; `ff show` has the whole
_NAMES_MAX: Final = 20  # tasks and lanes that a line names

# The attributes of every line about an execution, and those the event adds.
EXECUTION_FIELDS: Final = ("execution_id", "kind", "lane", "namespace", "attempt", "duration_ms")
EVENTS: Final = {
    "worker_started": (
        *("worker_id", "worker_instance_id", "store", "namespaces", "lanes", "kinds"),
        *("capabilities", "concurrency", "lease_ttl_ms"),
    ),
    "worker_measured": ("address",),
    "worker_draining": ("worker_instance_id", "running"),
    "worker_asked_to_end": ("worker_instance_id",),
    "worker_stopped": ("worker_instance_id",),
    "completed": EXECUTION_FIELDS,
    "retrying": (*EXECUTION_FIELDS, "reason", "next_try_in_ms"),
    "failed": (*EXECUTION_FIELDS, "reason"),
    "parked": (*EXECUTION_FIELDS, "next_try_in_ms"),
    "suspended": EXECUTION_FIELDS,
    "waits_for_children": EXECUTION_FIELDS,
    "given_back": EXECUTION_FIELDS,
    "stopped": (*EXECUTION_FIELDS, "reason"),
    "report_refused": (*EXECUTION_FIELDS, "reason"),
}


# --- the worker --------------------------------------------------------------------------------


def started(settings: Settings, url: str, namespace: str) -> None:
    """Its name and settings, before it connects: a connection may take long."""
    if not _LOGGER.isEnabledFor(logging.INFO):
        return
    tenants = settings.namespaces or (namespace,)
    facts: dict[str, Any] = {
        "worker_id": settings.worker_id,
        "worker_instance_id": settings.instance_id,
        "store": mask(url),
        "namespaces": list(tenants),
        "lanes": list(settings.lanes),
        "kinds": list(settings.kinds),
        "capabilities": list(settings.capabilities),
        "concurrency": settings.concurrency,
        "lease_ttl_ms": settings.lease_ttl_ms,
    }
    parts = [
        f"lanes {_named(settings.lanes)}",
        f"tasks {_named(settings.kinds)}",
        *([f"offers {_named(settings.capabilities)}"] if settings.capabilities else []),
        *([f"tenants {_named(tenants)}"] if settings.namespaces else []),
        f"{settings.concurrency} at once",
        f"lease {span(settings.lease_ttl_ms)}",
    ]
    text = f"worker {settings.instance_id} starts on {mask(url)}: {'; '.join(parts)}"
    _LOGGER.info("%s", text, extra={"event": "worker_started", **facts})


def measured(address: str) -> None:
    """Where it answers scrapes."""
    extra = {"event": "worker_measured", "address": address}
    _LOGGER.info("metrics at http://%s/metrics", address, extra=extra)


def draining(settings: Settings, running: int) -> None:
    """It claims no more; running handlers may finish."""
    extra = {"event": "worker_draining", "worker_instance_id": settings.instance_id}
    wait = span(round(settings.drain_timeout_s * 1000))
    text = "draining: %d still running, they have %s to finish"
    _LOGGER.info(text, running, wait, extra={**extra, "running": running})


def asked_to_end(settings: Settings) -> None:
    """An operator drains it."""
    extra = {"event": "worker_asked_to_end", "worker_instance_id": settings.instance_id}
    _LOGGER.info("worker %s is asked to end", settings.instance_id, extra=extra)


def stopped(settings: Settings) -> None:
    """The last line."""
    extra = {"event": "worker_stopped", "worker_instance_id": settings.instance_id}
    _LOGGER.info("worker %s stopped", settings.instance_id, extra=extra)


def about_attempt() -> dict[str, object]:
    """What a line of a handler, or of a library that it calls, belongs to."""
    held = Held.current.get()
    if held is None:
        return {}
    claimed = held.claimed
    return {
        "execution_id": claimed.execution_id,
        "kind": claimed.execution_kind,
        "attempt": claimed.attempt_index + 1,
    }


# --- its executions ----------------------------------------------------------------------------


def tells_all() -> bool:
    """Whether lines about successes are wanted."""
    return _LOGGER.isEnabledFor(logging.INFO)


def completed(held: Held) -> None:
    """The success is recorded."""
    if tells_all():
        _tell(logging.INFO, "completed", held, f"completed in {_lasted(held)}")


def retrying(held: Held, reason: str, in_ms: int) -> None:
    """The attempt failed, another follows."""
    if _LOGGER.isEnabledFor(logging.INFO):
        what = f"failed after {_lasted(held)}: {_line(reason)}; next try in {span(in_ms)}"
        _tell(logging.INFO, "retrying", held, what, reason=_line(reason), next_try_in_ms=in_ms)


def failed(held: Held, reason: str) -> None:
    """The attempt failed and was the last."""
    if _LOGGER.isEnabledFor(logging.WARNING):
        what = f"failed after {_lasted(held)}: {_line(reason)}; there is no further try"
        _tell(logging.WARNING, "failed", held, what, reason=_line(reason))


def parked(held: Held, in_ms: int) -> None:
    """The handler asked to go on later."""
    if _LOGGER.isEnabledFor(logging.INFO):
        what = f"parked after {_lasted(held)}, goes on in {span(in_ms)}"
        _tell(logging.INFO, "parked", held, what, next_try_in_ms=in_ms)


def given_back(held: Held) -> None:
    """This worker stops, another goes on."""
    if _LOGGER.isEnabledFor(logging.INFO):
        what = f"given back after {_lasted(held)}, because the worker stops"
        _tell(logging.INFO, "given_back", held, what)


def suspended(held: Held) -> None:
    """It waits outside any worker."""
    if _LOGGER.isEnabledFor(logging.INFO):
        _tell(logging.INFO, "suspended", held, f"suspended after {_lasted(held)}")


def waits_for_children(held: Held) -> None:
    """It waits outside any worker, for its children."""
    if _LOGGER.isEnabledFor(logging.INFO):
        what = f"waits for its children after {_lasted(held)}"
        _tell(logging.INFO, "waits_for_children", held, what)


def continued(held: Held) -> None:
    """It goes on in another chapter, with any worker."""
    if _LOGGER.isEnabledFor(logging.INFO):
        _tell(logging.INFO, "continued", held, f"continues as new after {_lasted(held)}")


def lost(held: Held, why: str) -> None:
    """The lease is gone and the handler is stopped."""
    if _LOGGER.isEnabledFor(logging.WARNING):
        what = f"stopped after {_lasted(held)}: {_line(why)}"
        _tell(logging.WARNING, "stopped", held, what, reason=_line(why))


def refused(held: Held, error: Exception, *, is_ours: bool) -> None:
    """The outcome could not be recorded; with a traceback if that is our own fault."""
    why = _line(str(error) or type(error).__name__)
    what = f"ended after {_lasted(held)}, but the report was refused: {why}"
    level = logging.ERROR if is_ours else logging.WARNING
    _tell(level, "report_refused", held, what, error if is_ours else None, reason=why)


def name_of(held: Held) -> str:
    """The kind, and the end of the id: `ff show` finds an execution by it."""
    return f"{held.claimed.execution_kind} {held.claimed.execution_id[-8:]}"


def _tell(
    level: int, event: str, held: Held, what: str, error: Exception | None = None, **more: Any
) -> None:
    claimed = held.claimed
    attempt = claimed.attempt_index + 1
    extra = {
        "event": event,
        "execution_id": claimed.execution_id,
        "kind": claimed.execution_kind,
        "lane": claimed.lane_id,
        "namespace": claimed.namespace,
        "attempt": attempt,
        "duration_ms": _duration_ms(held),
        **more,
    }
    text = "%s: attempt %d%s %s"
    _LOGGER.log(
        level,
        text,
        name_of(held),
        attempt,
        _of_how_many(held, attempt),
        what,
        extra=extra,
        exc_info=error,
    )


def _of_how_many(held: Held, attempt: int) -> str:
    """How many the task allows; attempts after a lost worker do not count, so it may have more."""
    retries = held.task.policy.retry_policy
    most = 1 if retries is None else retries.max_retries + 1
    return f" of {most}" if attempt <= most and most > 1 else ""


def _duration_ms(held: Held) -> int:
    if held.began_at is None:
        return 0
    return round(((held.ended_at or monotonic()) - held.began_at) * 1000)


def _lasted(held: Held) -> str:
    return span(_duration_ms(held))


def _line(reason: str) -> str:
    """The first line, without control characters for a terminal."""
    text = headline(reason)[:_REASON_MAX]
    return "".join(each if each.isprintable() else "�" for each in text)


def _named(names: tuple[str, ...]) -> str:
    more = len(names) - _NAMES_MAX
    return ", ".join(names[:_NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
