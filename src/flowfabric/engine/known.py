"""Routes, budgets and quotas that this process knows to exist.

None of them is ever deleted, so each is asked for once. New work refers to them by name; a name
that is not known is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from flowfabric.engine.conflict import until_no_conflict
from flowfabric.errors import NotFound
from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.kernel.hook.ended import hooks_of
from flowfabric.kernel.limit.budget import refuse_scopes
from flowfabric.model.bounds import UNBOUNDED, Bounds
from flowfabric.model.budget import BudgetPolicy, ScopeType
from flowfabric.model.checks import named_within
from flowfabric.model.route import Route
from flowfabric.model.successor import Hooks, Successor
from flowfabric.model.ties import UNTIED
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

    async def ensure(
        self,
        commands: Sequence[CreateExecution],
        *,
        knows_flow: bool = True,
        of_flow: Hooks | None = None,
    ) -> None:
        """Budgets, quotas and routes are known before executions refer to them, and the hooks of
        their flow.

        `knows_flow`: whether the commands name the flow of new executions. If only the transaction
        knows it, it checks budgets of flows.
        """
        bounded = [command for command in commands if command.bounds is not UNBOUNDED]
        if bounded:
            await self.ensure_limits([command.bounds for command in bounded])
            for command in bounded:
                self._check_scopes(command, knows_flow)
        routes = {command.route for command in commands}
        await self.ensure_routes(routes | await self.hook_routes(commands, of_flow))

    async def hook_routes(
        self, commands: Sequence[CreateExecution], of_flow: Hooks | None
    ) -> set[Route]:
        """Routes of hooks, with budgets and quotas that are known. Many executions share one."""
        found = {
            id(hook): (role, hook)
            for command in commands
            if command.ties is not UNTIED
            for role, hook in hooks_of(command.ties.hooks)
        }
        found.update((id(hook), (role, hook)) for role, hook in hooks_of(of_flow))
        for role, hook in found.values():
            with named_within(role.value):
                await self.ensure_successor(hook.successor)
        return {hook.successor.route for _, hook in found.values()}

    async def ensure_successor(self, successor: Successor) -> None:
        """Budgets and quotas of what is to be created later are known, and fit its place."""
        if successor.bounds is UNBOUNDED:
            return
        await self.ensure_limits([successor.bounds])
        places = {
            ScopeType.LANE: successor.route.lane_id,
            ScopeType.NAMESPACE: successor.route.namespace,
        }
        self.check_scopes(successor.bounds.budget_ids, places)

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
