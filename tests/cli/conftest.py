"""The desk every command test sits at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.desk import Desk
from tests.support.loopback import open_loopback
from tests.support.socketed import THROUGH_HTTP


@pytest.fixture(autouse=True)
def _own_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was shown last is the user's; tests have their own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(autouse=True)
def _engines_behind_a_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands ask and are answered in bytes, so that nothing passes the waist that could not cross
    a wire."""
    monkeypatch.setattr("flowfabric.assemble.open_engine", open_loopback)


# With a server as well in every run; the others only where FF_THROUGH=http says so.
_OVER_HTTP = (
    "test_asks",
    "test_flow",
    "test_limits",
    "test_operating",
    "test_schedules",
    "test_waits",
)


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Commands give the same output and exit codes for a store and for a server."""
    if "desk" not in metafunc.fixturenames:
        return
    both = metafunc.definition.path.stem in _OVER_HTTP
    over = ("server",) if THROUGH_HTTP else ("store", "server") if both else ("store",)
    metafunc.definition.add_marker(pytest.mark.parametrize("desk", over, indirect=True))


@pytest.fixture
def desk(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Desk]:
    """A fresh database, and the command line in front of it or of its server."""
    desk = Desk(tmp_path, capsys, through_server=request.param == "server")
    yield desk
    desk.close()
