"""Access tokens: which ones may be made, and which ones are good."""

from __future__ import annotations

import difflib
import hmac
from collections.abc import Sequence
from typing import Final

from flowfabric import limits
from flowfabric.errors import InvalidInput
from flowfabric.model.access import AccessTokenRow, Scope
from flowfabric.model.checks import check_list, check_name
from flowfabric.model.record import replace

_NOBODYS: Final = bytes(32)


def check_scopes(values: object) -> tuple[Scope, ...]:
    """Scopes by their words, each once, in the order of their enumeration."""
    given = set()
    for each in check_list(values, field="scopes"):
        if not isinstance(each, str) or each not in Scope.__members__.values():
            raise InvalidInput(f"scopes: {_unknown(each)}", field="scopes")
        given.add(Scope(each))
    if not given:
        listed = ", ".join(Scope)
        raise InvalidInput(f"scopes: name some of {listed}", field="scopes")
    return tuple(each for each in Scope if each in given)


def _unknown(word: object) -> str:
    listed = ", ".join(Scope)
    near = difflib.get_close_matches(word, list(Scope), 1) if isinstance(word, str) else []
    hint = f", did you mean {near[0]}?" if near else ""
    return f"expected some of {listed}{hint}"


def check_namespaces(values: object) -> tuple[str, ...] | None:
    """The namespaces of a token; None is all of them."""
    if values is None:
        return None
    named = {
        check_name(each, field="namespaces") for each in check_list(values, field="namespaces")
    }
    if not named:
        detail = "namespaces: name at least one, or give none at all for every namespace"
        raise InvalidInput(detail, field="namespaces")
    if len(named) > limits.TOKEN_NAMESPACES_MAX:
        detail = f"namespaces: more than {limits.TOKEN_NAMESPACES_MAX}"
        raise InvalidInput(detail, field="namespaces")
    return tuple(sorted(named))


def has_ended(row: AccessTokenRow, now: int) -> bool:
    """Whether it opens nothing any more."""
    return row.revoked_at is not None or now >= row.expires_at


def is_good(row: AccessTokenRow | None, digest: bytes, now: int) -> bool:
    """Whether a token opens something. As long for an unknown one as for a wrong one."""
    is_same = hmac.compare_digest(_NOBODYS if row is None else row.digest, digest)
    return row is not None and is_same and not has_ended(row, now)


def used(row: AccessTokenRow, now: int) -> AccessTokenRow | None:
    """The row with its last use; None where the one noted is new enough."""
    last = row.last_used_at
    if last is not None and now - last < limits.TOKEN_USE_MS:
        return None
    return replace(row, last_used_at=now)


def revoked(row: AccessTokenRow, actor: str, now: int) -> AccessTokenRow:
    """The row of a token that opens nothing from now on."""
    return replace(row, revoked_at=now, revoked_by=actor)


def is_within(row: AccessTokenRow, namespaces: Sequence[str] | None) -> bool:
    """Whether it is for some of these namespaces, and for no other."""
    return namespaces is None or (
        row.namespaces is not None and set(row.namespaces) <= set(namespaces)
    )
