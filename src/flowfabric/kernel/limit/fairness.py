"""Fairness: how a claim's slots are shared between lanes and tenants.

Lanes share by weight, and so do the tenants of a lane. What a line is owed after a claim is
remembered as its credit, so that claims of one slot each come out like one claim of many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowfabric.model.record import Record
from flowfabric.model.route import Catalog, Route

Line = tuple[str, str]  # a lane and a tenant; a lane as a whole has no tenant
Credits = dict[Line, float]


class Share(Record, frozen=True):
    """Routes that stand in one line: one tenant's work on one lane."""

    lane_id: str
    namespace: str
    weight: int  # the lane's
    routes: tuple[Route, ...]
    tenant_weight: int = 1  # the tenant's, on this lane

    @property
    def key(self) -> Line:
        """What tells it from other lines."""
        return (self.lane_id, self.namespace)

    @property
    def lane(self) -> Line:
        """The key of its lane as a whole."""
        return (self.lane_id, "")


def shares_of(routes: Sequence[Route], catalog: Catalog) -> list[Share]:
    """One share per lane and tenant the worker serves, in a stable order."""
    lines: dict[Line, list[Route]] = {}
    for route in routes:
        lines.setdefault((route.lane_id, route.namespace), []).append(route)
    return [
        Share(
            lane,
            namespace,
            catalog.lane_weight(lane),
            tuple(lines[lane, namespace]),
            catalog.tenant_weight(lane, namespace),
        )
        for lane, namespace in sorted(lines)
    ]


def _tenants(shares: Sequence[Share]) -> dict[Line, dict[Line, int]]:
    """The lines of each lane, with their weights."""
    found: dict[Line, dict[Line, int]] = {}
    for share in shares:
        found.setdefault(share.lane, {})[share.key] = share.tenant_weight
    return found


def parts_of(shares: Sequence[Share], credits: Mapping[Line, float], slots: int) -> dict[Line, int]:
    """How many of the slots each line gets: first the lanes, then the tenants of each."""
    by_lane = divided({share.lane: share.weight for share in shares}, credits, slots)
    parts: dict[Line, int] = {}
    for lane, tenants in _tenants(shares).items():
        parts |= divided(tenants, credits, by_lane[lane])
    return parts


def credits_after(
    shares: Sequence[Share],
    credits: Mapping[Line, float],
    parts: Mapping[Line, int],
    taken: Mapping[Line, int],
) -> Credits:
    """What each lane and each line is owed after a claim gave out `taken` of the `parts`."""
    lanes = _tenants(shares)
    after: Credits = {}
    lane_parts = {lane: sum(parts[key] for key in keys) for lane, keys in lanes.items()}
    lane_taken = {lane: sum(taken.get(key, 0) for key in keys) for lane, keys in lanes.items()}
    after |= settled(
        {share.lane: share.weight for share in shares}, credits, lane_parts, lane_taken
    )
    for tenants in lanes.values():
        after |= settled(tenants, credits, parts, taken)
    return after


def divided(
    weights: Mapping[Line, int], credits: Mapping[Line, float], slots: int
) -> dict[Line, int]:
    """All the slots, by weight and by what each line is still owed."""
    total = sum(weights.values())
    # Lines come and go, so what the present ones are owed need not cancel out by itself.
    excess = sum(credits.get(key, 0.0) for key in weights)
    owed = {
        key: credits.get(key, 0.0) + (slots - excess) * weight / total
        for key, weight in weights.items()
    }
    parts = {key: max(0, int(amount)) for key, amount in owed.items()}
    left = slots - sum(parts.values())
    by_need = sorted(owed)
    for _ in range(left):
        key = max(by_need, key=lambda each: owed[each] - parts[each])
        parts[key] += 1
    for _ in range(-left):  # what was given too much before counts as zero, not as less
        key = min(filter(parts.get, by_need), key=lambda each: owed[each] - parts[each])
        parts[key] -= 1
    return parts


def settled(
    weights: Mapping[Line, int],
    credits: Mapping[Line, float],
    parts: Mapping[Line, int],
    taken: Mapping[Line, int],
) -> Credits:
    """What each line is owed afterwards.

    A line that left slots unused saves nothing up, and using them costs the others nothing.
    """
    busy = [key for key in weights if taken.get(key, 0) >= parts.get(key, 0)]
    total = sum(weights[key] for key in busy)
    given = sum(taken.get(key, 0) for key in busy)
    after = dict.fromkeys(weights, 0.0)
    for key in busy:
        after[key] = credits.get(key, 0.0) + given * weights[key] / total - taken.get(key, 0)
    return after
