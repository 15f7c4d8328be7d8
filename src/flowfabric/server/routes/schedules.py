"""Schedules, and what else is administered."""

from __future__ import annotations

from typing import Final

from flowfabric.api.operation import Scope
from flowfabric.server.routes.route import Reach, Repeat, Size
from flowfabric.server.routes.rows import get, post, row

_ID: Final = "/v1/schedules/{schedule_id}"
_GROUP: Final = "/v1/groups/{group_id}"

SCHEDULE_ROUTES: Final = (
    post(
        "/v1/schedules",
        "create_schedule",
        reach=Reach.NAMED,
        size=Size.PAYLOAD,
        statuses={"ScheduleCreated": 201},
        tag="schedules",
    ),
    get("/v1/schedules", "list_schedules", tag="schedules"),
    post("/v1/schedules/prune", "prune_schedules", reach=Reach.NAMED, tag="schedules"),
    post(
        "/v1/schedules/preview",
        "preview_schedule",
        reach=Reach.NAMED,
        repeat=Repeat.READ,
        tag="schedules",
    ),
    get(_ID, "describe_schedule", absent="schedule", revision="version", tag="schedules"),
    row(
        "PATCH",
        _ID,
        "update_schedule",
        size=Size.PAYLOAD,
        if_match="expected_version",
        is_match_needed=True,
        tag="schedules",
    ),
    row("DELETE", _ID, "delete_schedule", tag="schedules", hidden=("actor",)),
    get(f"{_ID}/start", "read_schedule_start", tag="schedules"),
    get(f"{_ID}/ticks", "read_ticks", tag="schedules"),
    post(f"{_ID}/pause", "pause_schedule", tag="schedules"),
    post(f"{_ID}/resume", "resume_schedule", tag="schedules"),
    post(f"{_ID}/trigger", "trigger_schedule", tag="schedules"),
    post(f"{_ID}/backfill", "backfill_schedule", tag="schedules"),
)

ADMIN_ROUTES: Final = (
    get("/v1/stats", "read_statistics", tag="status"),
    get("/v1/gauges", "read_gauges", reach=Reach.SHARED, tag="status"),
    get("/v1/code", "list_code", tag="status"),
    get("/v1/leases/expired", "list_expired_leases", tag="status"),
    post(
        "/v1/doctor",
        "doctor",
        reach=Reach.SHARED,
        repeat=Repeat.READ,
        is_expensive=True,
        tag="status",
    ),
    get("/v1/signing-keys", "list_waitpoint_hmac_kids", reach=Reach.SHARED, tag="signing keys"),
    post(
        "/v1/signing-keys",
        "seed_waitpoint_hmac_secret",
        reach=Reach.SHARED,
        statuses={"Seeded": 201},
        tag="signing keys",
    ),
    post(
        "/v1/signing-keys/rotate",
        "rotate_waitpoint_hmac_secret_all",
        reach=Reach.SHARED,
        tag="signing keys",
    ),
    post("/v1/groups", "create_consumer_group", reach=Reach.SHARED, tag="groups"),
    get("/v1/groups", "list_consumer_groups", reach=Reach.SHARED, tag="groups"),
    row(
        "DELETE",
        _GROUP,
        "delete_consumer_group",
        reach=Reach.SHARED,
        hidden=("actor",),
        tag="groups",
    ),
    post(
        f"{_GROUP}/read",
        "read_group",
        scope=Scope.WORKER,
        reach=Reach.SHARED,
        query=("wait_ms",),
        repeat=Repeat.STATE,
        tag="groups",
    ),
    post(f"{_GROUP}/ack", "ack_group", reach=Reach.SHARED, tag="groups"),
)
