"""What a spender meant to do and what it was told, kept where a kill cannot reach it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tests.chaos.processes import whole_lines

BUDGETS = tuple(f"shared-{number}" for number in range(10))


class Intent(msgspec.Struct, tag="intent", kw_only=True):
    """A call that is about to be made."""

    number: str
    what: str
    budget_id: str
    execution_id: str
    key: str  # of the call's deduplication, or the hold's id
    amounts: Mapping[str, int]
    covered: Mapping[str, int] = {}  # by the hold that is settled


class Answer(msgspec.Struct, tag="answer"):
    """What it was told."""

    number: str
    outcome: str

    @property
    def was_applied(self) -> bool:
        """Whether a report or spend counts."""
        return self.outcome in ("Ok", "SoftBreach")


class Diary:
    """A file to which one process appends."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def note(self, line: Intent | Answer) -> None:
        """In one write, and on the disk before we go on."""
        os.write(self._file, msgspec.json.encode(line) + b"\n")
        os.fdatasync(self._file)


def read_diaries(directory: Path) -> tuple[list[Intent], dict[str, list[Answer]]]:
    """Every intent in order, and the answers by the intent's number."""
    intents: list[Intent] = []
    answers: dict[str, list[Answer]] = {}
    for path in sorted(directory.glob("*.diary")):
        for line in whole_lines(path):
            entry = msgspec.json.decode(line, type=Intent | Answer)
            if isinstance(entry, Intent):
                intents.append(entry)
            else:
                answers.setdefault(entry.number, []).append(entry)
    return intents, answers
