"""The stand-in for a store in a forked child: it refuses every call."""

from __future__ import annotations

from typing import NoReturn

from flowfabric.errors import ForkedProcess


class InheritedStore:
    """The parent's store, seen from its child."""

    async def close(self) -> None:
        """Nothing here is ours to close."""

    def __getattr__(self, name: str) -> NoReturn:
        raise ForkedProcess(
            "this engine was opened before the process was forked: open another one here, or use "
            "a Fabric, which does so by itself"
        )
