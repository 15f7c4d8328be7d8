"""Sessions: how long each is good, and when its use is noted."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric import limits
from flowfabric.errors import InvalidInput
from flowfabric.kernel.access import has_ended
from flowfabric.model.access import AccessTokenRow
from flowfabric.model.checks import check_list, check_name, word_of
from flowfabric.model.record import replace
from flowfabric.model.session import SessionRow, Way


def check_way(value: object, *, has_token: bool) -> Way:
    """How a session is begun; a token is shown where that is the way, and nowhere else."""
    way = word_of(value, Way)
    if way is None:
        raise InvalidInput(f"way: expected some of {', '.join(Way)}", field="way")
    if has_token != (way is Way.TOKEN):
        raise InvalidInput("token: is shown where the way is `token`", field="token")
    return way


def check_roles(values: object) -> tuple[str, ...]:
    """The groups of a person, each once."""
    found = {check_name(each, field="roles") for each in check_list(values, field="roles")}
    if len(found) > limits.SESSION_ROLES_MAX:
        raise InvalidInput(f"roles: at most {limits.SESSION_ROLES_MAX}", field="roles")
    return tuple(sorted(found))


def begun(
    digest: str,
    way: Way,
    *,
    subject: str,
    token: AccessTokenRow | None,
    roles: Sequence[str],
    idle_ms: int,
    life_ms: int,
    now: int,
) -> SessionRow:
    """A new session; one that a token began ends with the token."""
    ends_at = now + life_ms if token is None else min(now + life_ms, token.expires_at)
    return SessionRow(
        digest,
        way,
        subject if token is None else token.name,
        None if token is None else token.token_id,
        tuple(roles),
        now,
        now,
        idle_ms,
        ends_at,
        min(now + idle_ms, ends_at),
    )


def is_open(row: SessionRow | None, token: AccessTokenRow | None, now: int) -> bool:
    """Whether a session opens something; `token`: the one that it names, if that exists."""
    if row is None or now >= row.due_at:
        return False
    return row.token_id is None or (token is not None and not has_ended(token, now))


def used(row: SessionRow, now: int) -> SessionRow | None:
    """The row with its last use; None where the one noted is new enough."""
    if now - row.used_at < min(limits.SESSION_USE_MS, row.idle_ms // 2):
        return None
    return replace(row, used_at=now, due_at=min(now + row.idle_ms, row.ends_at))
