"""Ids and jitter that two engines draw alike, so that what they store can be compared."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pytest


class Tape:
    """What was drawn, in order."""

    def __init__(self) -> None:
        self.secrets: list[bytes] = []
        self.fractions: list[float] = []


class Mint:
    """One engine's source of everything random: a numbered sequence of its own."""

    def __init__(self) -> None:
        self._count = 0
        self.tape: Tape | None = None  # where everything is noted down as it is drawn

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
            self.tape.secrets.append(drawn)
        return drawn

    def fraction(self) -> float:
        """A number in [0, 1)."""
        drawn = int.from_bytes(self._next("jitter", 4)) / 2**32
        if self.tape is not None:
            self.tape.fractions.append(drawn)
        return drawn


class Playback(Mint):
    """Draws what another engine drew."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._recorded = tape
        self.place = (0, 0)  # how far it was played; work that is run again goes back to its place

    def secret(self, size: int) -> bytes:
        """The next one on the tape."""
        at, other = self.place
        self.place = (at + 1, other)
        drawn = self._recorded.secrets[at : at + 1]
        return (drawn[0] if drawn else b"").ljust(size, b"?")

    def fraction(self) -> float:
        """The next one on the tape."""
        other, at = self.place
        self.place = (other, at + 1)
        drawn = self._recorded.fractions[at : at + 1]
        return drawn[0] if drawn else 0.0


class MintSwitch:
    """Lets the engine that runs now draw from its own mint."""

    def __init__(self) -> None:
        self.current = Mint()

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Take the place of the randomness in `flowfabric.ids` until the patch is undone."""
        patch.setattr("flowfabric.ids.new_uuid7s", self.uuid7s)
        patch.setattr("flowfabric.engine.operations.flow_requests.new_uuid7s", self.uuid7s)
        patch.setattr("flowfabric.ids.os", SimpleNamespace(urandom=self.secret))
        patch.setattr("flowfabric.ids.random", SimpleNamespace(random=self.fraction))

    def uuid7s(self, count: int) -> list[str]:
        """Instead of new_uuid7s."""
        return [self.current.uuid7() for _ in range(count)]

    def secret(self, size: int) -> bytes:
        """Instead of os.urandom."""
        return self.current.secret(size)

    def fraction(self) -> float:
        """Instead of random.random."""
        return self.current.fraction()


SWITCH: Final = MintSwitch()
