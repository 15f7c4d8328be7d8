"""The unit of work: what one transaction has loaded and changed, and the parts that it needs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property

from flowfabric.engine.plans import Plans
from flowfabric.engine.unit.candidates import Pool
from flowfabric.engine.unit.flows.flows import Flows, flows_named, members_of
from flowfabric.engine.unit.limits import Limits
from flowfabric.engine.unit.overlay import Overlay
from flowfabric.engine.unit.streams import take_mail, take_streams, want_mail, want_streams
from flowfabric.engine.unit.tied import Tied
from flowfabric.engine.unit.uniques import owners_of
from flowfabric.engine.unit.view import InvariantViolated, View
from flowfabric.engine.unit.waits import Waits, want_waits
from flowfabric.engine.unit.watches import Watches
from flowfabric.kernel.command import Command, Needs
from flowfabric.kernel.decision import Moment
from flowfabric.kernel.execution.routing import Offer
from flowfabric.kernel.journal.checkpoint import Checkpoint
from flowfabric.kernel.limit.fairness import Credits
from flowfabric.model.route import Catalog
from flowfabric.stores.base import Transaction, Wanted
from flowfabric.stores.tables import KEYS


class Unit:
    """One transaction's work. Waits, limits and flows are made when something asks for them: most
    transactions need none."""

    def __init__(
        self,
        tx: Transaction,
        view: View,
        credits_of: Callable[[Offer], Credits],
        *,
        plans: Plans,
        is_again: bool = False,
    ) -> None:
        self.tx = tx
        self.plans = plans
        self.view = view
        self.credits_of = credits_of
        self.is_again = is_again  # the commands were tried before: rows may be there already
        self.claims_left: dict[Hashable, int] = {}  # executions that claims to come ask for
        self.pool: Pool | None = None
        self.overlay = Overlay(tx, view)
        self._has_flows = self._has_limits = False  # whether these parts were made

    @cached_property
    def waits(self) -> Waits:
        """Suspensions, waitpoints and signals."""
        return Waits(self.tx, self.view)

    @cached_property
    def watches(self) -> Watches:
        """Executions that wait for the ends of others."""
        return Watches(self.tx, self.view, self.overlay, self.waits, self.plans)

    @cached_property
    def limits(self) -> Limits:
        """Budgets and quotas."""
        self._has_limits = True
        return Limits(self.tx, self.view, self.overlay, self.waits)

    @cached_property
    def flows(self) -> Flows:
        """Flows, members and edges."""
        self._has_flows = True
        return Flows(self.tx, self.view, self.overlay)

    @cached_property
    def tied(self) -> Tied:
        """Executions that are tied to others outside of their flow."""
        return Tied(self.tx, self.view, self.overlay, lambda: self.flows.graph)

    @property
    def catalog(self) -> Catalog:
        """Lanes, routes and scopes; loaded because a command said that it needs them."""
        if self.view.catalog is None:
            raise InvariantViolated("a command about lanes must say that it needs the catalog")
        return self.view.catalog

    @property
    def owes(self) -> bool:
        """Whether something is still to follow from what was decided."""
        return self.view.owes or (self._has_limits and self.limits.has_work)

    async def follow_up(self) -> None:
        """Everything that follows from what was decided: in flows, among ties, limits and waits.

        Each of them may move others again, so it goes on until none has moved any.
        """
        view = self.view
        while True:
            # Flows come first also where no member has moved yet: they may still have to be locked,
            # and are locked before limits.
            if self._has_flows or view.has_member_moves:
                await self.flows.follow_up()
            if view.has_tied_moves:
                await self.tied.follow_up()
            if view.has_bounded or (self._has_limits and self.limits.has_work):
                await self.limits.follow_up()
            if not (view.has_member_moves or view.has_tied_moves):
                return

    async def load(self, execution_ids: Sequence[str]) -> None:
        """Lock executions that a search named; those that are here stay as they stand."""
        missing = [key for key in execution_ids if key not in self.view.executions]
        if missing:
            self.view.executions.update(await self.tx.load(missing))


async def open_unit(
    tx: Transaction,
    commands: Sequence[Command[object]],
    moment: Callable[[int], Moment],
    credits_of: Callable[[Offer], Credits],
    *,
    plans: Plans,
    is_again: bool = False,
) -> Unit:
    """A unit with everything its commands need: one look, then what depends on it, in one lock
    order: executions, then flows, then limits."""
    need = Needs()
    for command in commands:
        command.needs(need)
    await _name_others(tx, need)
    wanted = _wanted(need)
    wanted.is_only_held = all(type(each) is Checkpoint and each.is_plain for each in commands)
    found = await tx.look(wanted)
    view = View(moment(tx.now), found.catalog, found.executions)
    unit = Unit(tx, view, credits_of, plans=plans, is_again=is_again)
    if found.keys:
        unit.view.rows.take(KEYS, found.keys)
    unit.claims_left = need.claims
    if flow_ids := flows_named(need, found.executions):
        await unit.flows.prepare(flow_ids, commands)
    if need.uniques:
        await unit.tied.uniques.prepare(need.uniques)
    if need.waits:
        await unit.waits.prepare(need, found)
    if need.streams or need.run_logs or need.published or need.running:
        take_streams(unit.view, found, need)
    if need.mailboxes or need.messages:
        take_mail(unit.view, found, need)
    if need.is_limited:
        await unit.limits.prepare(need)
    return unit


async def _name_others(tx: Transaction, need: Needs) -> None:
    """Executions that commands mean without naming them."""
    if need.members_of:
        need.executions |= await members_of(tx, need.members_of)
    if need.uniques:
        need.executions |= await owners_of(tx, need.uniques)


def _wanted(need: Needs) -> Wanted:
    """What the look of a batch asks for."""
    wanted = Wanted()
    wanted.catalog = need.catalog
    wanted.executions = tuple(need.executions)
    wanted.keys = sorted(need.keys)
    if need.waits:
        want_waits(need, wanted)
    if need.streams or need.run_logs or need.published or need.running:
        want_streams(need, wanted)
    if need.mailboxes or need.messages:
        want_mail(need, wanted)
    return wanted
