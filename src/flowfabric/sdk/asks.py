"""Questions of budgets, as people's programs answer them."""

from __future__ import annotations

from abc import abstractmethod

from flowfabric.api.backend import EngineBackend
from flowfabric.api.page import every_item
from flowfabric.errors import InvalidInput
from flowfabric.limits import PAGE_MAX
from flowfabric.model.ask import AskAnswered, BudgetAsk, LimitKind
from flowfabric.sdk.waits import HasId, execution_of


class AskMethods:
    """The part of a fabric that answers budgets that ask.

    ```
    for ask in await ff.budget_asks():
        print(ask.budget_id, ask.dimension, ask.usage, ask.limit, ask.projected)
    await ff.approve_ask("gpt", "tokens", raise_by=500_000, by="ada")
    await ff.reject_ask("gpt", "tokens", by="ada", comment="enough for today")
    ```
    """

    @abstractmethod
    async def start(self) -> EngineBackend:
        """The running engine."""

    async def budget_asks(
        self,
        budget: str | None = None,
        *,
        run: HasId | str | None = None,
        only_open: bool = True,
    ) -> list[BudgetAsk]:
        """The questions that have no answer yet, oldest first; of one budget, or of one run.

        Without `only_open` also the last answered one about each limit.
        """
        engine = await self.start()
        return await all_asks(
            engine,
            budget_id=budget,
            execution_id=None if run is None else execution_of(run),
            only_open=only_open,
        )

    async def approve_ask(
        self,
        budget: str,
        dimension: str,
        *,
        by: str,
        raise_by: int = 0,
        once: bool = False,
        soft: bool = False,
        run: HasId | str | None = None,
        number: int | None = None,
        comment: str = "",
    ) -> AskAnswered:
        """Say yes in a person's name: raise the limit by so much, or let what waits spend `once`.

        Every run that waits for the answer goes on. An allowance (`once`) is for what a run has
        asked for, and may be given to one `run` alone. `soft`: the question is about the soft
        limit. `number`: of the question that is meant, so that no later one is answered.
        """
        engine = await self.start()
        return await engine.answer_budget_ask(
            budget_id=budget,
            dimension=dimension,
            approve=True,
            raise_by=raise_by,
            once=once,
            limit_kind=LimitKind.SOFT if soft else LimitKind.HARD,
            number=number,
            execution_id=None if run is None else execution_of(run),
            comment=comment,
            actor=_person(by),
        )

    async def reject_ask(
        self,
        budget: str,
        dimension: str,
        *,
        by: str,
        soft: bool = False,
        run: HasId | str | None = None,
        number: int | None = None,
        comment: str = "",
    ) -> AskAnswered:
        """Say no in a person's name: `BudgetExceeded` is raised in the handlers that wait."""
        engine = await self.start()
        return await engine.answer_budget_ask(
            budget_id=budget,
            dimension=dimension,
            approve=False,
            limit_kind=LimitKind.SOFT if soft else LimitKind.HARD,
            number=number,
            execution_id=None if run is None else execution_of(run),
            comment=comment,
            actor=_person(by),
        )


async def all_asks(
    engine: EngineBackend,
    *,
    budget_id: str | None = None,
    execution_id: str | None = None,
    only_open: bool = True,
) -> list[BudgetAsk]:
    """Every page."""
    return await every_item(
        lambda at: engine.list_budget_asks(
            budget_id=budget_id,
            execution_id=execution_id,
            only_open=only_open,
            cursor=at,
            limit=PAGE_MAX,
        )
    )


def _person(by: object) -> str:
    if not isinstance(by, str) or not by:
        raise InvalidInput('by: name the person who answers, such as "ada"', field="by")
    return by
