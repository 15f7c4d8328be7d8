"""Every operation of the seeds is there, but for those named here."""

from __future__ import annotations

from typing import Final

from flowfabric.api.backend import EngineBackend
from flowfabric.api.operation import OPERATIONS
from flowfabric.api.seeds import SEED_OPERATIONS, supported

# Nothing in Python corresponds to it: it hands out the concrete type behind an interface.
MEANINGLESS: Final = {"as_any"}


def test_the_seeds_have_115_operations() -> None:
    assert len(SEED_OPERATIONS) == len(set(SEED_OPERATIONS)) == 115


def test_every_operation_of_the_seeds_is_there() -> None:
    there = {name for name, is_there in supported().items() if is_there}
    assert set(SEED_OPERATIONS) - there == MEANINGLESS


def test_what_is_there_is_in_the_register_or_a_method_of_its_own() -> None:
    """Properties of the connection are answered without a request."""
    local = {name for name in SEED_OPERATIONS if name not in OPERATIONS}
    assert {name for name in local if hasattr(EngineBackend, name)} == {
        "backend_label",
        "capabilities",
    }
