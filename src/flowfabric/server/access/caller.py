"""A caller: the name, the scopes and the namespaces that a request has proved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowfabric.api.operation import Scope
from flowfabric.errors import InvalidInput, MissingNamespace, MissingScope, Unauthorized
from flowfabric.model.access import AccessToken, granted
from flowfabric.model.record import Record, replace
from flowfabric.model.session import Session, Way
from flowfabric.server.access.grants import Grant, grant_for

EVERYTHING: Final = frozenset(Scope)


class Caller(Record, frozen=True, kw_only=True):
    """Whose request it is, as far as it was proved.

    `actor`: for the audit trail, None where nothing was proved. `namespaces`: None is all of them.
    """

    actor: str | None
    scopes: frozenset[Scope]
    namespaces: frozenset[str] | None
    speaks_for: bool = False  # it may name another in whose name it acts
    is_known: bool = True
    session: Session | None = None  # by which it was proved, if not by a token

    def require(self, *scopes: Scope) -> None:
        """Refuse without one of the scopes; the first is the one to ask for."""
        if self.scopes.isdisjoint(scopes):
            self.require_known()
            scope = scopes[0].value
            raise MissingScope(f"this token lacks the scope {scope}", scope=scope)

    def require_known(self) -> None:
        """Refuse who has shown nothing."""
        if not self.is_known:
            raise Unauthorized

    def require_all(self) -> None:
        """Refuse a token for some namespaces: what is asked for belongs to all."""
        if self.namespaces is not None:
            raise MissingNamespace("only a token for all namespaces may")

    def sees(self, namespace: str) -> bool:
        """Whether objects of the namespace exist for it."""
        return self.namespaces is None or namespace in self.namespaces

    def home(self, named: str | None) -> str | None:
        """The namespace of a request that names this one, or none; None is the engine's own."""
        if named is not None:
            if not self.sees(named):
                raise MissingNamespace(f"this token is not for namespace {named}", namespace=named)
            return named
        if self.namespaces is None:
            return None
        if len(self.namespaces) == 1:
            return next(iter(self.namespaces))
        listed = ", ".join(sorted(self.namespaces))
        detail = f"namespace: name one of the token's: {listed}"
        raise InvalidInput(detail, field="namespace")


def caller_with(token: AccessToken) -> Caller:
    """Who shows a token."""
    return Caller(
        actor=f"token:{token.id}",
        scopes=granted(token.scopes),
        namespaces=None if token.namespaces is None else frozenset(token.namespaces),
        speaks_for=token.speaks_for,
    )


def caller_in(session: Session, grants: Sequence[Grant]) -> Caller:
    """Whose session it is: what a token allows, allows the session that was begun with it. A person
    has what the configuration grants at present; `Unauthorized` if it is nothing."""
    if session.token is not None:
        return replace(caller_with(session.token), session=session)
    if session.way is Way.LINK:  # the link came from the terminal of this very program
        actor = f"user:{session.subject}"
        return Caller(actor=actor, scopes=EVERYTHING, namespaces=None, session=session)
    grant = grant_for(session.roles, grants)
    if grant is None:
        raise Unauthorized
    return Caller(
        actor=f"user:{session.subject}",
        scopes=granted(grant.scopes),
        namespaces=None if grant.namespaces is None else frozenset(grant.namespaces),
        session=session,
    )


ANYBODY: Final = Caller(actor=None, scopes=frozenset(), namespaces=frozenset(), is_known=False)
# A server without any token listens on loopback only, and allows everything there.
UNGUARDED: Final = Caller(actor=None, scopes=EVERYTHING, namespaces=None, speaks_for=True)
