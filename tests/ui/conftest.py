"""A server on each store, and one in memory where the store is not the point."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.conftest import open_lab
from tests.support.http import Desk
from tests.support.lab import Lab


@pytest.fixture
def desk(lab: Lab) -> Desk:
    """A server on the lab's engine, on every store."""
    return Desk(lab.engine)


@pytest.fixture
def quick(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab in memory alone."""
    with ExitStack() as stack:
        yield open_lab("memory", request, stack)
