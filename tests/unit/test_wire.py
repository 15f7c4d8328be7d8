"""The wire can carry every request and every answer that the register declares."""

from __future__ import annotations

import pytest

from flowfabric.api import wire
from flowfabric.api.backend import EngineBackend
from flowfabric.api.operation import OPERATIONS
from flowfabric.errors import InvalidInput

CARRIED = sorted(name for name, each in OPERATIONS.items() if not each.is_local)
UNREADABLE = b"\xc1"  # the one byte that MessagePack never begins with


def test_the_register_is_filled() -> None:
    assert CARRIED
    assert all(hasattr(EngineBackend, name) for name in CARRIED)


@pytest.mark.parametrize("name", CARRIED)
def test_requests_can_be_read(name: str) -> None:
    """A type that cannot be read would be a TypeError, before any byte is looked at."""
    with pytest.raises(InvalidInput, match="malformed"):
        wire.decode_request(name, UNREADABLE)


@pytest.mark.parametrize("name", CARRIED)
def test_answers_can_be_read(name: str) -> None:
    with pytest.raises(InvalidInput, match="malformed"):
        wire.decode_reply(OPERATIONS[name], UNREADABLE)
