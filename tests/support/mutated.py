"""A secret with a few of its letters changed, as by a guesser or a typist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

_LETTERS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_OTHERS: Final = "_-. +/=\x00é"


def mutated(text: str, random: Random) -> str:
    """The text after one change."""
    at = random.randrange(len(text))
    other = random.choice(_LETTERS + _OTHERS)
    match random.randrange(7):
        case 0:
            return text[:at] + other + text[at + 1 :]
        case 1:
            return text[:at] + text[at + 1 :]
        case 2:
            return text[:at] + other + text[at:]
        case 3:
            return text[: at - 1] + text[at : at + 1] + text[at - 1 : at] + text[at + 1 :]
        case 4:
            return text[:at] + text[at].swapcase() + text[at + 1 :]
        case 5:
            return text[:at]
        case _:
            start, end = sorted((at, random.randrange(len(text))))
            return text[:start] + "".join(random.sample(text[start:end], end - start)) + text[end:]
