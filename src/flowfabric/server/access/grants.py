"""What the groups of a person allow, by a table in the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowfabric.errors import InvalidInput
from flowfabric.model.access import Scope
from flowfabric.model.checks import check_name
from flowfabric.model.record import Record

_FIELD: Final = "oidc_groups"
_FORM: Final = "expected GROUP=SCOPE+SCOPE or GROUP=SCOPE@NAMESPACE+NAMESPACE"


class Grant(Record, frozen=True):
    """One row of the table. `namespaces`: None is all of them."""

    group: str
    scopes: tuple[Scope, ...]
    namespaces: tuple[str, ...] | None


def grants_of(words: Sequence[str]) -> tuple[Grant, ...]:
    """The rows of a table that is written as words.

    >>> grants_of(["ops=operate@shop"])[0].namespaces
    ('shop',)
    """
    found = tuple(map(_grant, words))
    if len({each.group for each in found}) != len(found):
        raise InvalidInput(f"{_FIELD}: a group is named twice", field=_FIELD)
    return found


def _grant(word: str) -> Grant:
    group, equals, rest = word.rpartition("=")
    scopes, at, spaces = rest.partition("@")
    named = scopes.split("+")
    if not (group and equals) or not all(each in tuple(Scope) for each in named):
        raise InvalidInput(f"{_FIELD}: {word!r:.100}: {_FORM}", field=_FIELD)
    namespaces = tuple(check_name(each, field=_FIELD) for each in spaces.split("+")) if at else None
    return Grant(check_name(group, field=_FIELD), tuple(map(Scope, named)), namespaces)


def grant_for(groups: Sequence[str], grants: Sequence[Grant]) -> Grant | None:
    """The row that counts for a person: the first one that names a group of theirs, alone. Were
    several put together, the scopes of one would reach the namespaces of another."""
    return next((each for each in grants if each.group in groups), None)
