"""Arguments in pieces: how results of other nodes travel, and how a worker puts them together.

An edge passes a result under one name of the payload. A result that is an argument by itself has
the argument's name. One of several travels under a name that no argument can have:

    parts[3]     the fourth element of the list `parts`
    parts.solar  an entry of the dictionary `parts`
    best|0       the first of the alternatives for `best`
    again=       the value under another name once more: a node has one edge to another

What has not arrived, because the node waits for some of its upstreams only, is left out.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from flowfabric.sdk import codec

AGAIN: Final = "="
_PLACE: Final = re.compile(r"(\w+)(?:\[(\d+)\]|\.(.*)|\|(\d+))", re.DOTALL)
_RAW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_Raws = dict[str, msgspec.Raw]


def assembled(payload: bytes) -> bytes | None:
    """The payload with every argument in one piece; nothing when it was so from the start."""
    try:
        given = _RAW.decode(payload)
    except codec.DecodeErrors:
        return None
    if all(name.isidentifier() for name in given):
        return None
    _repeat(given)
    lists: dict[str, dict[int, msgspec.Raw]] = {}
    entries: dict[str, _Raws] = {}
    choices: dict[str, dict[int, msgspec.Raw]] = {}
    whole: dict[str, Any] = {}
    for name, value in given.items():
        place = _PLACE.fullmatch(name)
        if place is None:
            whole[name] = value
        elif place[2] is not None:
            lists.setdefault(place[1], {})[int(place[2])] = value
        elif place[3] is not None:
            entries.setdefault(place[1], {})[place[3]] = value
        else:
            choices.setdefault(place[1], {})[int(place[4])] = value
    for name, parts in lists.items():
        whole[name] = [parts[at] for at in sorted(parts)]
    for name, found in entries.items():
        whole[name] = {**_RAW.decode(whole.get(name, b"{}")), **found}
    for name, ways in choices.items():
        whole[name] = ways[min(ways)]
    return msgspec.json.encode(whole)


def _repeat(given: _Raws) -> None:
    """Values that are passed under several names, under all of them."""
    for name in [each for each in given if each.endswith(AGAIN)]:
        source = msgspec.json.decode(given.pop(name))
        if source in given:
            given[name.removesuffix(AGAIN)] = given[source]
