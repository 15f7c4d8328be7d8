"""Access tokens, and the audit trail."""

from __future__ import annotations

from typing import Final

from flowfabric.server.routes.route import Reach
from flowfabric.server.routes.rows import get, post, row

TOKEN_ROUTES: Final = (
    post(
        "/v1/tokens",
        "create_access_token",
        reach=Reach.NAMED,
        statuses={"AccessTokenCreated": 201},
        tag="tokens",
    ),
    get("/v1/tokens", "list_access_tokens", tag="tokens"),
    row(
        "DELETE",
        "/v1/tokens/{token_id}",
        "revoke_access_token",
        hidden=("actor",),
        tag="tokens",
    ),
    get("/v1/audit", "list_audit", tag="audit"),
)
