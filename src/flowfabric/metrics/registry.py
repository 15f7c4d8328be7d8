"""The values of the metrics of one process.

A counter costs a look into a dict. Labels are tuples in the order of the catalogue.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from flowfabric.metrics.catalogue import CATALOGUE, OTHER, Form, Metric

V = TypeVar("V")
Labels = tuple[str, ...]
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_LABEL_MAX: Final = 120  # characters


class _Family(Generic[V]):
    """The values of a metric by their labels, never more than it may have."""

    __slots__ = ("_open", "metric", "values")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.values: dict[Labels, V] = {}
        self._open = tuple(name in metric.open for name in metric.labels)

    def _place(self, labels: Labels) -> Labels:
        """Where new labels are counted: under `other` once there are as many as there may be."""
        # Room is kept for the sets that take the rest.
        if not self.metric.open or len(self.values) < self.metric.most - self._rests():
            return labels
        return self._rest(labels)

    def _rest(self, labels: Labels) -> Labels:
        return tuple(
            OTHER if is_open else label for label, is_open in zip(labels, self._open, strict=True)
        )

    def _rests(self) -> int:
        """How many sets may be needed for the rest: one for each value of the other labels."""
        return 1 if all(self._open) else self.metric.most // 6


class Counter(_Family[float]):
    """A number for each set of labels."""

    __slots__ = ()

    def add(self, labels: Labels = (), by: float = 1) -> None:
        """So much more."""
        if labels not in self.values:
            labels = self._place(labels)
        self.values[labels] = self.values.get(labels, 0) + by

    def show(
        self, found: Mapping[Labels, float], together: Callable[[Iterable[float]], float] = sum
    ) -> None:
        """These values and no others; the smallest are put `together` where there are too many."""
        most = self.metric.most
        if len(found) > most:
            ranked = sorted(found, key=lambda each: -found[each])
            kept = {labels: found[labels] for labels in ranked[: most - self._rests()]}
            rest: dict[Labels, list[float]] = {}
            for labels in ranked[most - self._rests() :]:
                rest.setdefault(self._rest(labels), []).append(found[labels])
            found = {**kept, **{labels: together(several) for labels, several in rest.items()}}
        self.values = dict(found)

    def lines(self) -> Iterator[str]:
        """As Prometheus reads them."""
        name = self.metric.name
        for labels, value in sorted(self.values.items()):
            yield f"{name}{_braces(self.metric.labels, labels)} {_number(value)}"


class _Heights:
    """The counts of the buckets of one histogram, and the sum of its values."""

    __slots__ = ("counts", "total")

    def __init__(self, size: int) -> None:
        self.counts = [0] * size
        self.total = 0.0


class Histogram(_Family[_Heights]):
    """Buckets for each set of labels."""

    __slots__ = ()

    def observe(self, value: float, labels: Labels = ()) -> None:
        """One more value."""
        heights = self._of(labels)
        heights.counts[bisect_left(self.metric.bounds, value)] += 1
        heights.total += value

    def add(self, counts: Sequence[int], total: float, labels: Labels) -> None:
        """Values that were put into these buckets elsewhere."""
        heights = self._of(labels)
        for bucket, count in enumerate(counts):
            heights.counts[bucket] += count
        heights.total += total

    def _of(self, labels: Labels) -> _Heights:
        found = self.values.get(labels)
        if found is None:
            labels = self._place(labels)
            found = self.values.get(labels)
            if found is None:
                found = self.values[labels] = _Heights(len(self.metric.bounds) + 1)
        return found

    def lines(self) -> Iterator[str]:
        """As Prometheus reads them: each bucket with all below it."""
        name, names = self.metric.name, (*self.metric.labels, "le")
        bounds = [*map(_number, self.metric.bounds), "+Inf"]
        for labels, heights in sorted(self.values.items(), key=lambda each: each[0]):
            below = 0
            for bound, count in zip(bounds, heights.counts, strict=True):
                below += count
                yield f"{name}_bucket{_braces(names, (*labels, bound))} {below}"
            braces = _braces(self.metric.labels, labels)
            yield f"{name}_sum{braces} {_number(heights.total)}"
            yield f"{name}_count{braces} {below}"


class Registry:
    """Every metric of the catalogue, for one process.

    >>> registry = Registry()
    >>> registry.counter("ff_conflicts_total").add()
    >>> "ff_conflicts_total 1" in registry.text()
    True
    """

    def __init__(self) -> None:
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        for metric in CATALOGUE:
            if metric.form is Form.HISTOGRAM:
                self._histograms[metric.name] = Histogram(metric)
                continue
            made = self._counters[metric.name] = Counter(metric)
            if not metric.labels:
                made.values[()] = 0

    def counter(self, name: str) -> Counter:
        """A counter or a gauge by its name."""
        return self._counters[name]

    def histogram(self, name: str) -> Histogram:
        """A histogram by its name."""
        return self._histograms[name]

    def text(self) -> str:
        """Everything, as Prometheus reads it."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        families: dict[str, Any] = {**self._counters, **self._histograms}
        for metric in CATALOGUE:
            yield f"# HELP {metric.name} {metric.text}"
            yield f"# TYPE {metric.name} {metric.form}"
            yield from families[metric.name].lines()


def _braces(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{_shown(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{','.join(pairs)}}}"


def _shown(value: str) -> str:
    text = value if len(value) <= _LABEL_MAX else f"{value[: _LABEL_MAX - 1]}…"
    return text.translate(_ESCAPED)


def _number(value: float) -> str:
    """Whole numbers without a point."""
    return str(int(value)) if value == int(value) else repr(value)
