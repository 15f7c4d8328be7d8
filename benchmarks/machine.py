"""Facts about the machine and the code that were measured."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flowfabric.bench.databases import disk, filesystem

REPOSITORY = Path(__file__).resolve().parents[1]


def facts() -> dict[str, Any]:
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "--short", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--", "src", "benchmarks")),
        "cpu": _first_line("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory": _first_line("/proc/meminfo", "MemTotal"),
        "system": platform.platform(),
        "disk": f"{filesystem(disk())} at {disk()}",
        "load_average": load(),
    }


def load() -> list[float]:
    return [round(each, 2) for each in os.getloadavg()]


def _first_line(file: str, name: str) -> str:
    path = Path(file)
    if not path.exists():
        return ""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), "")


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()
