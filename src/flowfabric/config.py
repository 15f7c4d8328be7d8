"""Every setting, in one place; the only module that reads the environment."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from flowfabric import limits
from flowfabric.errors import InvalidInput
from flowfabric.model.checks import (
    check_flag,
    check_integer,
    check_lease_ttl,
    check_list,
    check_name,
    check_tag,
    check_text,
)
from flowfabric.model.record import Record

VERSION: Final = "0.1.0"  # of this package
URL_VARIABLE: Final = "FLOWFABRIC_URL"
DEFAULT_NAMESPACE: Final = "default"
TOKEN_VARIABLE: Final = "FLOWFABRIC_TOKEN"  # noqa: S105 - the name, not a token
TOKEN_FILE_VARIABLE: Final = "FLOWFABRIC_TOKEN_FILE"  # noqa: S105
CA_VARIABLE: Final = "FLOWFABRIC_CA"
TEST_URL_VARIABLE: Final = "FLOWFABRIC_TEST_URL"
# Those of a server come beside these: `server.settings`.
VARIABLES: Final = (
    URL_VARIABLE,
    TOKEN_VARIABLE,
    TOKEN_FILE_VARIABLE,
    CA_VARIABLE,
    TEST_URL_VARIABLE,
)
DEFAULT_URL: Final = "sqlite:///flowfabric.db"


class EngineConfig(Record, frozen=True, kw_only=True):
    """The settings of an engine. Every option is here and in `docs/configuration.md`.

    >>> EngineConfig(lease_ttl_ms=10_000).namespace
    'default'
    """

    namespace: str = DEFAULT_NAMESPACE  # the tenant of calls that name none
    actor: str | None = None  # of unsafe calls that name none
    payload_bytes_max: int = limits.PAYLOAD_BYTES_DEFAULT  # input and result, each
    lease_ttl_ms: int = limits.LEASE_TTL_MS_DEFAULT  # for claims that name none
    retention_ms: int = limits.RETENTION_MS_DEFAULT  # how long finished executions are kept
    failed_retention_ms: int = limits.FAILED_RETENTION_MS_DEFAULT  # those that failed or expired
    event_retention_ms: int = limits.WORKER_EVENT_RETENTION_MS  # how long events are kept
    audit_retention_ms: int = limits.AUDIT_RETENTION_MS  # how long the audit trail is kept
    tick_retention_ms: int = limits.TICK_RETENTION_MS  # of ticks of schedules that ran
    missed_tick_retention_ms: int = limits.MISSED_TICK_RETENTION_MS  # of their other ticks
    reclaim_grace_ms: int = 0  # how long a lost lease waits for an explicit reclaim
    loops: bool = True  # run recovery, timers and retention in this process
    loop_namespaces: tuple[str, ...] = ()  # the loop moves only work of these; (): of all
    loop_tag: tuple[str, str] | None = None  # and only work with this tag
    poll_interval_ms: int = 5_000  # how long a wait relies on hints before it polls
    tails_max: int = limits.TAILS_DEFAULT  # calls that wait for frames or lines at once
    batch_max: int = 500  # commands one commit may carry
    batches_in_flight: int = 2  # commits at once (SQLite: always one writer)
    waitpoint_secret: str | None = None  # hex; None: the stored one, or a random one at first
    waitpoint_kid: str = "k1"  # the name under which waitpoint_secret is stored
    partitions: int = limits.FLOW_PARTITIONS_DEFAULT  # fixed when a database is first migrated
    synchronous: Literal["full", "normal"] = "full"  # SQLite: survive power loss, or only crashes
    pool_size: int = 6  # Postgres connections of this process, besides the listener
    statement_cache_size: int = 256  # Postgres: 0 behind PgBouncer in transaction mode
    connect_timeout_ms: int = 10_000  # Postgres: a new connection, also while the server starts
    acquire_timeout_ms: int = 30_000  # Postgres: waiting for one of pool_size connections
    statement_timeout_ms: int = 60_000  # Postgres: one statement
    lock_timeout_ms: int = 10_000  # Postgres: waiting for one lock

    def __repr__(self) -> str:
        return f"EngineConfig(namespace={self.namespace!r}, …)"  # a secret may be among the fields

    def __post_init__(self) -> None:
        check_name(self.namespace, field="namespace")
        if self.actor is not None:
            check_name(self.actor, field="actor")
        check_lease_ttl(self.lease_ttl_ms)
        most = limits.DURATION_MS_MAX
        for field, least, bound in (
            ("payload_bytes_max", 1, 1 << 30),
            ("retention_ms", 0, most),
            ("failed_retention_ms", 0, most),
            ("event_retention_ms", 0, most),
            ("audit_retention_ms", 0, most),
            ("tick_retention_ms", 0, most),
            ("missed_tick_retention_ms", 0, most),
            ("reclaim_grace_ms", 0, most),
            ("poll_interval_ms", 10, 3_600_000),
            ("tails_max", 1, 1_000_000),
            ("batch_max", 1, limits.BATCH_MAX),
            ("batches_in_flight", 1, 64),
            ("partitions", 1, 65_536),
            ("pool_size", 2, 1000),
            ("statement_cache_size", 0, 100_000),
            ("connect_timeout_ms", 1, 3_600_000),
            ("acquire_timeout_ms", 1, 3_600_000),
            ("statement_timeout_ms", 1, 86_400_000),
            ("lock_timeout_ms", 1, 86_400_000),
        ):
            check_integer(getattr(self, field), field=field, least=least, most=bound)
        check_name(self.waitpoint_kid, field="waitpoint_kid")
        check_flag(self.loops, field="loops")
        for each in check_list(self.loop_namespaces, field="loop_namespaces"):
            check_name(each, field="loop_namespaces")
        if self.loop_tag is not None:
            check_tag(self.loop_tag, field="loop_tag")
        if self.waitpoint_secret is not None:  # its value is checked when it is used
            check_text(self.waitpoint_secret, field="waitpoint_secret", max_bytes=limits.NAME_BYTES)
        if self.synchronous not in ("full", "normal"):
            raise InvalidInput("synchronous: full or normal", field="synchronous")


def config_from(value: object) -> EngineConfig:
    """The given settings, or the defaults."""
    if value is None:
        return EngineConfig()
    if not isinstance(value, EngineConfig):
        got = type(value).__name__
        raise InvalidInput(f"config: expected an EngineConfig, got {got}", field="config")
    return value


def url_from_environment() -> str | None:
    """The store's URL from FLOWFABRIC_URL, if set."""
    return os.environ.get(URL_VARIABLE) or None


def token_from_environment() -> str | None:
    """The token for a server from FLOWFABRIC_TOKEN, or the file FLOWFABRIC_TOKEN_FILE, if set."""
    if token := os.environ.get(TOKEN_VARIABLE):
        return token.strip()
    if path := os.environ.get(TOKEN_FILE_VARIABLE):
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            detail = f"{TOKEN_FILE_VARIABLE}: cannot read {path!s:.200} ({type(error).__name__})"
            raise InvalidInput(detail, field=TOKEN_FILE_VARIABLE) from None
    return None


def ca_from_environment() -> str | None:
    """The file with the authorities that a server's certificate may come from, if set."""
    return os.environ.get(CA_VARIABLE) or None


def test_url_from_environment() -> str | None:
    """The URL of a PostgreSQL server for the testing kit from FLOWFABRIC_TEST_URL, if set."""
    return os.environ.get(TEST_URL_VARIABLE) or None


def own_variables() -> dict[str, str]:
    """The variables of this process whose names begin with FLOWFABRIC_."""
    return {name: text for name, text in os.environ.items() if name.startswith("FLOWFABRIC_")}


def environment_with(**changed: str) -> dict[str, str]:
    """The environment for a child process, with some variables changed."""
    return {**os.environ, **changed}


@contextmanager
def watched_environment(changed: Collection[str] = ()) -> Iterator[set[str]]:
    """The names of the variables that this process reads while the block runs. Those that are to be
    `changed` have another value: for tests of what depends on them."""
    kind, read = type(os.environ), type(os.environ).__getitem__
    names: set[str] = set()

    def note(self: Any, name: str) -> str:
        names.add(name)
        try:
            value: str = read(self, name)
        except KeyError:
            if name not in changed:
                raise
            value = ""
        return f"{value}~" if name in changed else value

    setattr(kind, "__getitem__", note)  # noqa: B010 - a plain assignment is refused by the checker
    try:
        yield names
    finally:
        setattr(kind, "__getitem__", read)  # noqa: B010


def runtime_folder() -> Path | None:
    """XDG_RUNTIME_DIR: the folder of this user's session for sockets, if it has one."""
    named = os.environ.get("XDG_RUNTIME_DIR")
    return Path(named) if named else None


def state_folder() -> Path | None:
    """Where `ff` keeps its last listing: `$XDG_STATE_HOME`, else `~/.local/state`."""
    home = os.environ.get("XDG_STATE_HOME")
    try:
        base = Path(home) if home and Path(home).is_absolute() else Path.home() / ".local/state"
    except RuntimeError:  # a process without a home
        return None
    return base / "flowfabric"


def user_at_host() -> str:
    """The actor of a command on this machine, as far as the machine knows."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a process without a user's entry
        user = "unknown"
    return "".join(each for each in f"{user}@{socket.gethostname()}" if each.isprintable())[:256]


def environment_flag(name: str) -> bool:
    """Whether an environment variable is set to anything."""
    return bool(os.environ.get(name))
