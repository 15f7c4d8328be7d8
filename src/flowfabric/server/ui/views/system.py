"""The server and its store: versions, health, tokens, keys of links, and what doctor says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flowfabric.model.access import AccessToken
from flowfabric.model.record import Record
from flowfabric.model.suspension import KeyInfo

PATH = "/ui/system"


class TokenLine(Record, frozen=True, kw_only=True):
    """One access token; never its secret."""

    id: str
    name: str
    scopes: str
    namespaces: str
    created_by: str
    expires_at: int
    last_used_at: int | None
    state: str


class System(Record, frozen=True, kw_only=True):
    """The page. `keys`: of signatures of links, by id; none for callers that may not see them."""

    title: str = "System"
    facts: tuple[tuple[str, str], ...]
    checks: Mapping[str, bool]
    tokens: tuple[TokenLine, ...]
    keys: tuple[KeyInfo, ...]

    @property
    def sentence(self) -> str:
        """Whether it can answer."""
        wrong = [name for name, good in self.checks.items() if not good]
        return f"Not ready: {', '.join(wrong)}" if wrong else "Ready"


def token_line(token: AccessToken, now: int) -> TokenLine:
    """One token as the page shows it."""
    state = "active"
    if token.revoked_at is not None:
        state = "cancelled"
    elif token.expires_at <= now:
        state = "expired"
    return TokenLine(
        id=token.id,
        name=token.name,
        scopes=", ".join(each.value for each in token.scopes),
        namespaces="all" if token.namespaces is None else ", ".join(token.namespaces),
        created_by=token.created_by,
        expires_at=token.expires_at,
        last_used_at=token.last_used_at,
        state=state,
    )


def tokens_of(tokens: Iterable[AccessToken], now: int) -> tuple[TokenLine, ...]:
    """Those in force first."""
    lines = [token_line(each, now) for each in tokens]
    return tuple(sorted(lines, key=lambda line: (line.state != "active", line.name)))
