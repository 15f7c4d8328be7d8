"""Many clients of one server at once: idle workers, readers of a feed, and hours in small."""

from __future__ import annotations

import asyncio
import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import Any

from flowfabric.api.backend import EngineBackend
from flowfabric.assemble import open_backend
from flowfabric.bench.databases import Databases
from flowfabric.bench.measurement import MeasurementFailed, check_count, percentile
from flowfabric.bench.served import Served, served_process
from flowfabric.bench.workload import new_execution
from flowfabric.clock import SystemClock, monotonic
from flowfabric.errors import Overloaded
from flowfabric.ids import jitter
from flowfabric.model.record import to_json

WORKERS = 1_000
WORKERS_S = 30.0  # longer than a poll, so that each is asked again
READERS = 2_000
EVENTS_PER_S = 100
READERS_S = 10.0
MEMORY_S = 150.0  # what is remembered on purpose is full after two thirds of it
_MEMORY_BATCH = 50
_PATIENCE_S = 30.0
_SOME = 50  # readers whose latencies are taken
_CLK = os.sysconf("SC_CLK_TCK")


def idle_workers(databases: Databases, n: int = WORKERS, seconds: float = WORKERS_S) -> Any:
    """What workers cost that wait for work: commits and reads of the store, memory, processor."""
    _raise_limit(2 * n + 100)
    with databases.empty() as url, served_process(url) as server:
        return asyncio.run(_idle(server, n, seconds))


def event_readers(databases: Databases, n: int = READERS, seconds: float = READERS_S) -> Any:
    """How late events are at many readers of the feed, and whether each gets each."""
    _raise_limit(2 * n + 100)
    with databases.empty() as url, served_process(url) as server:
        return asyncio.run(_read(server, n, seconds))


def memory(databases: Databases, seconds: float = MEMORY_S) -> Any:
    """How much a server grows in the last third of a while of submits and cancels."""
    with databases.empty() as url, served_process(url) as server:
        return asyncio.run(_used(server, seconds))


def _raise_limit(files: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < files:
        raise MeasurementFailed(f"{files} open files are needed, and {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, files), hard))


def _resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _CLK


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix("http://").rpartition(":")
    return host, int(port)


async def _sum(address: str, name: str) -> float:
    """A metric over all its labels."""
    reader, writer = await asyncio.open_connection(*_place(address))
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    lines = (each for each in text.splitlines() if each.startswith((f"{name}{{", f"{name} ")))
    return sum(float(each.rpartition(" ")[2]) for each in lines)


# --- workers --------------------------------------------------------------------------------------


async def _idle(server: Served, n: int, seconds: float) -> dict[str, Any]:
    before = _resident(server.pid)
    waiting = [asyncio.create_task(_wait(server.address, number)) for number in range(n)]
    try:
        while await _sum(server.address, "ff_http_waits") < n:
            if any(each.done() for each in waiting):
                raise MeasurementFailed("a waiting worker was sent away")
            await asyncio.sleep(0.2)
        asked, used, began = await _asked(server), _processor_s(server.pid), monotonic()
        await asyncio.sleep(seconds)
        length = monotonic() - began
        return {
            "workers": n,
            "store_calls_per_s": round((await _asked(server) - asked) / length, 1),
            "memory_mib": round((_resident(server.pid) - before) / (1 << 20), 1),
            "cores": round((_processor_s(server.pid) - used) / length, 3),
        }
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _asked(server: Served) -> float:
    return await _sum(server.address, "ff_store_seconds_count")


async def _wait(address: str, number: int) -> None:
    """One worker, which asks again when its wait is over."""
    reader, writer = await asyncio.open_connection(*_place(address))
    try:
        while True:
            body = to_json(
                {
                    "worker_id": f"idle-{number}",
                    "worker_instance_id": f"idle-{number}",
                    "lanes": ["idle"],
                    "limit": 1,
                    "wait_ms": 20_000,
                }
            )
            writer.write(
                b"POST /v1/workers/claim HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (len(body), body)
            )
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(x for x in head.lower().split(b"\r\n") if x.startswith(b"content-length"))
            await reader.readexactly(int(length.partition(b":")[2]))
            status = int(head.split()[1])
            if status == Overloaded.status:  # a thousand have come at once
                await asyncio.sleep(1 + jitter())
            else:
                check_count("status", status, 200)
    finally:
        writer.close()


# --- readers --------------------------------------------------------------------------------------


class _Reader(asyncio.Protocol):
    """Counts events, and takes the time of some."""

    def __init__(self, delays: list[float] | None) -> None:
        self.events = 0
        self.begun = False
        self._rest = b""
        self._delays = delays

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for what happens from now on."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - it is a socket
        transport.write(
            b"GET /v1/events?kinds=completion&after=now HTTP/1.1\r\nHost: localhost\r\n"
            b"Accept: text/event-stream\r\n\r\n"
        )

    def data_received(self, data: bytes) -> None:
        """Some events."""
        self.begun = True
        text = self._rest + data
        self.events += text.count(b"\ndata: ")
        self._rest = text[-6:] if b"\ndata: " not in text[-6:] else b""
        if self._delays is not None:
            now = SystemClock().now_ms()
            for part in text.split(b'"occurred_at":')[1:]:
                with suppress(ValueError):
                    self._delays.append(now - int(part.partition(b",")[0].rstrip(b"}")))


async def _read(server: Served, n: int, seconds: float) -> dict[str, Any]:
    loop, delays = asyncio.get_running_loop(), list[float]()
    pairs = [
        await loop.create_connection(
            lambda number=number: _Reader(delays if number < _SOME else None),  # type: ignore[misc]
            *_place(server.address),
        )
        for number in range(n)
    ]
    readers: list[_Reader] = [each for _, each in pairs]
    engine = open_backend(server.address)
    await engine.start()
    try:
        while await _sum(server.address, "ff_http_streams") < n:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.2)
        await asyncio.sleep(1)
        used, began = _processor_s(server.pid), monotonic()
        count = await _happened(engine, seconds)
        length = monotonic() - began
        await _all_got(readers, count)
        for each in readers:
            check_count("events of a reader", each.events, count)
        return {
            "readers": n,
            "events": count,
            "events_per_s": round(count / length, 1),
            "p50_ms": percentile(delays, 50) if delays else None,
            "p99_ms": percentile(delays, 99) if delays else None,
            "cores": round((_processor_s(server.pid) - used) / length, 2),
        }
    finally:
        for transport, _ in pairs:
            transport.close()
        await engine.close()


async def _all_got(readers: list[_Reader], count: int) -> None:
    """Return when each has so many events, or none of them comes any more."""
    until = monotonic() + _PATIENCE_S
    for each in readers:
        while each.events < count and monotonic() < until:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.05)


async def _happened(engine: EngineBackend, seconds: float) -> int:
    """Executions that end, ten at a time, at an even pace."""
    each, count = EVENTS_PER_S // 10, 0
    began = monotonic()
    while monotonic() - began < seconds:
        try:
            await _ended(engine, each)
        except Overloaded:  # new work is refused while the event loop lags
            continue
        count += each
        await asyncio.sleep(max(0.0, began + count / EVENTS_PER_S - monotonic()))
    return count


async def _ended(engine: EngineBackend, count: int) -> None:
    made: Any = await engine.create_executions([new_execution() for _ in range(count)])
    cancels = (
        engine.cancel_execution(
            execution_id=each.execution_id, reason="measured", source="operator_override"
        )
        for each in made
    )
    await asyncio.gather(*cancels)


# --- memory ---------------------------------------------------------------------------------------


async def _used(server: Served, seconds: float) -> dict[str, Any]:
    engine = open_backend(server.address)
    await engine.start()
    try:
        began, count = monotonic(), 0
        first, is_taken = _resident(server.pid), False
        while (length := monotonic() - began) < seconds:
            if not is_taken and length > seconds * 2 / 3:
                first, is_taken = _resident(server.pid), True
            await _ended(engine, _MEMORY_BATCH)
            count += _MEMORY_BATCH
            await asyncio.sleep((monotonic() - began) - length)  # as long as it worked: half load
        last = _resident(server.pid)
        return {
            "seconds": seconds,
            "executions": count,
            "first_mib": round(first / (1 << 20), 1),
            "last_mib": round(last / (1 << 20), 1),
            "growth_percent": round(100 * (last - first) / first, 1),
        }
    finally:
        await engine.close()
