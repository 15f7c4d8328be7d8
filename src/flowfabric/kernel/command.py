"""Commands: what can be decided, what each needs to be decided, and what it is answered."""

from __future__ import annotations

from typing import Generic, TypeVar

from flowfabric.model.record import Record

R_co = TypeVar("R_co", covariant=True)
Key = tuple[str, ...]  # of a row in its table


class Needs:
    """What a batch loads before its first command is decided. Each command adds its part, so that
    everything is loaded in one trip per kind and locked in one order."""

    __slots__ = (
        "admissions",
        "budgets",
        "catalog",
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
        "members_of",
        "policies",
        "signal_keys",
        "signals",
        "suspend_keys",
        "waitpoints",
        "waits",
    )

    def __init__(self) -> None:
        self.catalog = False  # lanes, routes and scopes
        self.executions: set[str] = set()
        self.keys: set[tuple[str, str]] = set()  # idempotency keys, by namespace
        # Flows
        self.flows: set[str] = set()  # to be locked
        self.flows_of: set[str] = set()  # executions whose flow is to be locked
        self.families: set[str] = set()  # executions that may begin a flow with their children
        self.members_of: set[str] = set()  # flows whose members are all needed
        # Waits
        self.waits = False  # signing keys, and the open suspensions of the executions
        self.waitpoints: set[Key] = set()
        self.signals: set[Key] = set()
        self.signal_keys: set[Key] = set()
        self.suspend_keys: set[Key] = set()
        # Limits
        self.is_limited = False
        self.budgets: set[str] = set()
        self.ledgers: set[Key] = set()
        self.dedups: set[Key] = set()
        self.holds: set[Key] = set()
        self.policies: set[Key] = set()
        self.gates: set[Key] = set()
        self.admissions: set[Key] = set()


class Command(Record, Generic[R_co], frozen=True, kw_only=True):
    """Something to be decided inside a transaction; R_co is the reply where it is not refused."""

    actor: str = ""  # in whose name; it goes with the operator events of the decision

    def needs(self, need: Needs) -> None:
        """Add what must be loaded before this is decided."""


class ExecutionCommand(Command[R_co], Generic[R_co], frozen=True, kw_only=True):
    """A command about one execution."""

    execution_id: str

    def needs(self, need: Needs) -> None:
        """The execution."""
        need.executions.add(self.execution_id)
