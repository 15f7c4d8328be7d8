"""What spend totals must be: sums of the ledger, judged from the rows alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

from flowfabric.stores.tables import FLOWS, LEDGER, TOTALS

Dump = dict[str, list[Any]]
Sums = Counter[tuple[str, ...]]


def sums_of_kinds(dump: Dump) -> Sums:
    """What the ledger says, by namespace, kind, budget and dimension."""
    owners = {each.execution_id: each for each in dump["executions"]}
    found: Sums = Counter()
    for line in dump[LEDGER.name]:
        owner = owners.get(line.execution_id)
        if owner is not None:
            whose = (owner.namespace, owner.execution_kind, line.budget_id, line.dimension)
            found[whose] += line.spent + line.kept
    return found


def check_totals(dump: Dump, purged: Sums | None = None) -> None:
    """`purged`: what the lines said of executions that are gone."""
    owners = {each.execution_id: each for each in dump["executions"]}
    expected = Counter({("kind", *whose): n for whose, n in sums_of_kinds(dump).items()})
    expected.update({("kind", *whose): n for whose, n in (purged or {}).items()})
    flows = {each.flow_id for each in dump[FLOWS.name]}
    for line in dump[LEDGER.name]:
        if line.flow_id in flows:
            owner = owners[line.execution_id]
            assert owner.flow_id == line.flow_id, f"{line} is counted in the flow of another"
            whose = ("flow", owner.namespace, line.flow_id, line.budget_id, line.dimension)
            expected[whose] += line.spent + line.kept
    found = Counter(
        {
            (row.scope.value, row.namespace, row.scope_id, row.budget_id, row.dimension): row.spent
            for row in dump[TOTALS.name]
        }
    )
    assert +found == +expected
