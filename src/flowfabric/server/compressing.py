"""Answers as gzip, for clients that ask for it."""

from __future__ import annotations

import asyncio
import zlib
from typing import Final

from flowfabric.server.exchange import Answer, Call

_LEAST: Final = 1_024  # below it nothing is won
_APART: Final = 262_144  # above it the event loop would stand still for too long
_LEVEL: Final = 4
_GZIP_WORD: Final = 16 + zlib.MAX_WBITS
_KINDS: Final = (b"application/json", b"application/problem+json", b"text/")
_VARY: Final = (b"vary", b"accept-encoding")


async def compressed(call: Call, answer: Answer) -> Answer:
    """The answer as it is sent: smaller, where that is asked for and worth it.

    What must not be stored may hold a secret beside what a caller has chosen, so that its size
    would tell of it: it is sent as it is.
    """
    if len(answer.body) <= _LEAST or not _is_text(answer) or _is_secret(answer):
        return answer
    if any(name == b"vary" for name, _ in answer.headers):  # its own handler has chosen
        return answer
    headers = (*answer.headers, _VARY)
    if not _takes_gzip(call):
        return Answer(answer.body, status=answer.status, media=answer.media, headers=headers)
    is_large = len(answer.body) > _APART
    body = await asyncio.to_thread(_packed, answer.body) if is_large else _packed(answer.body)
    headers = (*headers, (b"content-encoding", b"gzip"))
    return Answer(body, status=answer.status, media=answer.media, headers=headers)


def _is_text(answer: Answer) -> bool:
    return answer.media.startswith(_KINDS)


def _is_secret(answer: Answer) -> bool:
    return any(name == b"cache-control" and b"no-store" in each for name, each in answer.headers)


def _takes_gzip(call: Call) -> bool:
    for each in call.headers.get(b"accept-encoding", b"").decode("latin-1").lower().split(","):
        coding, _, options = each.partition(";")
        if coding.strip() in ("gzip", "x-gzip", "*"):
            return options.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _packed(body: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WORD)
    return packer.compress(body) + packer.flush()
