"""Budgets, quotas and lanes."""

from __future__ import annotations

from typing import Any, Final

from flowfabric.api.operation import Scope
from flowfabric.server.routes.route import Reach, Repeat, Route
from flowfabric.server.routes.rows import get, post, row

_BUDGET: Final = "/v1/budgets/{budget_id}"
_QUOTA: Final = "/v1/quotas/{quota_policy_id}"
_LANE: Final = "/v1/lanes/{lane_id}"


def _changed(method: str, path: str, operation: str, **more: Any) -> Route:
    """A change of a limit or a lane, which an operator may make."""
    values = {"scope": Scope.OPERATE, "reach": Reach.SHARED, **more}
    return row(method, path, operation, **values)


BUDGET_ROUTES: Final = (
    _changed(
        "POST", "/v1/budgets", "create_budget", statuses={"BudgetCreated": 201}, tag="budgets"
    ),
    get("/v1/budgets", "list_budgets", reach=Reach.SHARED, tag="budgets"),
    get("/v1/budget-asks", "list_budget_asks", reach=Reach.SHARED, tag="budgets"),
    get("/v1/spending", "read_spending", reach=Reach.SHARED, tag="budgets"),
    get("/v1/spend", "list_spend", tag="budgets"),
    get(_BUDGET, "get_budget_status", reach=Reach.SHARED, revision="revision", tag="budgets"),
    _changed(
        "PATCH",
        _BUDGET,
        "update_budget",
        if_match="expected_revision",
        is_match_needed=True,
        revision="revision",
        tag="budgets",
    ),
    _changed("POST", f"{_BUDGET}/reset", "reset_budget", tag="budgets"),
    post(f"{_BUDGET}/answer", "answer_budget_ask", reach=Reach.SHARED, tag="budgets"),
    post(
        f"{_BUDGET}/usage",
        "report_usage_admin",
        reach=Reach.SHARED,
        repeat=Repeat.KEY,
        tag="budgets",
    ),
)

QUOTA_ROUTES: Final = (
    _changed(
        "POST", "/v1/quotas", "create_quota_policy", statuses={"QuotaCreated": 201}, tag="quotas"
    ),
    get("/v1/quotas", "list_quota_policies", reach=Reach.SHARED, tag="quotas"),
    get(_QUOTA, "get_quota_status", reach=Reach.SHARED, revision="revision", tag="quotas"),
    _changed(
        "PATCH",
        _QUOTA,
        "update_quota_policy",
        if_match="expected_revision",
        is_match_needed=True,
        revision="revision",
        tag="quotas",
    ),
)

LANE_ROUTES: Final = (
    get("/v1/lanes", "list_lanes", reach=Reach.SHARED, tag="lanes"),
    _changed("PATCH", _LANE, "configure_lane", tag="lanes"),
    _changed("POST", f"{_LANE}/state", "set_lane_state", tag="lanes"),
    get("/v1/lines", "list_lines", tag="lanes"),
    get("/v1/lines/{serial_key}", "list_line", reach=Reach.NAMED, tag="lanes"),
    post("/v1/lines/{serial_key}/release", "release_line", reach=Reach.NAMED, tag="lanes"),
)

LIMIT_ROUTES: Final = (*BUDGET_ROUTES, *QUOTA_ROUTES, *LANE_ROUTES)
