"""How much a run tries: little on every push, as much as you like at night (`bin/soak`)."""

from __future__ import annotations

import os


def budget(variable: str, usual: int) -> int:
    """The number an environment variable asks for, else the usual one."""
    return int(os.environ.get(variable, usual))
