"""Ids and jitter that two engines draw alike, so that what they store can be compared."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pytest


class Mint:
    """One engine's source of everything random: a numbered sequence of its own."""

    def __init__(self) -> None:
        self._count = 0
        self.tape: list[bytes] | None = None  # where secrets are noted down as they are drawn

    def _next(self, purpose: str, size: int) -> bytes:
        self._count += 1
        return hashlib.shake_256(f"{purpose}{self._count}".encode()).digest(size)

    def uuid7(self) -> str:
        """A well-formed id; neither ids nor their partitions rise in the order of minting."""
        text = self._next("execution", 16).hex()
        return f"{text[:8]}-{text[8:12]}-7{text[13:16]}-8{text[17:20]}-{text[20:]}"

    def secret(self, size: int) -> bytes:
        """What lease ids are made of."""
        drawn = self._next("secret", size)
        if self.tape is not None:
            self.tape.append(drawn)
        return drawn

    def fraction(self) -> float:
        """A number in [0, 1)."""
        return int.from_bytes(self._next("jitter", 4)) / 2**32


class Playback(Mint):
    """Draws the secrets another engine drew."""

    def __init__(self, tape: list[bytes]) -> None:
        super().__init__()
        self._rest = iter(tape)

    def secret(self, size: int) -> bytes:
        """The next one on the tape."""
        return next(self._rest, b"").ljust(size, b"?")


class MintSwitch:
    """Lets the engine that runs now draw from its own mint."""

    def __init__(self) -> None:
        self.current = Mint()

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Take the place of the randomness in `flowfabric.ids` until the patch is undone."""
        patch.setattr("flowfabric.ids.new_uuid7", self.uuid7)
        patch.setattr("flowfabric.ids.os", SimpleNamespace(urandom=self.secret))
        patch.setattr("flowfabric.ids.random", SimpleNamespace(random=self.fraction))

    def uuid7(self) -> str:
        """Instead of new_uuid7."""
        return self.current.uuid7()

    def secret(self, size: int) -> bytes:
        """Instead of os.urandom."""
        return self.current.secret(size)

    def fraction(self) -> float:
        """Instead of random.random."""
        return self.current.fraction()


SWITCH: Final = MintSwitch()
