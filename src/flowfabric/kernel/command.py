"""Commands: the decisions that can be asked for, the rows each needs, and its reply."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from flowfabric.model.record import Record

R_co = TypeVar("R_co", covariant=True)
Key = tuple[str, ...]  # of a row in its table


class Needs:
    """The rows a batch loads before its first command is decided. Each command adds its part, so
    that everything is loaded in one trip per kind and locked in one order."""

    __slots__ = (
        "admissions",
        "allowances",
        "budgets",
        "catalog",
        "claims",
        "dedups",
        "executions",
        "families",
        "flows",
        "flows_of",
        "gates",
        "holds",
        "is_limited",
        "keys",
        "ledgers",
        "mailboxes",
        "members_of",
        "message_keys",
        "messages",
        "policies",
        "published",
        "run_logs",
        "running",
        "signal_keys",
        "signals",
        "streams",
        "summaries",
        "suspend_keys",
        "uniques",
        "waitpoints",
        "waits",
    )

    def __init__(self) -> None:
        self.catalog = False  # lanes, routes and scopes
        self.claims: dict[Hashable, int] = {}  # how many executions equal offers claim
        self.executions: set[str] = set()
        self.keys: set[tuple[str, str]] = set()  # idempotency keys, by namespace
        self.uniques: set[tuple[str, str, str]] = set()  # unique keys, by namespace and kind
        # Flows
        self.flows: set[str] = set()  # to be locked
        self.flows_of: set[str] = set()  # executions with a flow to be locked
        self.families: set[str] = set()  # executions that may start a flow with their children
        self.members_of: set[str] = set()  # flows with all their members needed
        # Waits
        self.waits = False  # signing keys, and the open suspensions of the executions
        self.waitpoints: set[Key] = set()
        self.signals: set[Key] = set()
        self.signal_keys: set[Key] = set()
        self.suspend_keys: set[Key] = set()
        # Streams and logs, by execution and attempt
        self.streams: set[tuple[str, int]] = set()
        self.summaries: set[tuple[str, int]] = set()
        self.run_logs: set[tuple[str, int]] = set()
        self.published: set[Key] = set()
        self.running: set[Key] = set()
        # Mailboxes
        self.mailboxes: set[Key] = set()
        self.messages: set[tuple[str, str, int]] = set()
        self.message_keys: set[Key] = set()
        # Limits
        self.is_limited = False
        self.budgets: set[str] = set()
        self.ledgers: set[Key] = set()
        self.dedups: set[Key] = set()
        self.holds: set[Key] = set()
        self.allowances: set[Key] = set()  # by execution and budget, of budgets that ask
        self.policies: set[Key] = set()
        self.gates: set[Key] = set()
        self.admissions: set[Key] = set()


class Command(Record, Generic[R_co], frozen=True, kw_only=True):
    """A decision to be made inside a transaction; R_co is the reply unless it is refused."""

    actor: str = ""  # recorded with the operator events of the decision

    def needs(self, need: Needs) -> None:
        """Add the rows to load before this is decided."""


class ExecutionCommand(Command[R_co], Generic[R_co], frozen=True, kw_only=True):
    """A command about one execution."""

    execution_id: str

    def needs(self, need: Needs) -> None:
        """The execution."""
        need.executions.add(self.execution_id)
