"""Results of other nodes as arguments: how they travel, and how a worker puts them together.

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
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flowfabric.errors import InvalidInput
from flowfabric.model.shown import shown
from flowfabric.sdk import codec
from flowfabric.sdk.flow.joins import Join, Node

_AGAIN: Final = "="
_PLACE: Final = re.compile(r"(\w+)(?:\[(\d+)\]|\.(.*)|\|(\d+))", re.DOTALL)
_RAW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_Raws = dict[str, msgspec.Raw]


class Wiring:
    """The arguments of one node: what is sent with it, and what comes from others."""

    __slots__ = ("inputs", "joins", "own", "pending")

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.own: dict[str, Any] = {}
        self.inputs: dict[Node[Any], str] = {}  # under which name each result arrives
        self.joins: list[Join] = []  # that stand as arguments
        self.pending: list[str] = []  # arguments that are not known before others have ended
        for name, value in arguments.items():
            self._take(name, value)

    def _take(self, name: str, value: Any) -> None:
        if isinstance(value, Node):
            self._place(name, value)
        elif isinstance(value, Join):
            self.joins.append(value)
            if not value.gives_one:
                self.own[name] = []
            place = f"{name}|{{}}" if value.gives_one else f"{name}[{{}}]"
            for at, node in enumerate(value.nodes):
                self._place(place.format(at), node)
        elif isinstance(value, list | tuple) and any(isinstance(each, Node) for each in value):
            self.own[name] = []
            for at, each in enumerate(value):
                self._place(f"{name}[{at}]", each)
        elif isinstance(value, Mapping) and any(isinstance(v, Node) for v in value.values()):
            self._take_entries(name, value)
        else:
            self.own[name] = value
            return
        self.pending.append(name)

    def _take_entries(self, name: str, value: Mapping[Any, Any]) -> None:
        self.own[name] = {key: each for key, each in value.items() if not isinstance(each, Node)}
        for key, each in value.items():
            if isinstance(each, Node):
                if not isinstance(key, str) or key.endswith(_AGAIN):
                    detail = f"{name}: a node cannot stand under the key {shown(key)}"
                    raise InvalidInput(detail, field=name)
                self._place(f"{name}.{key}", each)

    def _place(self, place: str, value: Any) -> None:
        if not isinstance(value, Node):
            self.own[place] = value
        elif value in self.inputs:
            self.own[f"{place}{_AGAIN}"] = self.inputs[value]
        else:
            self.inputs[value] = place


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
    """Values that stand for several things, under all of their names."""
    for name in [each for each in given if each.endswith(_AGAIN)]:
        source = msgspec.json.decode(given.pop(name))
        if source in given:
            given[name.removesuffix(_AGAIN)] = given[source]
