"""Ids and jitter that two engines draw alike, so that what they store can be compared."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pytest


class Mint:
    """One engine's source of everything random: a numbered sequence, started anew at will."""

    def __init__(self) -> None:
        self._count = 0
        self.tape: list[str] | None = None  # where ids are noted down as they are drawn

    def _next(self, purpose: str) -> bytes:
        self._count += 1
        return hashlib.blake2b(f"{purpose}{self._count}".encode(), digest_size=16).digest()

    def uuid(self, purpose: str, version: str) -> str:
        """A well-formed id; neither ids nor their partitions rise in the order of minting."""
        text = self._next(purpose).hex()
        text = f"{text[:8]}-{text[8:12]}-{version}{text[13:16]}-8{text[17:20]}-{text[20:]}"
        if self.tape is not None:
            self.tape.append(text)
        return text

    def fraction(self) -> float:
        """A number in [0, 1)."""
        return int.from_bytes(self._next("jitter")[:4]) / 2**32


class Playback(Mint):
    """Draws what another engine drew."""

    def __init__(self, tape: list[str]) -> None:
        super().__init__()
        self._rest = iter(tape)

    def uuid(self, purpose: str, version: str) -> str:
        """The next id on the tape."""
        return next(self._rest)


class MintSwitch:
    """Lets the engine that runs now draw from its own mint."""

    def __init__(self) -> None:
        self.current = Mint()

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Take the place of the randomness in `flowfabric.ids` until the patch is undone."""
        patch.setattr("flowfabric.ids.new_uuid7", lambda: self.current.uuid("execution", "7"))
        patch.setattr("flowfabric.ids.new_secret_id", lambda: self.current.uuid("secret", "4"))
        patch.setattr(
            "flowfabric.ids.new_secret_ids",
            lambda count: [self.current.uuid("secret", "4") for _ in range(count)],
        )
        patch.setattr("flowfabric.ids.random", SimpleNamespace(random=self._fraction))

    def _fraction(self) -> float:
        return self.current.fraction()


SWITCH: Final = MintSwitch()
