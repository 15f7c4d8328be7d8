"""Sessions: how a server knows browsers. Only a server beside the store asks for them."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, operation
from flowfabric.errors import Unauthorized
from flowfabric.model.session import Session, SessionEnded, SessionOpened
from flowfabric.model.suspension import Token


@operation("open_session", Kind.WRITE, Scope.ADMIN, errors=(Unauthorized,), is_local=True)
class OpenSession(Request[SessionOpened], frozen=True, kw_only=True):
    """Begin a session; its text is in the answer, and nowhere else ever again.

    `way`: token, link, oidc or proxy. `token`: the access token that is shown; the session ends
    with it. Of the other ways `subject` is the name of the person, and `roles` are its groups.
    `replaces`: the text of a session that ends with this.
    """

    way: str
    token: Token | None = None
    subject: str = ""
    roles: Sequence[str] = ()
    idle_ms: int = limits.SESSION_IDLE_MS_DEFAULT
    life_ms: int = limits.SESSION_LIFE_MS_DEFAULT
    replaces: Token | None = None


@operation("read_session", Kind.WRITE, Scope.ADMIN, errors=(Unauthorized,), is_local=True)
class ReadSession(Request[Session], frozen=True, kw_only=True):
    """The session of this text, if it is open; its use is noted now and then."""

    text: Token


@operation("end_session", Kind.WRITE, Scope.ADMIN, is_local=True)
class EndSession(Request[SessionEnded], frozen=True, kw_only=True):
    """End a session: servers refuse it where hints reach them, elsewhere within 30 seconds."""

    text: Token
