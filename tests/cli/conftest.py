"""The desk every command test sits at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.desk import Desk
from tests.support.loopback import open_loopback


@pytest.fixture(autouse=True)
def _own_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was shown last is the user's; tests have their own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(autouse=True)
def _engines_behind_a_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands ask and are answered in bytes, so that nothing passes the waist that could not cross
    a wire."""
    monkeypatch.setattr("flowfabric.assemble.open_engine", open_loopback)


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(tmp_path, capsys)
