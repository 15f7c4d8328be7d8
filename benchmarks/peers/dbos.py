"""DBOS on PostgreSQL: one process drains a queue of no-op workflows.

Measured: the process is launched and its queue thread idle; then n workflows become visible at
once, enqueued in one transaction whose commit starts the clock. It stops when every workflow is
SUCCESS in the database. The queue is polled every `POLL_S` (default of DBOS: 1 s).

What it keeps: input, result and status of each workflow. What it does not keep: no lease; a dead
executor's workflows are recovered by executor id on restart, not by expiry; no event log.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchmarks.peers.common import (
    Peer,
    PeerResult,
    check_count,
    count_rows,
    drained,
    fresh_database,
    main,
    timed,
    wait_until,
)

if TYPE_CHECKING:
    from dbos import DBOSConfig

POLL_S = 0.02
LATENCY_POLL_S = 0.005
LIMIT_S = 120.0
QUEUE = "noop_queue"
NOTE = "keeps input, result and status; no lease or event"
SUCCESS = "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'"


def drain(url_or_path: str, n: int) -> PeerResult:
    from dbos import DBOS

    handled: list[None] = []

    @DBOS.workflow(name="noop")
    def noop() -> int:
        handled.append(None)
        return 1

    with fresh_database(url_or_path, "dbos") as url, _launched(url):
        started = _enqueue(url, n)
        wait_until(lambda: len(handled) >= n, limit_s=LIMIT_S, what=f"{n} DBOS workflows")
        wait_until(lambda: count_rows(url, SUCCESS) >= n, limit_s=10, what="DBOS outcomes stored")
        seconds = time.perf_counter() - started
        check_count("DBOS handlers run", len(handled), n)
        check_count("DBOS workflows in SUCCESS", count_rows(url, SUCCESS), n)
    return drained("dbos", "postgres", n, seconds, setting=f"queue poll {POLL_S} s", note=NOTE)


def latency(url_or_path: str, n: int) -> PeerResult:
    """Enqueue one workflow from the launched process and block for its result."""
    from dbos import DBOS

    @DBOS.workflow(name="noop")
    def noop() -> int:
        return 1

    laps: list[float] = []
    with fresh_database(url_or_path, "dbos") as url, _launched(url, LATENCY_POLL_S):
        for _ in range(n):
            started = time.perf_counter()
            DBOS.enqueue_workflow(QUEUE, noop).get_result(polling_interval_sec=0.001)
            laps.append(time.perf_counter() - started)
            time.sleep(0.01)
    setting = f"queue poll {LATENCY_POLL_S} s (default 1 s), result poll 1 ms, same process"
    return timed("dbos", "postgres", laps, setting=setting, note=NOTE)


@contextmanager
def _launched(url: str, poll_s: float = POLL_S) -> Iterator[None]:
    """A launched DBOS process whose thread for `QUEUE` is up."""
    from dbos import DBOS

    config: DBOSConfig = {
        "name": "peer",
        "system_database_url": url,
        "application_version": "peer",
        "log_level": "ERROR",
    }
    DBOS(config=config)
    DBOS.launch()
    DBOS.register_queue(QUEUE, polling_interval_sec=poll_s)
    try:
        time.sleep(1.5)
        yield
    finally:
        DBOS.destroy(destroy_registry=True)


def _enqueue(url: str, n: int) -> float:
    """Enqueue n workflows in one transaction; returns when (perf_counter) it was committed."""
    import sqlalchemy
    from dbos import DBOSClient

    client = DBOSClient(system_database_url=url)
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    try:
        with engine.connect() as connection:
            for _ in range(n):
                client.enqueue_in_transaction(
                    connection,
                    {"workflow_name": "noop", "queue_name": QUEUE, "app_version": "peer"},
                )
            connection.commit()
            return time.perf_counter()
    finally:
        engine.dispose()
        client.destroy()


PEER = Peer("dbos", "postgres", 1_000, drain, latency)

if __name__ == "__main__":
    main(PEER)
