"""Budgets and quotas: what is used, how fast, when it is empty, and what is kept back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from flowfabric.model.budget import BudgetStatus, HardAction, KindSpent
from flowfabric.model.quota import QuotaPolicy, QuotaStatus
from flowfabric.model.record import Record
from flowfabric.model.statistic import HOUR_MS, MINUTE_MS, Spending
from flowfabric.model.times import span

PATH = "/ui/budgets"
QUOTAS = "/ui/quotas"
DAY_MS = 24 * HOUR_MS
_ENOUGH_MS = 10 * MINUTE_MS  # of spending, before it is projected
_RATE_MS = HOUR_MS  # the last spending that a projection goes by
KEYS_SHOWN = 50
# By what it does at its hard limit: how that is said.
AT_LIMIT = {
    HardAction.DENY: "spending over the limit is refused",
    HardAction.BLOCK: "at the limit nothing starts",
    HardAction.CANCEL_PENDING: "at the limit what waits is cancelled",
    HardAction.FAIL: "what goes over the limit fails",
    HardAction.ASK: "at the limit people are asked",
}


class Meter(Record, frozen=True, kw_only=True):
    """One dimension of a budget. Shares are in percent of the hard limit and its allowances."""

    dimension: str
    used: int
    held: int
    hard: int  # 0: none
    soft: int  # 0: none
    allowed: int = 0
    used_share: int = 0
    held_share: int = 0

    @property
    def is_full(self) -> bool:
        """Nearly nothing is left."""
        return bool(self.hard) and self.used_share + self.held_share >= 90

    @property
    def words(self) -> str:
        """The bar in words."""
        if not self.hard:
            return f"{self.used} used, no limit"
        return f"{self.used_share} % used, {self.held_share} % held of {self.hard}"


class BudgetLine(Record, frozen=True, kw_only=True):
    """One budget of the list."""

    budget_id: str
    href: str
    namespace: str | None
    scope: str
    meters: tuple[Meter, ...]
    resets_at: int | None
    breaches: int
    at_limit: str

    @property
    def is_full(self) -> bool:
        """One of its dimensions is nearly used up."""
        return any(each.is_full for each in self.meters)


class QuotaLine(Record, frozen=True, kw_only=True):
    """One quota of the list."""

    name: str
    href: str
    namespace: str | None
    rule: str


class Budgets(Record, frozen=True, kw_only=True):
    """The page of all limits."""

    title: str = "Budgets"
    rows: tuple[BudgetLine, ...]
    quotas: tuple[QuotaLine, ...]
    next: str | None

    @property
    def sentence(self) -> str:
        """Which of them are nearly used up."""
        full = [each.budget_id for each in self.rows if each.is_full]
        return f"Nearly used up: {', '.join(full[:5])}" if full else "None is nearly used up"


class Burn(Record, frozen=True, kw_only=True):
    """How one dimension was used: `points` of (instant, used), oldest first.

    `empty_at`: when it is used up if it goes on like this, within `empty_error_ms`; `verdict`: the
    same in words.
    """

    meter: Meter
    points: tuple[tuple[int, int], ...]
    begins_at: int
    now: int
    rate_per_hour: int | None
    empty_at: int | None
    verdict: str


class Spender(Record, frozen=True, kw_only=True):
    """A kind of executions that spends from the budget."""

    kind: str
    dimension: str
    spent: int
    share: int


class Budget(Record, frozen=True, kw_only=True):
    """The page of one budget."""

    title: str
    line: BudgetLine
    burns: tuple[Burn, ...]
    spenders: tuple[Spender, ...]
    revision: int
    soft_breaches: int
    last_breach_at: int | None
    last_breach_dim: str | None
    last_reset_at: int | None
    resets: int


class Gate(Record, frozen=True, kw_only=True):
    """One key of a quota."""

    key: str
    active: int
    in_window: int
    share: int


class Quota(Record, frozen=True, kw_only=True):
    """The page of one quota."""

    title: str
    line: QuotaLine
    policy: QuotaPolicy
    gates: tuple[Gate, ...]
    more: int
    search: str


# --- budgets -------------------------------------------------------------------------------------


def line_of(budget: BudgetStatus) -> BudgetLine:
    """One budget as the list shows it."""
    policy = budget.policy
    scope = budget.scope_type.value
    return BudgetLine(
        budget_id=budget.budget_id,
        href=f"{PATH}/{quote(budget.budget_id, safe='')}",
        namespace=budget.namespace,
        scope=f"{scope} {budget.scope_id}".strip() if scope != "free" else "",
        meters=meters_of(budget),
        resets_at=budget.next_reset_at,
        breaches=budget.breach_count,
        at_limit="" if policy is None else AT_LIMIT[policy.on_hard_limit],
    )


def meters_of(budget: BudgetStatus) -> tuple[Meter, ...]:
    """Every dimension that is limited or used, by name."""
    names = {*budget.hard_limits, *budget.soft_limits, *budget.usage, *budget.held}
    return tuple(_meter(budget, name) for name in sorted(names))


def _meter(budget: BudgetStatus, name: str) -> Meter:
    used, held = budget.usage.get(name, 0), budget.held.get(name, 0)
    hard, allowed = budget.hard_limits.get(name, 0), budget.allowed.get(name, 0)
    most = hard + allowed if hard else 0
    used_share = min(100, 100 * max(0, used) // most) if most else 0
    return Meter(
        dimension=name,
        used=used,
        held=held,
        hard=hard,
        soft=budget.soft_limits.get(name, 0),
        allowed=allowed,
        used_share=used_share,
        held_share=min(100 - used_share, 100 * max(0, held) // most) if most else 0,
    )


def budgets_of(
    budgets: Iterable[BudgetStatus], quotas: Iterable[QuotaPolicy], *, next_page: str | None
) -> Budgets:
    """The page of all limits."""
    return Budgets(
        rows=tuple(map(line_of, budgets)), quotas=tuple(map(_quota_line, quotas)), next=next_page
    )


def budget_of(
    budget: BudgetStatus, spending: Sequence[Spending], spent: Iterable[KindSpent], now: int
) -> Budget:
    """The page of one budget."""
    line = line_of(budget)
    begins = max(now - DAY_MS, budget.last_reset_at or budget.created_at)
    by_dimension: dict[str, list[Spending]] = defaultdict(list)
    for each in spending:
        by_dimension[each.dimension].append(each)
    return Budget(
        title=budget.budget_id,
        line=line,
        burns=tuple(
            burn_of(each, by_dimension[each.dimension], begins, now) for each in line.meters
        ),
        spenders=_spenders(budget.budget_id, spent),
        revision=budget.revision,
        soft_breaches=budget.soft_breach_count,
        last_breach_at=budget.last_breach_at,
        last_breach_dim=budget.last_breach_dim,
        last_reset_at=budget.last_reset_at,
        resets=budget.reset_count,
    )


def burn_of(meter: Meter, spending: Iterable[Spending], begins: int, now: int) -> Burn:
    """How a dimension came to where it is, from what was spent minute by minute."""
    minutes = sorted((each.begins_at, each.spent - each.given_back) for each in spending)
    inside = [(at, amount) for at, amount in minutes if at + MINUTE_MS > begins]
    level = meter.used - sum(amount for _, amount in inside)
    points = [(begins, max(0, level))]
    for at, amount in inside:
        level += amount
        points.append((min(now, at + MINUTE_MS), max(0, level)))
    points.append((now, meter.used))
    rate = _rate(inside, begins, now)
    empty_at, verdict = _projected(meter, rate, now)
    return Burn(
        meter=meter,
        points=tuple(points),
        begins_at=begins,
        now=now,
        rate_per_hour=None if rate is None else round(rate * HOUR_MS),
        empty_at=empty_at,
        verdict=verdict,
    )


def _rate(spent: Sequence[tuple[int, int]], begins: int, now: int) -> float | None:
    """Units a millisecond, over the last hour; none before there is enough to tell."""
    first = min((at for at, amount in spent if amount > 0), default=now)
    since = max(begins, first, now - _RATE_MS)
    if now - since < _ENOUGH_MS:
        return None
    return sum(amount for at, amount in spent if at >= since - MINUTE_MS) / (now - since)


def _projected(meter: Meter, rate: float | None, now: int) -> tuple[int | None, str]:
    if not meter.hard:
        return None, "no hard limit"
    left = meter.hard + meter.allowed - meter.used
    if left <= 0:
        return None, "used up"
    if rate is None:
        return None, "not enough data to tell when it is empty"
    if rate <= 0:
        return None, "nothing was spent in the last hour"
    return now + round(left / rate), ""


def _spenders(budget_id: str, spent: Iterable[KindSpent]) -> tuple[Spender, ...]:
    sums: dict[tuple[str, str], int] = defaultdict(int)
    totals: dict[str, int] = defaultdict(int)
    for each in spent:
        if each.budget_id == budget_id:
            sums[each.execution_kind, each.dimension] += each.spent
            totals[each.dimension] += each.spent
    most = sorted(sums.items(), key=lambda pair: -pair[1])[:20]
    return tuple(
        Spender(
            kind=kind,
            dimension=dimension,
            spent=amount,
            share=100 * amount // totals[dimension] if totals[dimension] > 0 else 0,
        )
        for (kind, dimension), amount in most
    )


def limits_in_words(limits: Mapping[str, int]) -> str:
    """Hard limits, for a sentence.

    >>> limits_in_words({"tokens": 1000, "usd": 0})
    'tokens 1000, usd without a limit'
    """
    return ", ".join(
        f"{name} {limit}" if limit else f"{name} without a limit"
        for name, limit in sorted(limits.items())
    )


# --- quotas --------------------------------------------------------------------------------------


def _quota_line(policy: QuotaPolicy) -> QuotaLine:
    parts = []
    if policy.active_concurrency_cap:
        parts.append(f"{policy.active_concurrency_cap} at once")
    if policy.max_requests_per_window:
        window = span(policy.window_ms)
        parts.append(f"{policy.max_requests_per_window} starts in {window}")
    return QuotaLine(
        name=policy.quota_policy_id,
        href=f"{QUOTAS}/{quote(policy.quota_policy_id, safe='')}",
        namespace=policy.namespace,
        rule=" and ".join(parts) or "no limit",
    )


def quota_of(status: QuotaStatus, search: str) -> Quota:
    """The page of one quota: the fullest of its keys, or those that were searched for."""
    policy = status.policy
    gates = sorted(
        (_gate(each.dimension, each.active, each.in_window, policy) for each in status.gates),
        key=lambda gate: (-gate.share, -gate.in_window, gate.key),
    )
    found = [each for each in gates if search.lower() in each.key.lower()]
    return Quota(
        title=policy.quota_policy_id,
        line=_quota_line(policy),
        policy=policy,
        gates=tuple(found[:KEYS_SHOWN]),
        more=max(0, len(found) - KEYS_SHOWN),
        search=search,
    )


def _gate(key: str, active: int, in_window: int, policy: QuotaPolicy) -> Gate:
    shares = [0]
    if policy.active_concurrency_cap:
        shares.append(100 * active // policy.active_concurrency_cap)
    if policy.max_requests_per_window:
        shares.append(100 * in_window // policy.max_requests_per_window)
    return Gate(key=key, active=active, in_window=in_window, share=min(100, max(shares)))
