"""The event loop of a test's histories."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.runner import StepRunner


@pytest.fixture
def runner() -> Iterator[StepRunner]:
    with closing(StepRunner()) as each:
        yield each
