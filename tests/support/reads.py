"""What the stores with statements read while a page is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowfabric.stores.postgres.view import PostgresView
from flowfabric.stores.sqlite.view import SqliteView

if TYPE_CHECKING:
    import pytest


class Reads:
    """Statements, and the rows that they answer."""

    def __init__(self) -> None:
        self.statements = 0
        self.rows = 0

    def watch(self, monkeypatch: pytest.MonkeyPatch, view: type[Any], *names: str) -> None:
        for name in names:
            self._watch(monkeypatch, view, name, getattr(view, name))

    def _watch(self, monkeypatch: pytest.MonkeyPatch, view: Any, name: str, asked: Any) -> None:
        async def counted(that: Any, *given: Any, **more: Any) -> Any:
            rows = await asked(that, *given, **more)
            self.statements += 1
            self.rows += len(rows)
            return rows

        monkeypatch.setattr(view, name, counted)

    def take(self) -> tuple[int, int]:
        """Those since the last time."""
        found = self.statements, self.rows
        self.statements = self.rows = 0
        return found


def watched(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Reads of all stores with statements, from now on."""
    found = Reads()
    found.watch(monkeypatch, SqliteView, "query")
    found.watch(monkeypatch, PostgresView, "query", "fetch")
    return found
