"""A scrape, read as Prometheus does, and as strictly."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = r"[a-z_][a-z0-9_]*"
_VALUE = r'"(?:[^"\\\n]|\\["\\n])*"'
_SAMPLE = re.compile(rf"({_NAME})(?:\{{({_NAME}={_VALUE}(?:,{_NAME}={_VALUE})*)\}})? (\S+)")
_PAIR = re.compile(rf"({_NAME})=({_VALUE})")

Labels = frozenset[tuple[str, str]]


class Scrape:
    """The samples of a text by name and labels."""

    def __init__(self, text: str) -> None:
        self.kinds: dict[str, str] = {}
        self.samples: dict[tuple[str, Labels], float] = {}
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                assert name not in self.kinds, line
                self.kinds[name] = kind
            elif not line.startswith("# HELP "):
                self._sample(line)

    def _sample(self, line: str) -> None:
        found = _SAMPLE.fullmatch(line)
        assert found, line
        name, labels, value = found.groups()
        pairs = frozenset((key, text[1:-1]) for key, text in _PAIR.findall(labels or ""))
        family = re.sub("_(bucket|sum|count)$", "", name)
        assert name in self.kinds or self.kinds[family] == "histogram", line
        assert (name, pairs) not in self.samples, f"{line} comes twice"
        self.samples[name, pairs] = float(value)

    def value(self, name: str, **labels: str) -> float | None:
        """One sample."""
        return self.samples.get((name, frozenset(labels.items())))

    def total(self, name: str, **labels: str) -> float:
        """All samples of a name with these labels, and whatever others."""
        wanted = set(labels.items())
        found = [value for (each, has), value in self.samples.items() if each == name]
        return (
            sum(
                value
                for (each, has), value in self.samples.items()
                if each == name and wanted <= has
            )
            if found
            else 0.0
        )

    def labels(self, name: str) -> set[str]:
        """The names of the labels of a metric."""
        return {key for each, has in self.samples if each == name for key, _ in has}

    def families(self) -> Mapping[str, str]:
        """Each metric with at least one sample, and its kind."""
        seen = {name for name, _ in self.samples}
        seen |= {re.sub("_(bucket|sum|count)$", "", name) for name in seen}
        return {name: kind for name, kind in self.kinds.items() if name in seen}
