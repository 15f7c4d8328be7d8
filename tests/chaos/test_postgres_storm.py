"""A storm over one PostgreSQL server: statements are cancelled and run out of time, connections are
terminated, the server is read-only or killed, all at random, while workers spend, wait and spawn.

FF_STORM_S=60 at night (`bin/soak`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from flowfabric.clock import monotonic
from tests.chaos.mortal import MortalServer, mortal_server
from tests.chaos.processes import Crew, crew
from tests.chaos.storm import STATEMENT_S
from tests.chaos.weather import Weather, storm_over

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
CANCELS = 30  # in one fault: most statements are over before they can be hit


@pytest.fixture
def server() -> Iterator[MortalServer]:
    with mortal_server() as mortal:
        yield mortal


class ServerWeather(Weather):
    """What happens to a server and its connections."""

    def __init__(self, server: MortalServer, workers: Crew) -> None:
        super().__init__(workers)
        self._server = server

    def faults(self) -> list[Callable[[], None]]:
        own = [self.cancel, self.terminate, self.read_only, self.out_of_time, self.server_dies]
        return [*super().faults(), *own]

    def _operator(self) -> psycopg.Connection:
        return psycopg.connect(self._server.url, autocommit=True)

    def cancel(self) -> None:
        """pg_cancel_backend, wherever a statement runs."""
        with self._operator() as operator:
            for _ in range(CANCELS):
                operator.execute(f"SELECT pg_cancel_backend(pid) {OTHERS} AND state <> 'idle'")
                self._workers.listen(0.01)

    def terminate(self) -> None:
        """Every connection, idle and listening ones too."""
        with self._operator() as operator:
            operator.execute(f"SELECT pg_terminate_backend(pid) {OTHERS}")

    def read_only(self) -> None:
        """As a standby is before it is promoted; sessions notice with their next transaction."""
        with self._operator() as operator:
            operator.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            operator.execute("SELECT pg_reload_conf()")
            self.last()
            operator.execute("SET default_transaction_read_only = off")
            operator.execute("ALTER SYSTEM RESET default_transaction_read_only")
            operator.execute("SELECT pg_reload_conf()")

    def out_of_time(self) -> None:
        """A lock that is held longer than a statement may take."""
        with self._operator() as operator:
            operator.execute("BEGIN; LOCK TABLE ff_exec_core IN EXCLUSIVE MODE")
            until = monotonic() + 2 * STATEMENT_S
            while monotonic() < until:
                self._workers.listen(0.1)
            operator.execute("ROLLBACK")

    def server_dies(self) -> None:
        """kill -9 of all its processes, then recovery from its log."""
        self._server.kill()
        self.last()
        self._server.start()


def test_a_storm_over_one_server_fails_nothing(server: MortalServer) -> None:
    with crew(server.url) as workers:
        storm_over(server.url, workers, ServerWeather(server, workers))
