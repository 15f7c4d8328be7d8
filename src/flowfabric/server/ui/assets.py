"""The files of the dashboard: read from the package once, named by their content, kept for good.

A name has a hash of what is in the file, so a browser never asks for one twice, and never uses an
old one. Modules import each other by plain names, which are replaced here by those with a hash.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

from flowfabric.errors import NotFound
from flowfabric.server.exchange import Answer, Call

if TYPE_CHECKING:
    from flowfabric.server.service import Service

_MEDIA: Final = {
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}
_IMPORT: Final = re.compile(rb'(?<=["\'])\./([a-z]+\.js)(?=["\'])')
_COMMENT: Final = re.compile(rb"/\*.*?\*/", re.DOTALL)
_SPACE: Final = re.compile(rb"\s+")
_AROUND: Final = re.compile(rb"\s*([{};])\s*")
_HASH_CHARS: Final = 12
_FOR_GOOD: Final = (
    (b"cache-control", b"public, max-age=31536000, immutable"),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"vary", b"accept-encoding"),
)


class Asset(NamedTuple):
    """One file as it is sent."""

    name: str
    media: bytes
    plain: bytes
    gzipped: bytes


@cache
def assets() -> Mapping[str, Asset]:
    """Every file, by its plain name."""
    static = files("flowfabric.server.ui") / "static"
    plain = {
        each.name: _tight(each.name, each.read_bytes())
        for each in static.iterdir()
        if _kind(each.name)
    }
    made: dict[str, Asset] = {}
    for name in plain:
        _make(name, plain, made)
    return made


def _tight(name: str, body: bytes) -> bytes:
    """Without what only readers of the source need: comments, and the space around lines."""
    if name.endswith(".css"):
        return _AROUND.sub(rb"\1", _SPACE.sub(b" ", _COMMENT.sub(b"", body))).strip()
    if name.endswith(".js"):
        lines = (line.strip() for line in body.splitlines())
        return b"\n".join(line for line in lines if line and not line.startswith(b"//"))
    return body


def _kind(name: str) -> bytes | None:
    return _MEDIA.get(name.rpartition(".")[2])


def _make(name: str, plain: Mapping[str, bytes], made: dict[str, Asset]) -> Asset:
    """An asset after those that it imports: a module's name depends on theirs."""
    if name in made:
        return made[name]

    def named(found: re.Match[bytes]) -> bytes:
        return b"./" + _make(found[1].decode(), plain, made).name.encode()

    body = _IMPORT.sub(named, plain[name])
    stem, _, kind = name.rpartition(".")
    digest = hashlib.sha256(body).hexdigest()[:_HASH_CHARS]
    zipped = gzip.compress(body, 9, mtime=0)
    made[name] = Asset(f"{stem}.{digest}.{kind}", _kind(name) or b"", body, zipped)
    return made[name]


@cache
def _by_address() -> Mapping[str, Asset]:
    return {each.name: each for each in assets().values()}


async def static(service: Service, call: Call) -> Answer:
    """One file, under its name with the hash."""
    asset = _by_address().get(call.params["name"])
    if asset is None:
        raise NotFound("there is no such file of the dashboard; reload the page")
    if b"gzip" in call.headers.get(b"accept-encoding", b""):
        headers = (*_FOR_GOOD, (b"content-encoding", b"gzip"))
        return Answer(asset.gzipped, media=asset.media, headers=headers)
    return Answer(asset.plain, media=asset.media, headers=_FOR_GOOD)
