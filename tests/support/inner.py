"""The engine behind the waist, for tests that look at what only an engine has."""

from __future__ import annotations

from flowfabric.api.backend import EngineBackend
from flowfabric.engine.engine import Engine


def inner(backend: EngineBackend) -> Engine:
    """The backend, which is an engine of this process."""
    assert isinstance(backend, Engine)
    return backend
