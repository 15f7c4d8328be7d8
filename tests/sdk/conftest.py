"""A fresh store per test, by its URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.loopback import open_memory_behind_a_wire
from tests.support.socketed import THROUGH_HTTP, open_memory_over_http, open_socketed

# Over HTTP in every run; the others only where FF_THROUGH=http says so.
_OVER_HTTP = (
    "test_children",
    "test_outage",
    "test_streaming",
    "test_tasks",
    "test_waits",
    "test_worker",
)


@pytest.fixture(autouse=True)
def _memory_behind_a_wire(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fabrics in memory ask and are answered in bytes, so that nothing passes the waist that could
    not cross a wire; some of them over HTTP."""
    opener = open_memory_behind_a_wire
    if THROUGH_HTTP:
        opener = open_socketed
    elif request.path.stem in _OVER_HTTP:
        opener = open_memory_over_http
    monkeypatch.setattr("flowfabric.assemble.open_engine", opener)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Every kind of store."""
    return "memory://" if request.param == "memory" else _durable(request, tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def durable_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that outlives its engine."""
    return _durable(request, tmp_path)


def _durable(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/flowfabric.db"
    return str(request.getfixturevalue("postgres_url"))
