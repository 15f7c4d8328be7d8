"""The engine behind the waist, for tests that look at what only an engine has."""

from __future__ import annotations

from flowfabric.api.backend import EngineBackend
from flowfabric.engine.engine import Engine
from tests.support.loopback import Loopback


def inner(backend: EngineBackend) -> Engine:
    """The backend, or what is behind its wire: an engine of this process."""
    if isinstance(backend, Loopback):
        return backend.engine
    assert isinstance(backend, Engine)
    return backend
