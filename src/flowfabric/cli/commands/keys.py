"""`ff keys`: the keys that sign waitpoint tokens. Secrets are never printed."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit, not_found
from flowfabric.cli.grammar import FfParser, add_action, add_actions
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column
from flowfabric.cli.show.times import both, span
from flowfabric.limits import KEY_GRACE_MS_DEFAULT
from flowfabric.model.keys import NothingToRotate
from flowfabric.model.suspension import KeyInfo

_COLUMNS: Final = (
    Column("KEY"),
    Column("SIGNS"),
    Column("CREATED"),
    Column("VERIFIES UNTIL"),
)
_NUMBERED: Final = re.compile(r"k(\d{1,9})")


def add_arguments(parser: FfParser) -> None:
    """The actions; without one it lists."""
    parser.set_defaults(handler=ls)
    actions = add_actions(parser)
    add_action(actions, "ls", ls, "list keys; secrets are never shown")
    rotating = add_action(actions, "rotate", rotate, "sign with a new key from now on")
    rotating.add_argument("--kid", metavar="NAME", help="of the new key (default: the next number)")
    rotating.add_argument(
        "--grace",
        type=values.duration_ms,
        metavar="TIME",
        help="how long tokens of the old key are still good (default 1d)",
    )
    rotating.add_argument(
        "--secret-file", metavar="FILE", help="the new secret in hex, - for stdin (default: random)"
    )


async def ls(call: Call) -> Exit:
    """The current key and those that still verify."""
    async with call.engine() as engine:
        keys = await engine.list_waitpoint_hmac_kids()
        now = await engine.server_time_ms()
    if call.terminal.as_json:
        call.terminal.document(plain(keys))
        return Exit.OK
    newest_first = sorted(keys, key=lambda key: (not key.is_current, -key.created_at))
    rows = [
        (
            key.kid,
            "yes" if key.is_current else "no",
            both(key.created_at, now),
            both(key.expires_at, now) or "replaced",
        )
        for key in newest_first
    ]
    call.terminal.table(_COLUMNS, rows)
    return Exit.OK


async def rotate(call: Call) -> Exit:
    """Sign with a new key; tokens of the old one stay good for the grace."""
    arguments = call.arguments
    secret = None if arguments.secret_file is None else _secret(arguments.secret_file)
    grace = KEY_GRACE_MS_DEFAULT if arguments.grace is None else arguments.grace
    async with call.engine() as engine:
        kid = arguments.kid or next_kid(await engine.list_waitpoint_hmac_kids())
        reply = await engine.rotate_waitpoint_hmac_secret_all(
            new_kid=kid, new_secret_hex=secret, grace_ms=grace
        )
    if call.terminal.as_json:
        rotated = not isinstance(reply, NothingToRotate)
        call.terminal.document(plain(reply) | {"rotated": rotated, "grace_ms": grace})
    elif isinstance(reply, NothingToRotate):
        call.terminal.line(f"{reply.kid} signs already")
    else:
        call.terminal.line(f"{reply.new_kid} signs from now on")
        if reply.previous_kid is not None:
            left = f"tokens signed by {reply.previous_kid} are good for {span(grace)} more"
            call.terminal.note(left)
    return Exit.OK


def next_kid(keys: Sequence[KeyInfo]) -> str:
    """`k2` after `k1`."""
    numbers = [int(found[1]) for key in keys if (found := _NUMBERED.fullmatch(key.kid))]
    return f"k{max(numbers, default=0) + 1}"


def _secret(path: str) -> str:
    """The secret's hex from a file: on the command line others could read it."""
    if path == "-":
        return sys.stdin.readline().strip()
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise not_found(f"cannot read {path}: {error.strerror}", advice="check the path") from None
