"""`ff`: see and operate FlowFabric from a terminal."""

from __future__ import annotations

from flowfabric.cli.program import main

__all__ = ["main"]
