"""Sessions: begun, read, ended. Those that are over are swept."""

from __future__ import annotations

from flowfabric import ids, limits
from flowfabric.api import sessions as api
from flowfabric.api.hints import ACCESS_TOPIC
from flowfabric.engine.acts import act_now, settle
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.audit import note_act
from flowfabric.engine.operations.performing import answers
from flowfabric.engine.unit.records import Rows, save_rows
from flowfabric.engine.unit.view import EVERY_WAITER
from flowfabric.errors import InvalidInput, Unauthorized
from flowfabric.kernel import access, sessions
from flowfabric.model.access import AccessTokenRow, TokenParts, read_token, shown_token
from flowfabric.model.checks import check_integer, check_name
from flowfabric.model.session import (
    Session,
    SessionEnded,
    SessionOpened,
    SessionRow,
    Way,
    session_digest,
    session_text,
    shown_session,
)
from flowfabric.model.suspension import Token
from flowfabric.stores.base import Reader, Transaction
from flowfabric.stores.tables import ACCESS_TOKENS, SESSIONS


@answers(api.OpenSession)
async def open_session(machine: Machine, request: api.OpenSession) -> SessionOpened:
    """With random text, of which a hash is kept. The session that it replaces ends with it."""
    way = sessions.check_way(request.way, has_token=request.token is not None)
    subject = "" if way is Way.TOKEN else check_name(request.subject, field="subject")
    roles = sessions.check_roles(request.roles)
    idle_ms, life_ms = [
        check_integer(value, field=field, least=limits.SESSION_MS_MIN, most=limits.SESSION_MS_MAX)
        for field, value in (("idle_ms", request.idle_ms), ("life_ms", request.life_ms))
    ]
    parts = None if request.token is None else _parts(request.token)
    former = None if request.replaces is None else _digest(request.replaces, "replaces")
    text = session_text(ids.new_secret_bytes(32))
    digest, act = session_digest(text) or "", act_now()

    async def work(tx: Transaction) -> tuple[SessionRow, AccessTokenRow | None]:
        await tx.catalog()  # with the clock
        shown = None if parts is None else await _good_token(tx, parts)
        row = sessions.begun(
            digest,
            way,
            subject=subject,
            token=shown,
            roles=roles,
            idle_ms=idle_ms,
            life_ms=life_ms,
            now=tx.now,
        )
        rows = Rows()
        if former is not None:
            rows.take(SESSIONS, await tx.rows(SESSIONS, [(former,)]))
            rows.drop(SESSIONS, [(former,)])
        rows.put(SESSIONS, row)
        note_act(machine, rows, act, None, tx.now, actor=_actor(row))
        await save_rows(tx, rows)
        return row, shown

    row, shown = await machine.transact(work)
    settle(act)
    if former is not None:
        machine.store.hints.publish({ACCESS_TOPIC: EVERY_WAITER})
    return SessionOpened(Token(text), _shown(row, shown))


@answers(api.ReadSession)
async def read_session(machine: Machine, request: api.ReadSession) -> Session:
    """Whatever is wrong with a text, the refusal is the same."""
    digest = _digest(request.text, "text")
    if digest is None:
        raise Unauthorized
    key = (digest,)

    async def look(reader: Reader) -> tuple[SessionRow | None, AccessTokenRow | None, int]:
        await reader.catalog()  # with the clock
        row = (await reader.peek_rows(SESSIONS, [key])).get(key)
        token = None
        if row is not None and row.token_id is not None:
            found = await reader.peek_rows(ACCESS_TOKENS, [(row.token_id,)])
            token = found.get((row.token_id,))
        return row, token, reader.now

    row, token, now = await machine.read(look)
    if row is None or not sessions.is_open(row, token, now):
        raise Unauthorized
    if sessions.used(row, now) is not None:
        await machine.transact(lambda tx: _note_use(tx, key))
    return _shown(row, token)


@answers(api.EndSession)
async def end_session(machine: Machine, request: api.EndSession) -> SessionEnded:
    """For good."""
    digest = _digest(request.text, "text")
    if digest is None:
        return SessionEnded(False)
    key, act = (digest,), act_now()

    async def work(tx: Transaction) -> bool:
        await tx.catalog()  # with the clock
        found = await tx.rows(SESSIONS, [key])
        rows = Rows()
        rows.take(SESSIONS, found)
        rows.drop(SESSIONS, found)
        if key in found:
            note_act(machine, rows, act, None, tx.now, actor=_actor(found[key]))
        await save_rows(tx, rows)
        return bool(found)

    is_new = await machine.transact(work)
    settle(act)
    machine.store.hints.publish({ACCESS_TOPIC: EVERY_WAITER})
    return SessionEnded(is_new)


def _actor(row: SessionRow) -> str:
    """The name in which its person acts."""
    return f"user:{row.subject}" if row.token_id is None else f"token:{row.token_id}"


async def _note_use(tx: Transaction, key: tuple[str]) -> None:
    await tx.catalog()  # with the clock
    row = (await tx.rows(SESSIONS, [key])).get(key)
    noted = None if row is None else sessions.used(row, tx.now)
    if row is not None and noted is not None:
        rows = Rows()
        rows.take(SESSIONS, {key: row})
        rows.put(SESSIONS, noted)
        await save_rows(tx, rows)


async def _good_token(tx: Transaction, parts: TokenParts) -> AccessTokenRow:
    """The token that is shown. It is held, so that it is not revoked at this moment."""
    key = (parts.token_id,)
    row = (await tx.rows(ACCESS_TOKENS, [key])).get(key)
    if not access.is_good(row, parts.digest, tx.now) or row is None:
        raise Unauthorized
    return row


def _parts(token: object) -> TokenParts:
    parts = read_token(_revealed(token, "token"))
    if parts is None:
        raise Unauthorized
    return parts


def _digest(text: object, field: str) -> str | None:
    return session_digest(_revealed(text, field))


def _revealed(text: object, field: str) -> str:
    if not isinstance(text, Token):
        got = type(text).__name__
        raise InvalidInput(f"{field}: expected a Token, got {got}", field=field)
    return text.reveal()


def _shown(row: SessionRow, token: AccessTokenRow | None) -> Session:
    return shown_session(row, None if token is None else shown_token(token))
