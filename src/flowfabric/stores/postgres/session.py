"""Connecting to the server, and the settings under which statements run."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final
from urllib.parse import urlsplit

import asyncpg

from flowfabric.clock import stopwatch
from flowfabric.config import EngineConfig
from flowfabric.errors import InvalidInput
from flowfabric.ids import jitter
from flowfabric.stores.postgres.faults import is_not_ready

_HOST: Final = re.compile(r"(\[[^\[\]]+\]|[^:\[\]]*)(:(?P<port>\d{0,6}))?")
_PORT_MAX: Final = 65_535
NOT_READY_PAUSE_S: Final = 0.2
ANSWER_S: Final = 5.0  # longer than a statement may take, for a server that does not answer at all
# Every hot statement reads by key or along an index. Before a new table has statistics the planner
# may prefer to collect and sort all waiting rows, or keep a plan that reads a whole table because
# it was small once; these settings forbid that. A table without an index is still read as a whole.
PLANNER: Final = {"enable_bitmapscan": "off", "enable_sort": "off", "enable_seqscan": "off"}


class Session:
    """The settings of one engine. A connection shared with others, through PgBouncer or a pool of
    the program's own, cannot keep them: it gets them with each transaction."""

    def __init__(self, config: EngineConfig, *, has_pool: bool = False) -> None:
        self._config = config
        self._is_pooled = config.statement_cache_size == 0  # by PgBouncer
        self.is_shared = self._is_pooled or has_pool
        self.begin = _begin_with(self.settings) if self.is_shared else "BEGIN"

    @property
    def settings(self) -> dict[str, str]:
        """The settings of statements."""
        return {
            "statement_timeout": str(self._config.statement_timeout_ms),
            "lock_timeout": str(self._config.lock_timeout_ms),
            "idle_in_transaction_session_timeout": "60s",
            **PLANNER,
        }

    async def connect(self, url: str) -> Any:
        """A new connection. A server that is starting, stopping or full is asked again until the
        connection timeout."""
        deadline = stopwatch() + self._config.connect_timeout_ms / 1000
        while True:
            try:
                return await self._connect(url, deadline - stopwatch())
            except asyncpg.PostgresError as error:
                pause_s = NOT_READY_PAUSE_S * (0.5 + jitter())
                if not is_not_ready(error) or stopwatch() + pause_s >= deadline:
                    raise
                await asyncio.sleep(pause_s)

    async def _connect(self, url: str, timeout_s: float) -> Any:
        own = {} if self._is_pooled else {"application_name": "flowfabric", **self.settings}
        try:
            return await asyncpg.connect(
                url,
                timeout=timeout_s,
                command_timeout=self._config.statement_timeout_ms / 1000 + ANSWER_S,
                statement_cache_size=self._config.statement_cache_size,
                server_settings=own,
            )
        except OSError:
            raise  # a certificate that is refused is a ValueError as well
        except (ValueError, OverflowError):  # its text may quote the URL, and with it the password
            raise unreadable_url() from None


def check_url(url: str) -> str:
    """A URL with its parts in their places. A password with an unescaped / or # would spill into
    the port, the database or a parameter, and be shown."""
    try:
        parts = urlsplit(url)
    except ValueError:  # a [ or ] in the wrong place
        raise unreadable_url() from None
    login, _, addresses = parts.netloc.rpartition("@")
    hosts = [_HOST.fullmatch(address) for address in addresses.split(",")]  # there may be several
    parameters = parts.query.split("&") if parts.query else []
    if (
        not all(hosts)
        or "@" in login
        or "@" in parts.path
        or parts.fragment
        or not all("=" in each for each in parameters)
    ):
        raise unreadable_url()
    if any(int(host["port"] or 0) > _PORT_MAX for host in hosts if host):
        raise InvalidInput(f"url: a port is above {_PORT_MAX}", field="url")
    return url


def unreadable_url() -> InvalidInput:
    """The error for a URL that cannot be parsed; not repeated, for the password in it."""
    return InvalidInput(
        "url: cannot be read; a password with any of / @ # ? [ ] % has to be percent-encoded "
        "(urllib.parse.quote(password, safe=''))",
        field="url",
    )


def _begin_with(settings: dict[str, str]) -> str:
    """One trip: the transaction, and the settings that end with it."""
    return "; ".join(
        ["BEGIN", *(f"SET LOCAL {name} = '{value}'" for name, value in settings.items())]
    )
