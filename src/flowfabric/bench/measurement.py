"""One measurement, as printed by `ff bench --json`."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from math import ceil
from typing import Any

from flowfabric.model.record import Record, to_plain


class Measurement(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The outcome of one scenario on one store. Fields that do not apply are null."""

    scenario: str
    store: str
    n: int
    throughput_per_s: float | None = None
    floor_per_s: float | None = None
    ratio_to_floor: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    settings: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    versions: dict[str, str] = {}

    def to_dict(self) -> dict[str, Any]:
        """Plain data with every key."""
        return dict(to_plain(self))


class MeasurementFailed(Exception):
    """The work was not really done, so its time means nothing."""


def check_count(what: str, found: int, expected: int) -> None:
    """Refuse a figure with work that is missing or was done twice."""
    if found != expected:
        raise MeasurementFailed(f"{what}: {found}, expected {expected}")


def percentile(samples: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 50)
    2.0
    """
    ordered = sorted(samples)
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


def percentiles_ms(seconds: Sequence[float]) -> dict[str, float]:
    """p50_ms, p95_ms and p99_ms of samples in seconds."""
    return {f"p{each}_ms": round(percentile(seconds, each) * 1000, 3) for each in (50, 95, 99)}


def versions() -> dict[str, str]:
    """The measured figures and their setting."""
    return {
        "flowfabric": _installed("flowfabric"),
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "sqlite": sqlite3.sqlite_version,
        "asyncpg": _installed("asyncpg"),
        "platform": platform.platform(),
        "cores": str(os.cpu_count()),
    }


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
