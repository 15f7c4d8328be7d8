"""Two runs side by side: what went in, what came out, how long it took."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric.model.record import Record
from flowfabric.model.results import ExecutionSnapshot
from flowfabric.server.ui.views.jsontree import Node
from flowfabric.server.ui.views.runs import Row, row_of
from flowfabric.server.ui.views.tabs import Data


class Difference(Record, frozen=True, kw_only=True):
    """A value that is not the same on both sides; empty where one has none."""

    what: str
    path: str
    before: str
    after: str


class Comparison(Record, frozen=True, kw_only=True):
    """The page: the older run first."""

    title: str = "Compare"
    sides: tuple[tuple[Row, Data], ...]
    differences: tuple[Difference, ...]


def comparison_of(sides: Sequence[ExecutionSnapshot], data: Sequence[Data], now: int) -> Comparison:
    """What is different between a run and its retry. The old one may be gone by now."""
    found: list[Difference] = []
    if len(data) > 1:
        before, after = data[0], data[-1]
        for what, old, new in (
            ("input", before.given, after.given),
            ("result", before.result, after.result),
        ):
            first = leaves(old.tree) if old is not None and old.tree is not None else {}
            second = leaves(new.tree) if new is not None and new.tree is not None else {}
            found += [
                Difference(
                    what=what, path=path, before=first.get(path, ""), after=second.get(path, "")
                )
                for path in {**first, **second}
                if first.get(path) != second.get(path)
            ]
    rows = [row_of(each, now) for each in sides]
    return Comparison(sides=tuple(zip(rows, data, strict=True)), differences=tuple(found[:500]))


def leaves(node: Node) -> dict[str, str]:
    """Every value that holds no others, by its path."""
    if not node.children:
        return {node.path: {"object": "{}", "array": "[]"}.get(node.kind, node.text)}
    found: dict[str, str] = {}
    for each in node.children:
        found.update(leaves(each))
    return found
