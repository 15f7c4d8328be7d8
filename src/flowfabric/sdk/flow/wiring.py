"""Results of other nodes as arguments of a node: `pieces` says under which names they travel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowfabric.errors import InvalidInput
from flowfabric.model.shown import shown
from flowfabric.sdk.flow.joins import Join, Node
from flowfabric.sdk.pieces import AGAIN


class Wiring:
    """The arguments of one node: those sent with it, and those that come from others."""

    __slots__ = ("inputs", "joins", "own", "pending")

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.own: dict[str, Any] = {}
        self.inputs: dict[Node[Any], str] = {}  # the name under which each result arrives
        self.joins: list[Join] = []  # joins used as arguments
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
                if not isinstance(key, str) or key.endswith(AGAIN):
                    detail = f"{name}: a node cannot stand under the key {shown(key)}"
                    raise InvalidInput(detail, field=name)
                self._place(f"{name}.{key}", each)

    def _place(self, place: str, value: Any) -> None:
        if not isinstance(value, Node):
            self.own[place] = value
        elif value in self.inputs:
            self.own[f"{place}{AGAIN}"] = self.inputs[value]
        else:
            self.inputs[value] = place
