"""Who may use which route, written down by hand: the table of routes must come to the same.

A line is a route, the tokens that may use it, and whose things it is about. Tokens: `r`ead,
`s`ubmit, `w`orker, `a`pprove, `o`perate, `A`dmin, `m`etrics; `*`: whoever comes, without any too;
`+`: any token. Whose things:

  object   the one in the path; for a token of another namespace it does not exist
  own      those of the token's namespaces
  shared   what belongs to all namespaces: a token for some may look
  all      what belongs to all namespaces: only a token for all of them may
  none     no thing of the store
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

_HOURLY: Final = {"every_ms": 3_600_000}
_START: Final = {"execution": {"execution_kind": "work"}}
_NODES: Final = {"nodes": [{"name": "a", "execution": {"execution_kind": "work"}}]}


class Line(NamedTuple):
    """What is expected of a route. `body`: one that would do; `if_match`: the header it
    needs; `form`: the fields of one, for what takes no JSON."""

    tokens: str
    whose: str
    body: dict[str, Any] | None = None
    query: str = ""
    if_match: str | None = None
    form: dict[str, str] | None = None


READ: Final = "roA"
OPERATE: Final = "oA"
X: Final = "/v1/executions/{execution_id}"
U: Final = "/ui/runs/{execution_id}"
F: Final = "/v1/flows/{flow_id}"
S: Final = "/v1/schedules/{schedule_id}"
W: Final = "/v1/waits/{execution_id}/{waitpoint_key}"
B: Final = "/v1/budgets/{budget_id}"
D: Final = "/ui/approvals/{execution_id}/{waitpoint_key}"
Q: Final = "/ui/approvals/budget/{budget_id}/{dimension}/{limit_kind}"
M: Final = f"{X}/mailboxes/{{mailbox}}/messages"

EXPECTED: Final[dict[str, Line]] = {
    # executions
    "POST /v1/executions": Line("sA", "own", {"execution_kind": "work"}),
    "POST /v1/executions/batch": Line("sA", "own", {"items": [{"execution_kind": "work"}]}),
    "GET /v1/executions": Line(READ, "own"),
    "GET /v1/executions/count": Line(READ, "own"),
    "GET /v1/executions/kinds": Line(READ, "own"),
    "POST /v1/executions/outcomes": Line(READ, "own", {"execution_ids": []}),
    "POST /v1/executions/bulk": Line(OPERATE, "own", {"action": "hold", "reason": "x"}),
    f"GET {X}": Line(READ, "object"),
    f"GET {X}/attempts": Line(READ, "object"),
    f"GET {X}/why": Line(READ, "object"),
    f"GET {X}/timeline": Line(READ, "object"),
    f"GET {X}/journal": Line(READ, "object"),
    f"GET {X}/published": Line(READ, "object"),
    f"GET {X}/waits": Line(READ, "object"),
    f"GET {X}/input": Line(READ, "object"),
    f"GET {X}/result": Line(READ, "object"),
    f"GET {X}/outcome": Line(READ, "object"),
    f"PATCH {X}": Line(OPERATE, "object", {"tags": {"a.b": "c"}}),
    f"POST {X}/cancel": Line(OPERATE, "object", {"reason": "x"}),
    f"POST {X}/hold": Line(OPERATE, "object", {"reason": "x"}),
    f"POST {X}/release": Line(OPERATE, "object"),
    f"POST {X}/revoke": Line(OPERATE, "object", {"reason": "x"}),
    f"POST {X}/resume": Line(OPERATE, "object"),
    f"POST {X}/retry": Line(OPERATE, "object"),
    f"GET {X}/retries": Line(READ, "object"),
    f"POST {X}/dismiss": Line(OPERATE, "object"),
    f"POST {X}/restore": Line(OPERATE, "object"),
    f"GET {X}/spend": Line(READ, "object"),
    f"POST {X}/repin": Line(OPERATE, "object", {"expected": "1", "version": "2"}),
    f"POST {X}/fork": Line(OPERATE, "object", {"before": "a"}),
    f"GET {X}/stream": Line(READ, "object"),
    f"GET {X}/logs": Line(READ, "object"),
    f"GET {X}/summary": Line(READ, "object"),
    f"POST {X}/frames": Line("wA", "object", {"handle": "{handle}", "frames": [{"payload": 1}]}),
    "GET /v1/operations": Line(OPERATE, "own"),
    "GET /v1/operations/{operation_id}": Line(OPERATE, "object"),
    "POST /v1/operations/{operation_id}/stop": Line(OPERATE, "object"),
    "GET /v1/dead": Line(READ, "own"),
    "GET /v1/dead/counts": Line(READ, "own"),
    f"GET {X}/failure": Line(READ, "object"),
    "GET /v1/failures": Line(READ, "own"),
    "GET /v1/failures/{fingerprint}": Line(READ, "own"),
    "POST /v1/failures/{fingerprint}/known": Line(OPERATE, "own"),
    # flows
    "POST /v1/flows": Line("sA", "own", _NODES),
    "GET /v1/flows": Line(READ, "own"),
    f"GET {F}": Line(READ, "object"),
    f"GET {F}/summary": Line(READ, "object"),
    f"GET {F}/members": Line(READ, "object"),
    f"GET {F}/graph": Line(READ, "object"),
    f"GET {F}/graph/members": Line(READ, "object"),
    f"GET {F}/graph/members/{{execution_id}}": Line(READ, "object"),
    f"GET {F}/spend": Line(READ, "object"),
    f"GET {F}/edges": Line(READ, "object"),
    f"POST {F}/cancel": Line(OPERATE, "object", {"reason": "x"}),
    f"POST {F}/retry": Line(OPERATE, "object", {"reason": "x"}),
    f"POST {F}/members": Line("sA", "object", {"execution_id": "{full_id}"}),
    f"POST {F}/edges": Line(
        "sA",
        "object",
        {
            "upstream_execution_id": "{full_id}",
            "downstream_execution_id": "{full_id}",
        },
        if_match='"0"',
    ),
    f"POST {F}/joins": Line(
        "sA",
        "object",
        {"downstream_execution_id": "{full_id}", "policy": {"type": "all_of"}},
    ),
    f"PATCH {F}": Line(OPERATE, "object", {"tags": {"a.b": "c"}}),
    # waits and mailboxes
    "GET /v1/waits": Line("raoA", "own"),
    "GET /v1/waits/count": Line("raoA", "own"),
    "GET /v1/approvals": Line("raoA", "own"),
    f"GET {W}": Line("raoA", "object"),
    f"POST {W}/approve": Line("aoA", "object"),
    f"POST {W}/reject": Line("aoA", "object"),
    f"POST {W}/link": Line("A", "object"),
    "POST /v1/signals": Line("@", "none", {"link": "{link}", "signal_name": "go"}),
    "GET /w/{link}": Line("@", "none"),
    "POST /w/{link}": Line("@", "none"),
    f"POST {W}/signal": Line(OPERATE, "object", {"signal_name": "go"}),
    f"POST {M}": Line("aoA", "object", {"payload": 1}),
    f"GET {M}": Line(READ, "object"),
    f"GET {X}/mailboxes": Line(READ, "object"),
    "GET /v1/events": Line(READ, "own"),
    # limits and lanes
    "POST /v1/budgets": Line(
        OPERATE,
        "own",
        {"budget_id": "x", "dimensions": ["a"], "hard_limits": [1], "soft_limits": [0]},
    ),
    "GET /v1/budgets": Line(READ, "shared"),
    "GET /v1/budget-asks": Line("raoA", "own"),
    "GET /v1/spend": Line(READ, "own"),
    "GET /v1/spending": Line(READ, "all"),
    f"GET {B}": Line(READ, "shared"),
    f"POST {B}/reset": Line(OPERATE, "all"),
    f"POST {B}/answer": Line("aoA", "all", {"dimension": "a", "approve": False}),
    f"POST {B}/usage": Line(OPERATE, "all", {"dimensions": ["a"], "deltas": [1]}),
    f"PATCH {B}": Line(OPERATE, "all", {"reset_interval_ms": 60_000}, if_match='"0"'),
    "PATCH /v1/quotas/{quota_policy_id}": Line(
        OPERATE, "all", {"max_concurrent": 6}, if_match='"0"'
    ),
    "POST /v1/quotas": Line(OPERATE, "own", {"quota_policy_id": "x", "max_concurrent": 1}),
    "GET /v1/quotas": Line(READ, "shared"),
    "GET /v1/quotas/{quota_policy_id}": Line(READ, "shared"),
    "GET /v1/lanes": Line(READ, "shared"),
    "PATCH /v1/lanes/{lane_id}": Line(OPERATE, "all", {"weight": 2}),
    "POST /v1/lanes/{lane_id}/state": Line(OPERATE, "all", {"lane_state": "active", "reason": "x"}),
    "GET /v1/lines": Line(READ, "own"),
    "GET /v1/lines/{serial_key}": Line(READ, "object"),
    "POST /v1/lines/{serial_key}/release": Line(OPERATE, "object"),
    # schedules
    "POST /v1/schedules": Line(
        "sA", "own", {"schedule_id": "new", "timing": _HOURLY, "start": _START}
    ),
    "GET /v1/schedules": Line(READ, "own"),
    "POST /v1/schedules/prune": Line(OPERATE, "own", {"dry_run": True}),
    "POST /v1/schedules/preview": Line(READ, "own", {"timing": _HOURLY}),
    f"GET {S}": Line(READ, "object"),
    f"PATCH {S}": Line(OPERATE, "object", {"timing": _HOURLY}, if_match='"1"'),
    f"DELETE {S}": Line(OPERATE, "object"),
    f"GET {S}/start": Line(READ, "object"),
    f"GET {S}/ticks": Line(READ, "object"),
    f"POST {S}/pause": Line(OPERATE, "object"),
    f"POST {S}/resume": Line(OPERATE, "object"),
    f"POST {S}/trigger": Line("sA", "object"),
    f"POST {S}/backfill": Line("sA", "object", {"begin": 0, "end": 3_600_000, "again": True}),
    # the installation
    "GET /v1/audit": Line("A", "own"),
    "GET /v1/stats": Line(READ, "own"),
    "GET /v1/gauges": Line(READ, "all"),
    "GET /v1/code": Line(READ, "own"),
    "GET /v1/leases/expired": Line(READ, "own"),
    "POST /v1/doctor": Line("A", "all"),
    "GET /v1/signing-keys": Line("A", "all"),
    "POST /v1/signing-keys": Line("A", "all", {"kid": "k9", "secret_hex": "ab" * 32}),
    "POST /v1/signing-keys/rotate": Line("A", "all", {"new_kid": "k9"}),
    "GET /v1/system": Line(OPERATE, "all"),
    "GET /v1/workers": Line(READ, "own"),
    "GET /v1/workers/unmet": Line(READ, "own"),
    "POST /v1/workers/register": Line(
        "wA",
        "own",
        {
            "worker_id": "w",
            "worker_instance_id": "new-worker",
            "lanes": ["default"],
            "liveness_ttl_ms": 5_000,
        },
    ),
    "POST /v1/workers/claim": Line(
        "wA",
        "own",
        {"worker_id": "w", "worker_instance_id": "new-worker", "lanes": ["idle"], "wait_ms": 0},
    ),
    "POST /v1/workers/stops": Line("wA", "own", {"worker_instance_id": "new-worker"}),
    "POST /v1/workers/give-back": Line(
        "wA", "shared", {"worker_instance_id": "new-worker", "claim_id": "c"}
    ),
    "DELETE /v1/workers/{worker_instance_id}": Line("wA", "object"),
    "POST /v1/workers/{worker_instance_id}/heartbeat": Line("wA", "object", {}),
    "POST /v1/workers/{worker_instance_id}/drain": Line(OPERATE, "object", {"reason": "x"}),
    "POST /v1/workers/{worker_instance_id}/dead": Line(OPERATE, "object", {"reason": "x"}),
    "POST /v1/groups": Line(OPERATE, "own", {"group_id": "new"}),
    "GET /v1/groups": Line(READ, "own"),
    "DELETE /v1/groups/{group_id}": Line(OPERATE, "object"),
    "POST /v1/groups/{group_id}/read": Line("wA", "object", {"consumer": "c"}, query="?wait=0s"),
    "POST /v1/groups/{group_id}/ack": Line("wA", "object", {"consumer": "c", "delivery": "1-1"}),
    "POST /v1/tokens": Line("A", "own", {"name": "x", "scopes": ["read"]}),
    "GET /v1/tokens": Line("A", "own"),
    "DELETE /v1/tokens/{token_id}": Line("A", "object"),
    # the server
    "GET /metrics": Line("mA", "all"),  # where `metrics_auth` asks for a token
    "POST /v1/commands": Line("wsA", "none", {"items": []}),
    "POST /v1/hints": Line("+", "none", {"topics": [], "wait_ms": 0}),
    "GET /v1": Line("*", "none"),
    "GET /livez": Line("*", "none"),
    "GET /readyz": Line("*", "none"),
    "GET /openapi.json": Line("*", "none"),
    "GET /docs": Line("*", "none"),
    # the dashboard
    "GET /": Line("*", "none"),
    "GET /ui": Line(READ + "a", "none"),
    "GET /ui/": Line("*", "none"),
    "GET /ui/search": Line("*", "none"),
    "GET /ui/static/{name}": Line("*", "none"),
    "POST /ui/look": Line("*", "none", form={"theme": "dark"}),
    "GET /ui/live": Line("+", "none"),
    "GET /ui/parts": Line("+", "none"),
    "GET /ui/runs": Line(READ, "own"),
    "GET /ui/approvals": Line("raoA", "own"),
    f"GET {D}": Line("raoA", "object"),
    f"POST {D}": Line("aoA", "object", form={"decision": "go"}),
    f"POST {D}/link": Line("A", "object", form={}),
    f"GET {Q}": Line("raoA", "own"),
    f"POST {Q}": Line("aoA", "own", form={"decision": "rejected", "number": "1"}),
    f"GET {U}": Line(READ, "object"),
    f"GET {U}/compare": Line(READ, "object"),
    f"GET {U}/payload/{{which}}": Line(READ, "object"),
    f"POST {U}/cancel": Line(OPERATE, "object", form={"reason": "x"}),
    f"POST {U}/hold": Line(OPERATE, "object", form={}),
    f"POST {U}/release": Line(OPERATE, "object", form={}),
    f"POST {U}/revoke": Line(OPERATE, "object", form={"reason": "x"}),
    f"POST {U}/retry": Line(OPERATE, "object", form={}),
    f"POST {U}/retry-with": Line(OPERATE, "object", form={"input": "1"}),
    f"POST {U}/priority": Line(OPERATE, "object", form={"priority": "5"}),
    "GET /ui/runs/preview": Line(OPERATE, "own", query="?action=hold&all=1"),
    "POST /ui/runs/change": Line(OPERATE, "own", form={"action": "hold", "q": "lane:none"}),
    "GET /ui/operations": Line(OPERATE, "own"),
    "GET /ui/operations/{operation_id}": Line(OPERATE, "object"),
    "POST /ui/operations/{operation_id}/stop": Line(OPERATE, "object", form={}),
    f"POST {U}/fork": Line(OPERATE, "object", form={"before": "a"}),
    "GET /ui/login": Line("*", "none"),
    "GET /ui/login/oidc": Line("*", "none"),
    "GET /ui/login/oidc/callback": Line("*", "none"),
    "POST /ui/login": Line("*", "none", form={"token": "x"}),
    "POST /ui/logout": Line("*", "none", form={}),
    "GET /ui/budgets": Line(READ, "own"),
    "GET /ui/budgets/{budget_id}": Line(READ, "own"),
    "POST /ui/budgets/{budget_id}/limits": Line(
        OPERATE, "all", form={"dimension": "a", "hard": "9", "revision": "0"}
    ),
    "POST /ui/budgets/{budget_id}/reset": Line(OPERATE, "all", form={"name": "{budget_id}"}),
    "GET /ui/quotas/{quota_policy_id}": Line(READ, "own"),
    "POST /ui/quotas/{quota_policy_id}/limits": Line(
        OPERATE, "all", form={"max_concurrent": "7", "revision": "0"}
    ),
    "GET /ui/failures": Line(READ, "own"),
    "GET /ui/failures/{fingerprint}": Line(READ, "own"),
    "POST /ui/failures/{fingerprint}/change": Line(OPERATE, "own", form={"action": "retry"}),
    "POST /ui/failures/{fingerprint}/known": Line(OPERATE, "own", form={"for": "1h"}),
    "GET /ui/audit": Line("A", "own"),
    "GET /ui/audit/export": Line("A", "own"),
    "GET /ui/system": Line(OPERATE, "all"),
    "POST /ui/system/doctor": Line("A", "all", form={}),
    "POST /ui/system/tokens/{token_id}/revoke": Line("A", "own", form={}),
    "GET /ui/lanes": Line(READ, "own"),
    "POST /ui/lanes/{lane_id}/state": Line(OPERATE, "all", form={"state": "active"}),
    "POST /ui/lanes/{lane_id}/settings": Line(OPERATE, "all", form={"weight": "2", "aging": "0s"}),
    "GET /ui/workers": Line(READ, "own"),
    "POST /ui/workers/{worker_instance_id}/drain": Line(OPERATE, "own", form={}),
    "POST /ui/workers/{worker_instance_id}/dead": Line(OPERATE, "own", form={}),
    "GET /ui/schedules": Line(READ, "own"),
    "GET /ui/schedules/{schedule_id}": Line(READ, "own"),
    "POST /ui/schedules/{schedule_id}/pause": Line(OPERATE, "own", form={}),
    "POST /ui/schedules/{schedule_id}/resume": Line(OPERATE, "own", form={}),
    "POST /ui/schedules/{schedule_id}/trigger": Line("sA", "own", form={}),
    "POST /ui/schedules/{schedule_id}/backfill": Line("sA", "own", form={}),
    "POST /ui/schedules/{schedule_id}/delete": Line(OPERATE, "own", form={}),
    "GET /ui/flows": Line(READ, "own"),
    "GET /ui/flows/{flow_id}": Line(READ, "object"),
    "POST /ui/flows/{flow_id}/retry": Line(OPERATE, "object", form={"reason": "x"}),
    "POST /ui/flows/{flow_id}/cancel": Line(
        OPERATE, "object", form={"policy": "cancel_all", "reason": "x"}
    ),
}
