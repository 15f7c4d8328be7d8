"""Workers: which are there, what they offer, how busy they are, and what none of them offers."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from flowfabric.model.gauges import Gauges
from flowfabric.model.record import Record
from flowfabric.model.worker import Worker
from flowfabric.server.ui.views.lanes import counted

PATH = "/ui/workers"


class WorkerLine(Record, frozen=True, kw_only=True):
    """One live worker. What its client did not tell is none."""

    instance: str
    path: str  # of its forms
    name: str
    namespace: str
    state: str
    host: str | None
    version: str | None
    lanes: tuple[str, ...]
    kinds: tuple[str, ...] | None
    capabilities: tuple[str, ...]
    busy: int | None
    slots: int | None
    heard_at: int
    registered_at: int

    @property
    def share(self) -> int:
        """How much of its room is taken, in percent."""
        return min(100, 100 * (self.busy or 0) // self.slots) if self.slots else 0


class Lack(Record, frozen=True, kw_only=True):
    """What executions need and no live worker offers."""

    capability: str
    count: str


class Workers(Record, frozen=True, kw_only=True):
    """The page."""

    title: str = "Workers"
    rows: tuple[WorkerLine, ...]
    lacking: tuple[Lack, ...]
    next: str | None

    @property
    def sentence(self) -> str:
        """How many there are, and how busy."""
        many = f"{len(self.rows)}{'+' * (self.next is not None)} live"
        slots = sum(each.slots or 0 for each in self.rows)
        busy = sum(each.busy or 0 for each in self.rows)
        return f"{many}, {busy} of {slots} places taken" if slots else many


def workers_of(found: Iterable[Worker], gauges: Gauges | None, *, next_page: str | None) -> Workers:
    """The page of the live workers."""
    unroutable = {} if gauges is None else gauges.unroutable
    return Workers(
        rows=tuple(map(_line, found)),
        lacking=tuple(
            Lack(capability=name, count=counted(count))
            for name, count in sorted(unroutable.items(), key=lambda pair: (-pair[1], pair[0]))
        ),
        next=next_page,
    )


def _line(worker: Worker) -> WorkerLine:
    return WorkerLine(
        instance=worker.worker_instance_id,
        path=f"{PATH}/{quote(worker.worker_instance_id, safe='')}",
        name=worker.worker_id,
        namespace=worker.namespace,
        state="draining" if worker.draining else "active",
        host=worker.host,
        version=worker.version,
        lanes=worker.lanes,
        kinds=worker.kinds,
        capabilities=worker.capabilities,
        busy=worker.busy,
        slots=worker.concurrency,
        heard_at=worker.last_heartbeat_at,
        registered_at=worker.registered_at,
    )
