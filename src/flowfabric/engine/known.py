"""Routes, budgets and quotas that this process knows to exist.

None of them is ever deleted, so each is asked for once. New work refers to them by name; a name
that is not known is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from flowfabric.engine.conflict import until_no_conflict
from flowfabric.errors import NotFound
from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.kernel.limit.budget import refuse_scopes
from flowfabric.model.bounds import UNBOUNDED, Bounds
from flowfabric.model.budget import BudgetPolicy, ScopeType
from flowfabric.model.route import Route
from flowfabric.stores.base import Store
from flowfabric.stores.tables import BUDGETS, QUOTAS


def _route_order(route: Route) -> tuple[str, str, str, tuple[str, ...]]:
    return (route.lane_id, route.namespace, route.execution_kind, route.required_capabilities)


class Known:
    """The rows that new work may refer to."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._routes: set[Route] = set()
        self._budgets: dict[str, BudgetPolicy] = {}
        self._quotas: set[str] = set()

    async def ensure(self, commands: Sequence[CreateExecution], *, knows_flow: bool = True) -> None:
        """Budgets, quotas and routes are known before executions refer to them.

        `knows_flow`: whether the commands name the flow of new executions. If only the transaction
        knows it, it checks budgets of flows.
        """
        bounded = [command for command in commands if command.bounds is not UNBOUNDED]
        if bounded:
            await self.ensure_limits([command.bounds for command in bounded])
            for command in bounded:
                self._check_scopes(command, knows_flow)
        await self.ensure_routes(command.route for command in commands)

    async def ensure_limits(self, bounds: Iterable[Bounds]) -> None:
        """Every named budget and quota exists."""
        budgets: set[str] = set()
        quotas: set[str] = set()
        for each in bounds:
            budgets.update(each.budget_ids)
            if each.quota_policy_id is not None:
                quotas.add(each.quota_policy_id)
        await self._learn_budgets(sorted(budgets - self._budgets.keys()))
        await self._learn_quotas(sorted(quotas - self._quotas))

    def check_scopes(self, budget_ids: Iterable[str], places: Mapping[ScopeType, str]) -> None:
        """Refuse budgets with another scope than these."""
        policies = {name: self._budgets[name] for name in budget_ids}
        if refusal := refuse_scopes(policies, places):
            raise refusal.to_error()

    def flow_budgets(self, commands: Iterable[CreateExecution]) -> dict[str, str]:
        """The flow of each named budget that has a flow as its scope."""
        names = {name for command in commands for name in command.bounds.budget_ids}
        policies = {name: self._budgets[name] for name in names}
        return {
            name: policy.scope_id
            for name, policy in policies.items()
            if policy.scope_type is ScopeType.FLOW
        }

    async def _learn_budgets(self, names: Sequence[str]) -> None:
        if not names:
            return
        keys = [(name,) for name in names]
        found = await until_no_conflict(
            lambda: self._store.read(lambda reader: reader.peek_rows(BUDGETS, keys))
        )
        for name in names:
            row = found.get((name,))
            if row is None or row.policy is None:
                detail = f"budget_ids: there is no budget {name!r}"
                raise NotFound(detail, entity="budget", field="budget_ids")
            self._budgets[name] = row.policy

    async def _learn_quotas(self, names: Sequence[str]) -> None:
        if not names:
            return
        keys = [(name,) for name in names]
        found = await until_no_conflict(
            lambda: self._store.read(lambda reader: reader.peek_rows(QUOTAS, keys))
        )
        for name in names:
            if (name,) not in found:
                detail = f"quota_policy_id: there is no quota policy {name!r}"
                raise NotFound(detail, entity="quota_policy", field="quota_policy_id")
            self._quotas.add(name)

    def _check_scopes(self, command: CreateExecution, knows_flow: bool) -> None:
        places = {
            ScopeType.LANE: command.route.lane_id,
            ScopeType.NAMESPACE: command.route.namespace,
            ScopeType.EXECUTION: command.execution_id,
        }
        if knows_flow:
            places[ScopeType.FLOW] = command.flow_id or ""
        self.check_scopes(command.bounds.budget_ids, places)

    async def ensure_routes(self, routes: Iterable[Route]) -> None:
        """Routes that executions are about to get have numbers."""
        new = set(routes) - self._routes
        if new:
            ordered = sorted(new, key=_route_order)  # concurrent transactions insert in one order
            await until_no_conflict(lambda: self._store.intern_routes(ordered))
            self._routes |= new
