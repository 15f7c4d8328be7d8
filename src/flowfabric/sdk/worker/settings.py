"""The settings of one worker, checked where it is made."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from flowfabric import limits
from flowfabric.errors import InvalidInput
from flowfabric.ids import new_name
from flowfabric.metrics.listener import host_and_port
from flowfabric.model.checks import (
    check_capabilities,
    check_integer,
    check_lane,
    check_lease_ttl,
    check_list,
    check_name,
    check_text,
)
from flowfabric.model.shown import shown
from flowfabric.sdk.durations import Duration, to_ms
from flowfabric.sdk.task import Task

# Handlers at once, unless the worker is given a number. More share a commit better, but no other
# worker can run what this one has claimed; and each handler of a sync task needs a thread.
CONCURRENCY: Final = 200
CONCURRENCY_WITH_THREADS: Final = 100
WARM: Final = 1_000  # waiting handlers that are kept in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The arguments of `Worker`, in the engine's units."""

    worker_id: str
    instance_id: str
    host: str
    namespaces: tuple[str, ...] | None  # None: the fabric's own
    lanes: tuple[str, ...]
    kinds: tuple[str, ...]
    capabilities: tuple[str, ...]
    concurrency: int
    lease_ttl_ms: int
    poll_interval_ms: int
    drain_timeout_s: float
    warm: int
    metrics: str | None = None  # where it answers scrapes


def read_settings(
    tasks: Mapping[str, Task[..., Any]],
    *,
    listens: bool = False,
    namespaces: Iterable[str] | None,
    lanes: Iterable[str] | None,
    concurrency: int | None,
    capabilities: Iterable[str],
    worker_id: str | None,
    lease_ttl: Duration,
    poll_interval: Duration,
    drain_timeout: Duration,
    warm: int,
    metrics: str | None = None,
) -> Settings:
    """Checked settings; without lanes or a concurrency, those that suit the tasks. `listens`: there
    are handlers of events, which are enough to do."""
    if not (tasks or listens):
        raise InvalidInput("tasks: the fabric has no task to run", field="tasks")
    if isinstance(lanes, str):
        raise InvalidInput(f"lanes: write [{shown(lanes)}]", field="lanes")
    served = [task.lane for task in tasks.values()] if lanes is None else lanes
    chosen = {check_lane(lane, field="lanes") for lane in check_list(served, field="lanes")}
    if not chosen and tasks:
        raise InvalidInput("lanes: give at least one", field="lanes")
    if concurrency is None:
        is_async = all(task.is_async for task in tasks.values())
        concurrency = CONCURRENCY if is_async else CONCURRENCY_WITH_THREADS
    host = socket.gethostname() or "worker"
    name = check_name(worker_id or host, field="worker_id")
    return Settings(
        worker_id=name,
        instance_id=new_name(name[:200]),
        host=host[: limits.NAME_BYTES],
        namespaces=_namespaces(namespaces),
        lanes=tuple(sorted(chosen)),
        kinds=tuple(sorted(tasks)),
        capabilities=_offered(tasks, capabilities),
        concurrency=check_integer(
            concurrency, field="concurrency", least=1, most=limits.HANDLERS_MAX
        ),
        lease_ttl_ms=check_lease_ttl(to_ms(lease_ttl, field="lease_ttl"), field="lease_ttl"),
        poll_interval_ms=max(1, to_ms(poll_interval, field="poll_interval")),
        drain_timeout_s=to_ms(drain_timeout, field="drain_timeout") / 1000,
        warm=check_integer(warm, field="warm", least=0, most=100_000),
        metrics=_address(metrics),
    )


def _address(metrics: str | None) -> str | None:
    if metrics is not None:
        host_and_port(check_text(metrics, field="metrics", max_bytes=256))
    return metrics


def _offered(tasks: Mapping[str, Task[..., Any]], capabilities: Iterable[str]) -> tuple[str, ...]:
    """What the worker is given, and the versions that its tasks are and accept."""
    given = check_capabilities(capabilities, field="capabilities")
    versions = [each for task in tasks.values() for each in task.code.offers]
    return check_capabilities((*given, *versions), field="capabilities") if versions else given


def _namespaces(namespaces: Iterable[str] | None) -> tuple[str, ...] | None:
    if namespaces is None:
        return None
    if isinstance(namespaces, str):
        raise InvalidInput(f"namespaces: write [{shown(namespaces)}]", field="namespaces")
    named = check_list(namespaces, field="namespaces")
    chosen = tuple(sorted({check_name(each, field="namespaces") for each in named}))
    if not chosen:
        raise InvalidInput("namespaces: give at least one", field="namespaces")
    return chosen
