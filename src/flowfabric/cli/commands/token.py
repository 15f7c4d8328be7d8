"""`ff token`: what programs show to a server. A token is printed once, when it is made."""

from __future__ import annotations

from typing import Final

from flowfabric.api.page import every_item
from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser, add_action, add_actions
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column
from flowfabric.cli.show.times import absolute, both
from flowfabric.limits import TOKEN_LIFE_MS_DEFAULT
from flowfabric.model.access import AccessToken, Scope

_COLUMNS: Final = (
    Column("TOKEN"),
    Column("NAME", shrinks=True, least=12),
    Column("SCOPES", shrinks=True, least=12),
    Column("NAMESPACES", shrinks=True, least=10),
    Column("LAST USED"),
    Column("GOOD UNTIL"),
)


def add_arguments(parser: FfParser) -> None:
    """The actions; without one it lists."""
    parser.set_defaults(handler=ls)
    actions = add_actions(parser)
    add_action(actions, "ls", ls, "list tokens; their secrets are kept nowhere")
    made = add_action(
        actions,
        "new",
        new,
        "make a token and print it, this once",
        many_tenants="it is for this tenant only (repeat; default: for all)",
    )
    made.add_argument("name", metavar="NAME", help="what it is for")
    made.add_argument(
        "--scope",
        action="append",
        metavar="WORD",
        help=f"what it allows: some of {', '.join(Scope)} (repeat)",
    )
    made.add_argument(
        "--expires", type=values.duration_ms, metavar="TIME", help="from now (default: 365d)"
    )
    made.add_argument(
        "--speaks-for",
        action="store_true",
        help="it may approve and signal in the name of others",
    )
    gone = add_action(actions, "revoke", revoke, "end a token")
    gone.add_argument("token_id", metavar="TOKEN", help="its id, as ff token ls has it")


async def new(call: Call) -> Exit:
    """The token goes to standard output, so that it can be kept by a pipe."""
    given = call.arguments
    single = [] if given.namespace is None else [given.namespace]
    async with call.engine(creates=True) as engine:
        made = await engine.create_access_token(
            name=given.name,
            scopes=given.scope or (),
            namespaces=given.namespaces or single or None,
            expires_in_ms=TOKEN_LIFE_MS_DEFAULT if given.expires is None else given.expires,
            speaks_for=given.speaks_for,
        )
    if call.terminal.as_json:
        call.terminal.document({**plain(made), "token": made.token.reveal()})
        return Exit.OK
    call.terminal.line(made.token.reveal())
    call.terminal.note(
        f"keep it now: it is shown only once. It is good until {absolute(made.expires_at)}; "
        f"ff token revoke {made.id} ends it"
    )
    return Exit.OK


async def ls(call: Call) -> Exit:
    """Every token, the newest first."""
    async with call.engine() as engine:
        found = await every_item(lambda cursor: engine.list_access_tokens(cursor=cursor))
        now = await engine.server_time_ms()
    newest_first = sorted(found, key=lambda each: (-each.created_at, each.id))
    if call.terminal.as_json:
        call.terminal.document(plain(newest_first))
    elif not found:
        call.terminal.note("no tokens yet: ff token new NAME --scope WORD makes one")
    else:
        call.terminal.table(_COLUMNS, [_row(each, now) for each in newest_first])
    return Exit.OK


def _row(token: AccessToken, now: int) -> tuple[object, ...]:
    namespaces = "all" if token.namespaces is None else ",".join(token.namespaces)
    scopes = ",".join(each.value for each in token.scopes)
    if token.revoked_at is not None:
        until = "revoked"
    else:
        until = "over" if now >= token.expires_at else both(token.expires_at, now)
    used = both(token.last_used_at, now) or "never"
    return (token.id, token.name, scopes, namespaces, used, until)


async def revoke(call: Call) -> Exit:
    """Programs that show it are refused from now on."""
    async with call.engine() as engine:
        gone = await engine.revoke_access_token(token_id=call.arguments.token_id)
    if call.terminal.as_json:
        call.terminal.document(plain(gone))
    elif gone.is_new:
        call.terminal.line(f"{gone.id} opens nothing any more; servers notice within 30 seconds")
    else:
        call.terminal.line(f"{gone.id} was revoked before")
    return Exit.OK
