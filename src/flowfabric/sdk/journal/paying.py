"""What a step spends: reserved before its function begins, charged with the entry of its end.

The two are one transaction, so a step is charged once, however often its function ran. What a
worker that died had reserved is given back with its lease.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

from flowfabric import limits
from flowfabric.api.backend import EngineBackend
from flowfabric.errors import FlowFabricError, InvalidInput
from flowfabric.ids import new_secret_id
from flowfabric.model.budget import AskFirst, HardBreach, Reserved
from flowfabric.model.checks import check_name
from flowfabric.model.handle import Handle
from flowfabric.model.journal import Settlement
from flowfabric.model.limit_checks import check_amounts
from flowfabric.model.shown import shown
from flowfabric.sdk.errors import InvalidTask, Stopped
from flowfabric.sdk.journal.outbox import Sender

HOLD_MS: Final = 3_600_000  # a longer step is charged all the same, but nothing is kept for it
Amounts = Mapping[str, int]
Reserving = Callable[[], Awaitable[Reserved | HardBreach | AskFirst]]
AskPeople = Callable[[str, Amounts, Reserving], Awaitable[Reserved | HardBreach]]


class Spending(Protocol):
    """The options of a step about budgets."""

    @property
    def spend(self) -> Mapping[str, Amounts]:
        """What is reserved, by budget."""
        ...

    @property
    def actual(self) -> Callable[[Any], Amounts] | None:
        """What a result has cost."""
        ...


class Unaffordable(Exception):
    """A budget has no room for the step."""

    def __init__(self, budget: str, breach: HardBreach, amounts: Amounts) -> None:
        super().__init__(budget)
        self.budget = budget
        self.breach = breach
        self.amounts = amounts


def check_spend(spend: object, actual: object) -> dict[str, dict[str, int]]:
    """The options, checked when a function is decorated."""
    if actual is not None and not callable(actual):
        raise InvalidTask(f"actual: {shown(actual, 80)} is not a function", field="actual")
    if spend is None:
        if actual is not None:
            raise InvalidTask("actual: without spend there is nothing to settle", field="actual")
        return {}
    if not isinstance(spend, Mapping):
        detail = 'spend: expected amounts by budget, such as {"gpt": {"tokens": 1000}}'
        raise InvalidInput(detail, field="spend")
    if not 1 <= len(spend) <= limits.SETTLEMENTS_MAX:
        detail = f"spend: {len(spend)} budgets is not between 1 and {limits.SETTLEMENTS_MAX}"
        raise InvalidInput(detail, field="spend")
    checked = {
        check_name(budget, field="spend"): check_amounts(amounts, field="spend")
        for budget, amounts in spend.items()
    }
    for budget, amounts in checked.items():
        if not amounts:
            raise InvalidInput(f"spend: {budget!r} names no amounts", field="spend")
    return dict(sorted(checked.items()))


class Bill:
    """The reservations of one run of a step."""

    def __init__(self, owner: Sender, plan: Spending) -> None:
        self._owner = owner
        self._plan = plan
        self._hold_id = new_secret_id()

    async def reserve(self, ask: AskPeople) -> None:
        """All or none; raises `Unaffordable`. While people are asked about one budget nothing is
        held of the others, so that all of them are reserved again when they have answered."""
        while not await self._reserve_all(ask):
            pass

    async def _reserve_all(self, ask: AskPeople) -> bool:
        for budget, amounts in self._plan.spend.items():
            answer = await self._owner.ask(partial(self._reserve, budget, amounts))
            if isinstance(answer, Reserved):
                continue
            await self.release()
            if isinstance(answer, AskFirst):
                answer = await ask(budget, amounts, partial(self._reserve_now, budget, amounts))
            if isinstance(answer, HardBreach):
                raise Unaffordable(budget, answer, amounts)
            return len(self._plan.spend) == 1
        return True

    async def _reserve_now(self, budget: str, amounts: Amounts) -> Reserved | HardBreach | AskFirst:
        return await self._owner.ask(partial(self._reserve, budget, amounts))

    async def _reserve(
        self, budget: str, amounts: Amounts, engine: EngineBackend
    ) -> Reserved | HardBreach | AskFirst:
        return await engine.reserve_budget(
            self._handle,
            budget_id=budget,
            amounts=amounts,
            hold_id=self._hold_id,
            ttl_ms=HOLD_MS,
        )

    async def release(self) -> None:
        """Give everything back; what fails goes back with the lease."""
        for budget in self._plan.spend:
            with suppress(FlowFabricError, Stopped):
                await self._owner.ask(partial(self._release, budget))

    async def _release(self, budget: str, engine: EngineBackend) -> None:
        await engine.release_hold(self._handle, budget_id=budget, hold_id=self._hold_id)

    @property
    def _handle(self) -> Handle:
        return self._owner.claimed.handle

    def unspent(self) -> tuple[Settlement, ...]:
        """The step failed: nothing is charged."""
        return tuple(Settlement(budget, self._hold_id, {}) for budget in self._plan.spend)

    def spent(self, result: Any) -> tuple[Settlement, ...]:
        """What the result has cost; a dimension that is not named counts as it was reserved."""
        named: dict[str, int] = {}
        if (actual := self._plan.actual) is not None:
            named = check_amounts(actual(result), field="actual")
        found, spend = [], self._plan.spend
        for budget, amounts in spend.items():
            own = named if len(spend) == 1 else {d: n for d, n in named.items() if d in amounts}
            found.append(Settlement(budget, self._hold_id, {**amounts, **own}))
        return tuple(found)
