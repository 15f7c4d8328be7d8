"""Raising and resetting budgets, and changing quotas; what a colleague changed meanwhile stays."""

from __future__ import annotations

from typing import Final

from flowfabric.api.budgets import GetBudgetStatus, ResetBudget, UpdateBudget
from flowfabric.api.quotas import UpdateQuotaPolicy
from flowfabric.errors import InvalidInput, RevisionMismatch
from flowfabric.limits import QUOTA_LIMIT_MAX, QUOTA_WINDOW_SECONDS_MAX
from flowfabric.server.exchange import Call
from flowfabric.server.routes.asking import ask
from flowfabric.server.service import Service
from flowfabric.server.ui.forms import Done, Form
from flowfabric.server.ui.views.budgets import limits_in_words

_REVISION_MAX: Final = 2**31


async def change(service: Service, call: Call, form: Form) -> Done:
    """Other hard limits: a number, or `+n` beyond the present one."""
    name = call.params["budget_id"]
    status = await ask(service, call, GetBudgetStatus(budget_id=name))
    wanted = {
        dimension: _amount(text, status.hard_limits.get(dimension, 0), dimension)
        for dimension, text in zip(form.several("dimension"), form.several("hard"), strict=False)
        if text.strip()
    }
    if not wanted:
        raise InvalidInput("hard: type a limit, or +n to raise one", field="hard")
    revision = form.number("revision", least=0, most=_REVISION_MAX)
    request = UpdateBudget(budget_id=name, hard_limits=wanted, expected_revision=revision)
    try:
        await ask(service, call, request)
    except RevisionMismatch as error:
        present = limits_in_words(status.hard_limits)
        raise RevisionMismatch(
            f"budget {name} was changed meanwhile: it has {present}, and your change to "
            f"{limits_in_words(wanted)} was not made",
            **error.fields,
        ) from None
    return Done(text=f"Budget {name} has {limits_in_words({**status.hard_limits, **wanted})} now.")


def _amount(text: str, present: int, dimension: str) -> int:
    plain = text.strip().replace("_", "").replace("\u202f", "")
    digits = plain.removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        detail = f"hard: {dimension} takes a whole number, or +n to raise it"
        raise InvalidInput(detail, field="hard")
    return int(digits) + (present if plain.startswith("+") else 0)


async def reset(service: Service, call: Call, form: Form) -> Done:
    """Its name is typed, so that it is not the wrong one."""
    name = call.params["budget_id"]
    if form.text("name") != name:
        raise InvalidInput("name: type the name of the budget to reset it", field="name")
    await ask(service, call, ResetBudget(budget_id=name))
    return Done(text=f"Budget {name} begins anew: its usage is 0.")


async def change_quota(service: Service, call: Call, form: Form) -> Done:
    """Other places and starts."""
    name = call.params["quota_policy_id"]
    request = UpdateQuotaPolicy(
        quota_policy_id=name,
        max_concurrent=form.number("max_concurrent", least=0, most=QUOTA_LIMIT_MAX),
        max_requests_per_window=form.number(
            "max_requests_per_window", least=0, most=QUOTA_LIMIT_MAX
        ),
        window_seconds=form.number("window_seconds", least=1, most=QUOTA_WINDOW_SECONDS_MAX),
        expected_revision=form.number("revision", least=0, most=_REVISION_MAX),
    )
    await ask(service, call, request)
    return Done(text=f"Quota {name} is changed. What waits for room is looked at at once.")
