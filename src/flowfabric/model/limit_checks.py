"""The grammar of budgets and quotas, for every entrance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

from flowfabric import limits
from flowfabric.errors import InvalidBudgetScope, InvalidInput, InvalidQuotaSpec
from flowfabric.model.bounds import UNBOUNDED, Bounds
from flowfabric.model.budget import (
    AMOUNT_MAX,
    BudgetPolicy,
    EnforcementMode,
    HardAction,
    ScopeType,
    SoftAction,
)
from flowfabric.model.checks import check_integer, check_name, check_text, part_of, word_of
from flowfabric.model.shown import shown, shown_length

E = TypeVar("E", bound=StrEnum)


def check_word(value: object, words: type[E], *, field: str) -> E:
    """One of the known words."""
    word = word_of(value, words)
    if word is None:
        known = ", ".join(member.value for member in words)
        raise InvalidInput(f"{field}: {shown(value)} is not one of {known}", field=field)
    return word


def check_owner(value: object) -> str | None:
    """The namespace that a limit belongs to; None: to all."""
    return None if value is None else check_name(value, field="namespace")


def check_revision(value: object) -> int | None:
    """The revision that a change expects; None: any."""
    if value is None:
        return None
    return check_integer(value, field="expected_revision", least=0, most=(1 << 53) - 1)


def check_amounts(amounts: object, *, field: str = "amounts") -> dict[str, int]:
    """Dimension names to whole numbers from 0 to 2^63-1, sorted by name."""
    if not isinstance(amounts, Mapping):
        raise InvalidInput(f"{field}: expected a map of dimension to amount", field=field)
    if len(amounts) > limits.DIMENSIONS_MAX:
        raise InvalidInput(f"{field}: more than {limits.DIMENSIONS_MAX} dimensions", field=field)
    names = f"{field} (a dimension's name)"
    checked = {
        check_name(name, field=names): amount
        if type(amount) is int and 0 <= amount <= AMOUNT_MAX
        else check_integer(amount, field=part_of(field, name), least=0, most=AMOUNT_MAX)
        for name, amount in amounts.items()
    }
    return dict(sorted(checked.items()))


def check_weights(weights: object, *, field: str) -> dict[str, int] | None:
    """Names to weights from 1, sorted by name; None where none are given."""
    if weights is None:
        return None
    if not isinstance(weights, Mapping):
        raise InvalidInput(f"{field}: expected a map of name to weight", field=field)
    if len(weights) > limits.LANE_WEIGHTS_MAX:
        raise InvalidInput(f"{field}: more than {limits.LANE_WEIGHTS_MAX} names", field=field)
    checked = {
        check_name(name, field=field): check_integer(
            weight, field=part_of(field, name), least=1, most=limits.LANE_WEIGHT_MAX
        )
        for name, weight in weights.items()
    }
    return dict(sorted(checked.items()))


def amounts_of_lists(
    dimensions: object, deltas: object, *, fields: tuple[str, str]
) -> dict[str, int]:
    """Parallel lists as one map; amounts of a dimension listed twice are added up."""
    names, numbers = (_list(dimensions, fields[0]), _list(deltas, fields[1]))
    if len(names) != len(numbers):
        raise InvalidInput(
            f"{fields[1]}: {len(numbers)} values for {len(names)} {fields[0]}", field=fields[1]
        )
    summed: dict[str, int] = {}
    for name, number in zip(names, numbers, strict=True):
        checked = check_amounts({check_name(name, field=fields[0]): number}, field=fields[1])
        for key, amount in checked.items():
            summed[key] = summed.get(key, 0) + amount
    return check_amounts(summed, field=fields[1])


def _list(value: object, field: str) -> list[object]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        raise InvalidInput(f"{field}: expected a list", field=field)
    return list(value)


def check_budget_policy(
    *,
    scope_type: object,
    scope_id: object,
    enforcement_mode: object,
    on_hard_limit: object,
    on_soft_limit: object,
    reset_interval_ms: object,
    hard_limits: object,
    soft_limits: object,
) -> BudgetPolicy:
    """A policy with known words and possible numbers."""
    scope = check_word(scope_type, ScopeType, field="scope_type")
    target = check_text(scope_id, field="scope_id", max_bytes=limits.NAME_BYTES, empty=True)
    if (scope is ScopeType.FREE) == bool(target):
        need = "must be empty" if target else "must name what the budget is for"
        raise InvalidBudgetScope(f"scope_id: {need} when scope_type is {scope}", field="scope_id")
    return BudgetPolicy(
        scope_type=scope,
        scope_id=target,
        enforcement_mode=check_word(enforcement_mode, EnforcementMode, field="enforcement_mode"),
        on_hard_limit=check_word(on_hard_limit, HardAction, field="on_hard_limit"),
        on_soft_limit=check_word(on_soft_limit, SoftAction, field="on_soft_limit"),
        reset_interval_ms=check_reset_interval(reset_interval_ms),
        hard_limits=check_amounts(hard_limits, field="hard_limits"),
        soft_limits=check_amounts(soft_limits, field="soft_limits"),
    )


def check_reset_interval(value: object) -> int:
    """0 for never, else at least a second."""
    interval = check_integer(value, field="reset_interval_ms", least=0, most=limits.DURATION_MS_MAX)
    if 0 < interval < 1000:
        detail = f"reset_interval_ms: {shown_length(interval)} is below 1s, and not 0 for never"
        raise InvalidInput(detail, field="reset_interval_ms")
    return interval


def check_window(value: object) -> int:
    """A window that can elapse."""
    if value == 0:
        raise InvalidQuotaSpec("window_seconds: must be at least 1", field="window_seconds")
    return check_integer(
        value, field="window_seconds", least=1, most=limits.QUOTA_WINDOW_SECONDS_MAX
    )


def check_quota_limit(value: object, *, field: str) -> int:
    """0 for no limit."""
    return check_integer(value, field=field, least=0, most=limits.QUOTA_LIMIT_MAX)


def check_bounds(budget_ids: object, quota_policy_id: object, concurrency_key: object) -> Bounds:
    """The bounds a caller asks for."""
    if budget_ids in ((), []) and quota_policy_id is None and concurrency_key is None:
        return UNBOUNDED
    names = [check_name(each, field="budget_ids") for each in _list(budget_ids, "budget_ids")]
    if len(names) > limits.BUDGETS_ATTACHED_MAX:
        most = limits.BUDGETS_ATTACHED_MAX
        raise InvalidInput(f"budget_ids: more than {most}", field="budget_ids")
    quota = key = None
    if quota_policy_id is not None:
        quota = check_name(quota_policy_id, field="quota_policy_id")
    if concurrency_key is not None:
        key = check_name(concurrency_key, field="concurrency_key")
    return Bounds(budget_ids=tuple(sorted(set(names))), quota_policy_id=quota, concurrency_key=key)
