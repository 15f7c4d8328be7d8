"""Counters of limits against the rows they count. Doctor reports what a repair would change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from flowfabric.kernel.command import Command, Key, Needs
from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.limit.budget import Budget, moved
from flowfabric.kernel.limit.quota import Gate
from flowfabric.kernel.repair import differs, repair_events
from flowfabric.model.budget import AttachmentRow, BudgetRow, HoldRow, LedgerRow, UsageRow
from flowfabric.model.execution import Execution
from flowfabric.model.quota import AdmissionRow, AdmissionState, GateRow
from flowfabric.model.record import replace
from flowfabric.model.repair import Correction, Unproven

Corrections = tuple[Correction, ...]


class RecountBudgets(Command[Corrections], frozen=True, kw_only=True):
    """Set what budgets hold to what the reservations say."""

    budget_ids: tuple[str, ...]

    def needs(self, need: Needs) -> None:
        """The budgets."""
        need.catalog = need.is_limited = True
        need.budgets.update(self.budget_ids)


class Reattach(Command[Corrections], frozen=True, kw_only=True):
    """Set the lists of budgets right, for these pairs of a budget and an execution."""

    pairs: tuple[tuple[str, str], ...]

    def needs(self, need: Needs) -> None:
        """The executions: an attachment changes under the lock of its execution."""
        need.catalog = True
        need.executions.update(execution_id for _, execution_id in self.pairs)


class RecountGate(Command[Corrections], frozen=True, kw_only=True):
    """Count the slots and starts of one key again; `suspects` may have slots without running."""

    gate: Key
    suspects: tuple[str, ...]

    def needs(self, need: Needs) -> None:
        """The gate, and the suspects with their slots."""
        need.catalog = need.is_limited = True
        need.executions.update(self.suspects)
        need.gates.add(self.gate)
        need.admissions.update((*self.gate, each) for each in self.suspects)


# --- budgets -------------------------------------------------------------------------------------


def held_by(holds: Iterable[HoldRow]) -> Counter[tuple[str, str]]:
    """What reservations hold, by budget and dimension."""
    held: Counter[tuple[str, str]] = Counter()
    for hold in holds:
        for dimension, amount in hold.amounts.items():
            held[hold.budget_id, dimension] += amount
    return held


def held_corrections(
    budget_id: str, usage: Iterable[UsageRow], held: Mapping[tuple[str, str], int]
) -> Corrections:
    """The dimensions of a budget that hold something other than its reservations."""
    said = _held(budget_id, usage, held)
    return tuple(
        each
        for dimension in sorted(said)
        for each in differs(
            f"budget {budget_id}",
            f"held {dimension}",
            said[dimension],
            held.get((budget_id, dimension), 0),
        )
    )


def _held(
    budget_id: str, usage: Iterable[UsageRow], held: Mapping[tuple[str, str], int]
) -> dict[str, int]:
    """What a budget says it holds, by dimension: also of those it has no counter for."""
    said = {each: 0 for name, each in held if name == budget_id}
    return said | {each.dimension: each.held for each in usage}


def used_too_low(
    row: BudgetRow, usage: Iterable[UsageRow], ledger: Iterable[LedgerRow]
) -> tuple[Unproven, ...]:
    """The dimensions with less used than their ledger accounts for. The right amount is unknown:
    reports are not in the ledger."""
    spent: Counter[str] = Counter()
    for line in ledger:
        if line.generation == row.generation:
            spent[line.dimension] += line.spent
    used = {each.dimension: each.used for each in usage}
    return tuple(
        Unproven(f"budget {row.budget_id}", f"used {dimension} is {said}, {number} were spent")
        for dimension, number in sorted(spent.items())
        if (said := used.get(dimension, 0)) < number
    )


def recount_budget(
    budget: Budget, held: Mapping[tuple[str, str], int], at: Moment
) -> Decision[Corrections]:
    """The budget with what its reservations hold; what it used stays."""
    budget_id = budget.row.budget_id
    found = held_corrections(budget_id, budget.usage.values(), held)
    if not found:
        return Decision(())
    by = {
        each.counter.removeprefix("held "): int(each.after or 0) - int(each.before or 0)
        for each in found
    }
    right = moved(budget, at, held=by)
    return Decision(found, saves=(right,), events=repair_events(budget_id, found, at))


def is_attached(execution: Execution | None, budget_id: str) -> bool:
    """Whether a budget's list has the execution: it names the budget, and has not ended."""
    if execution is None or execution.is_terminal:
        return False
    return budget_id in execution.bounds.budget_ids


def attachment_corrections(
    execution: Execution | None, pair: tuple[str, str], *, is_listed: bool
) -> Corrections:
    """Whether the list of a budget is wrong about an execution."""
    budget_id, execution_id = pair
    wanted = is_attached(execution, budget_id)
    return differs(f"budget {budget_id}", f"attached {execution_id}", int(is_listed), int(wanted))


def reattach(
    execution: Execution | None, pair: tuple[str, str], at: Moment, *, is_listed: bool
) -> Decision[Corrections]:
    """The row of an execution in the list of a budget, where it belongs and only there."""
    found = attachment_corrections(execution, pair, is_listed=is_listed)
    if not found:
        return Decision(())
    row, events = (AttachmentRow(*pair),), repair_events(pair[0], found, at)
    if is_listed:
        return Decision(found, drops=row, events=events)
    return Decision(found, saves=row, events=events)


# --- quotas --------------------------------------------------------------------------------------


def is_idle_slot(admission: AdmissionRow | None, execution: Execution | None) -> bool:
    """Whether a slot is taken by an execution that does not run: it would never be given back. A
    reservation ends by its own time."""
    runs = execution is not None and execution.is_leased
    return admission is not None and admission.state is AdmissionState.RUNNING and not runs


def slot_corrections(admission: AdmissionRow) -> Corrections:
    """A slot that nothing would give back."""
    name = gate_name(admission.quota_policy_id, admission.dimension)
    return differs(name, f"slot of {admission.execution_id}", 1, 0)


def gate_name(quota_policy_id: str, dimension: str) -> str:
    """A key of a quota as operators read it."""
    return f"quota {quota_policy_id} {dimension}"


def gate_corrections(row: GateRow, active: int, counted: int) -> Corrections:
    """The counters of a gate that differ from its rows."""
    name = gate_name(row.quota_policy_id, row.dimension)
    return (
        *differs(name, "active", row.active, active),
        *differs(name, "in_window", row.in_window, counted),
    )


def recount_gate(
    gate: Gate, active: int, counted: int, freed: Sequence[Correction], at: Moment
) -> Decision[Corrections]:
    """The gate with the numbers of its rows. `freed`: slots given back just now."""
    found = (*freed, *gate_corrections(gate.row, active, counted))
    row = replace(gate.row, active=active, in_window=counted)
    saves = (replace(gate, row=row),) if row != gate.row else ()
    events = repair_events(gate.row.quota_policy_id, found, at)
    return Decision(found, saves=saves, events=events)
