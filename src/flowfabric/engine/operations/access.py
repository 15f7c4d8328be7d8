"""Access tokens: made, listed, revoked, and recognised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

from flowfabric import ids, limits
from flowfabric.api import access as api
from flowfabric.api.hints import ACCESS_TOPIC
from flowfabric.api.page import Page, at_name
from flowfabric.engine.acts import act_now, settle
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.audit import note_act
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers
from flowfabric.engine.unit.records import Rows
from flowfabric.engine.unit.view import EVERY_WAITER
from flowfabric.errors import InvalidInput, NotFound, ResourceExhausted, Unauthorized
from flowfabric.kernel import access as rules
from flowfabric.model.access import (
    TOKEN_ID_LENGTH,
    AccessToken,
    AccessTokenCreated,
    AccessTokenRevoked,
    AccessTokenRow,
    Namespaces,
    in_letters,
    read_token,
    shown_token,
    token_text,
)
from flowfabric.model.checks import check_flag, check_integer, check_list, check_name, check_text
from flowfabric.model.event import OperatorEvent, OperatorEventType
from flowfabric.model.execution import Execution
from flowfabric.model.suspension import Token
from flowfabric.stores.base import Changes, Reader, Transaction
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import (
    ACCESS_TOKENS,
    BUDGETS,
    FLOWS,
    GROUPS,
    OPERATIONS,
    QUOTAS,
    Table,
)

_LISTING: Final = Listing("list_access_tokens", at_name)


@answers(api.CreateAccessToken)
async def create_access_token(
    machine: Machine, request: api.CreateAccessToken
) -> AccessTokenCreated:
    """With a random secret, of which a hash is kept."""
    name = check_name(request.name, field="name")
    scopes = rules.check_scopes(request.scopes)
    namespaces = rules.check_namespaces(request.namespaces)
    life_ms = check_integer(
        request.expires_in_ms,
        field="expires_in_ms",
        least=limits.TOKEN_LIFE_MS_MIN,
        most=limits.TOKEN_LIFE_MS_MAX,
    )
    speaks_for = check_flag(request.speaks_for, field="speaks_for")
    actor = machine.actor(request.actor)
    token_id = in_letters(int.from_bytes(ids.new_secret_bytes(8)), TOKEN_ID_LENGTH)
    text, digest = token_text(token_id, ids.new_secret_bytes(32))
    act = act_now()

    async def work(tx: Transaction) -> AccessTokenRow:
        await tx.catalog()  # with the clock
        rows = Rows()
        await _make_room(tx, rows)
        now = tx.now
        row = AccessTokenRow(
            token_id, digest, name, scopes, namespaces, int(speaks_for), now, actor, now + life_ms
        )
        rows.put(ACCESS_TOKENS, row)
        event = _event(row, OperatorEventType.ACCESS_TOKEN_CREATED, actor, now)
        note_act(machine, rows, act, event, now)
        await _save(tx, rows, event)
        return row

    row = await machine.transact(work)
    settle(act)
    machine.store.hints.publish({ACCESS_TOPIC: EVERY_WAITER})
    return AccessTokenCreated(
        Token(text), row.token_id, name, scopes, namespaces, speaks_for, row.expires_at
    )


async def _make_room(tx: Transaction, rows: Rows) -> None:
    """Tokens that have ended give way to new ones when there are too many."""
    most = limits.ACCESS_TOKENS_MAX
    found = await tx.search(Search(by_key(ACCESS_TOKENS), limit=most, skips_corrupt=True))
    if len(found) < most:
        return
    ended = [ACCESS_TOKENS.key_of(each) for each in found if rules.has_ended(each, tx.now)]
    if not ended:
        detail = f"name: {most} tokens are good; revoke one"
        raise ResourceExhausted(detail, field="name", limit=most)
    rows.take(ACCESS_TOKENS, {ACCESS_TOKENS.key_of(each): each for each in found})
    rows.drop(ACCESS_TOKENS, ended)


async def _save(tx: Transaction, rows: Rows, *events: OperatorEvent) -> None:
    changes = Changes()
    changes.rows = rows.changes()
    for event in events:
        changes.log(event)
    await tx.save(changes)


def _event(row: AccessTokenRow, kind: OperatorEventType, actor: str, now: int) -> OperatorEvent:
    details: dict[str, Any] = {
        "name": row.name,
        "scopes": [each.value for each in row.scopes],
        "expires_at": row.expires_at,
    }
    if row.namespaces is not None:
        details["namespaces"] = list(row.namespaces)
    namespace = row.namespaces[0] if row.namespaces and len(row.namespaces) == 1 else ""
    return OperatorEvent(row.token_id, kind, details, namespace, {}, now, actor)


@answers(api.ListAccessTokens)
async def list_access_tokens(machine: Machine, request: api.ListAccessTokens) -> Page[AccessToken]:
    """By id; there are few, so that those of some namespaces are looked for among all."""
    place, limit = _LISTING.place(request.cursor), check_limit(request.limit)
    wanted = rules.check_namespaces(request.namespaces)
    most = limits.ACCESS_TOKENS_MAX if wanted is not None else limit

    async def work(reader: Reader) -> list[AccessTokenRow]:
        search = Search(by_key(ACCESS_TOKENS), after=place, limit=most + 1, skips_corrupt=True)
        return await reader.search(search) if limit else []

    found = [each for each in await machine.read(work) if rules.is_within(each, wanted)]
    return _LISTING.page(found, limit, place_of=lambda row: (row.token_id,), show=shown_token)


@answers(api.RevokeAccessToken)
async def revoke_access_token(
    machine: Machine, request: api.RevokeAccessToken
) -> AccessTokenRevoked:
    """For good."""
    key = (check_name(request.token_id, field="token_id"),)
    actor, act = machine.actor(request.actor), act_now()

    async def work(tx: Transaction) -> AccessTokenRevoked:
        await tx.catalog()  # with the clock
        row = (await tx.rows(ACCESS_TOKENS, [key])).get(key)
        if row is None:
            raise NotFound(f"access token {key[0]!s:.100}", entity="access_token")
        if row.revoked_at is not None:
            return AccessTokenRevoked(row.token_id, row.revoked_at, False)
        rows = Rows()
        rows.take(ACCESS_TOKENS, {key: row})
        rows.put(ACCESS_TOKENS, rules.revoked(row, actor, tx.now))
        event = _event(row, OperatorEventType.ACCESS_TOKEN_REVOKED, actor, tx.now)
        note_act(machine, rows, act, event, tx.now)
        await _save(tx, rows, event)
        return AccessTokenRevoked(row.token_id, tx.now, True)

    done = await machine.transact(work)
    settle(act)
    machine.store.hints.publish({ACCESS_TOPIC: EVERY_WAITER})
    return done


@answers(api.Authenticate)
async def authenticate(machine: Machine, request: api.Authenticate) -> AccessToken:
    """Whatever is wrong with a token, the refusal is the same."""
    shown: object = request.token
    if not isinstance(shown, Token):
        given = type(shown).__name__
        raise InvalidInput(f"token: expected a Token, got {given}", field="token")
    parts = read_token(shown.reveal())
    if parts is None:
        raise Unauthorized
    key = (parts.token_id,)

    async def look(reader: Reader) -> tuple[AccessTokenRow | None, int]:
        await reader.catalog()  # with the clock
        return (await reader.peek_rows(ACCESS_TOKENS, [key])).get(key), reader.now

    row, now = await machine.read(look)
    if not rules.is_good(row, parts.digest, now) or row is None:
        raise Unauthorized
    if rules.used(row, now) is not None:
        await machine.transact(lambda tx: _note_use(tx, key))
    return shown_token(row)


async def _note_use(tx: Transaction, key: tuple[str]) -> None:
    await tx.catalog()  # with the clock
    row = (await tx.rows(ACCESS_TOKENS, [key])).get(key)
    noted = None if row is None else rules.used(row, tx.now)
    if row is not None and noted is not None:
        rows = Rows()
        rows.take(ACCESS_TOKENS, {key: row})
        rows.put(ACCESS_TOKENS, noted)
        await _save(tx, rows)


# --- whose a thing is ----------------------------------------------------------------------------


@answers(api.FindNamespaces)
async def find_namespaces(machine: Machine, request: api.FindNamespaces) -> Namespaces:
    """By the keys of their rows."""
    ids = [each for each in _texts(request.execution_ids, "execution_ids") if _is_id(machine, each)]
    flows = _texts(request.flow_ids, "flow_ids")
    operations = _texts(request.operation_ids, "operation_ids")
    groups = _texts(request.group_ids, "group_ids")
    budgets = _texts(request.budget_ids, "budget_ids")
    quotas = _texts(request.quota_policy_ids, "quota_policy_ids")

    async def work(reader: Reader) -> Namespaces:
        executions = await reader.get(ids) if ids else {}
        return Namespaces(
            executions={
                key: each.namespace if isinstance(each, Execution) else ""
                for key, each in executions.items()
            },
            flows=await _owners(reader, FLOWS, flows, attrgetter("namespace")),
            operations=await _owners(reader, OPERATIONS, operations, attrgetter("namespace")),
            groups=await _owners(reader, GROUPS, groups, attrgetter("filter.namespace")),
            budgets=await _owners(reader, BUDGETS, budgets, attrgetter("namespace")),
            quotas=await _owners(reader, QUOTAS, quotas, attrgetter("namespace")),
        )

    return await machine.read(work)


async def _owners(
    reader: Reader, table: Table[Any], names: Sequence[str], owner: Callable[[Any], Any]
) -> dict[str, Any]:
    if not names:
        return {}
    rows = await reader.peek_rows(table, [(name,) for name in names])
    return {key[0]: owner(row) for key, row in rows.items()}


def _texts(values: object, field: str) -> tuple[str, ...]:
    """Names of things, each once."""
    given = check_list(values, field=field)
    if len(given) > limits.CREATE_MAX:
        raise InvalidInput(f"{field}: at most {limits.CREATE_MAX}", field=field)
    most = limits.NAME_BYTES
    return tuple(dict.fromkeys(check_text(each, field=field, max_bytes=most) for each in given))


def _is_id(machine: Machine, text: str) -> bool:
    try:
        machine.check_id(text)
    except InvalidInput:
        return False
    return True
