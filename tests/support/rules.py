"""The alert rules that are shipped, and what their expressions mean for two scrapes."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.scrape import Scrape

FOLDER: Final = Path(__file__).parents[2] / "docs" / "observability"
_RULE: Final = re.compile(r"- alert: (\w+)\n +expr: (.+)\n")
_EXPR: Final = re.compile(
    r"(?P<fold>max|min|sum)(?: by \((?P<by>[\w, ]+)\))? ?"
    r"\((?:increase\((?P<risen>\w+)\[5m\]\)|(?P<name>\w+))\)"
    r" (?P<sign>[<>]) (?P<bound>[\d.]+)"
)
_FOLDS: Final[dict[str, Callable[[Iterable[float]], float]]] = {"max": max, "min": min, "sum": sum}


class Rule(NamedTuple):
    """One alert."""

    name: str
    expr: str

    def fires(self, before: Scrape, after: Scrape) -> set[tuple[str, ...]]:
        """The groups of labels for which it holds, five minutes lying between the scrapes."""
        found = _EXPR.fullmatch(self.expr)
        assert found, self.expr
        groups: dict[tuple[str, ...], list[float]] = {}
        by = [] if found["by"] is None else found["by"].split(", ")
        metric = found["risen"] or found["name"]
        for (name, labels), value in after.samples.items():
            if name == metric:
                told = dict(labels)
                risen = value - (before.samples.get((name, labels), 0) if found["risen"] else 0)
                groups.setdefault(tuple(told.get(each, "") for each in by), []).append(risen)
        holds = operator.gt if found["sign"] == ">" else operator.lt
        fold, bound = _FOLDS[found["fold"]], float(found["bound"])
        return {group for group, values in groups.items() if holds(fold(values), bound)}


def rules() -> Sequence[Rule]:
    """All that are shipped."""
    text = (FOLDER / "alerts.yml").read_text("utf-8")
    found = [Rule(*each) for each in _RULE.findall(text)]
    assert len(found) == text.count("- alert:")
    return found


def named_in(text: str) -> set[str]:
    """The metrics that a text names."""
    return set(re.findall(r"\bff_[a-z_]+\b", text))
