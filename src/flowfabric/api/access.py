"""Access tokens: what programs show to a server. Beside the store none is needed."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, UnsafeRequest, operation
from flowfabric.api.page import Page
from flowfabric.errors import InvalidCursor, NotFound, ResourceExhausted, Unauthorized
from flowfabric.model.access import (
    AccessToken,
    AccessTokenCreated,
    AccessTokenRevoked,
    Namespaces,
)
from flowfabric.model.suspension import Token


@operation("create_access_token", Kind.WRITE, Scope.ADMIN, errors=(ResourceExhausted,))
class CreateAccessToken(UnsafeRequest[AccessTokenCreated], frozen=True, kw_only=True):
    """Make a token; its text is in the answer, and nowhere else ever again.

    `namespaces`: those it is for; None is all of them. `speaks_for`: it may approve and signal
    in the name of others.
    """

    name: str
    scopes: Sequence[str]
    namespaces: Sequence[str] | None = None
    expires_in_ms: int = limits.TOKEN_LIFE_MS_DEFAULT
    speaks_for: bool = False


@operation("list_access_tokens", Kind.READ, Scope.ADMIN, errors=(InvalidCursor,))
class ListAccessTokens(Request[Page[AccessToken]], frozen=True, kw_only=True):
    """Tokens by id, those that have ended among them.

    `namespaces`: only those that are for some of these, and for no other.
    """

    namespaces: Sequence[str] | None = None
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("revoke_access_token", Kind.WRITE, Scope.ADMIN, errors=(NotFound,))
class RevokeAccessToken(UnsafeRequest[AccessTokenRevoked], frozen=True, kw_only=True):
    """End a token: servers refuse it at once where hints reach them, else within 30 seconds."""

    token_id: str


@operation("authenticate", Kind.WRITE, Scope.ADMIN, errors=(Unauthorized,))
class Authenticate(Request[AccessToken], frozen=True, kw_only=True):
    """The token of this text, if it is good; its use is noted now and then."""

    token: Token


@operation("find_namespaces", Kind.READ, Scope.ADMIN)
class FindNamespaces(Request[Namespaces], frozen=True, kw_only=True):
    """Which namespaces things belong to. An id that means nothing has none."""

    execution_ids: Sequence[str] = ()
    flow_ids: Sequence[str] = ()
    operation_ids: Sequence[str] = ()
    group_ids: Sequence[str] = ()
    budget_ids: Sequence[str] = ()
    quota_policy_ids: Sequence[str] = ()
