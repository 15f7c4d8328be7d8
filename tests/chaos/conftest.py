"""Where the files of tests are that kill their writers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.chaos.processes import DISK


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """On a disk, unlike that of other tests (`bin/test`): what is promised after a crash is
    promised of files that are flushed."""
    with TemporaryDirectory(prefix="ff-chaos-", dir=DISK, ignore_cleanup_errors=True) as found:
        yield Path(found)
