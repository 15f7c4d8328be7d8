"""The other process of `elsewhere`: imports tasks, replays histories, tells what differs."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from types import ModuleType
from typing import Any, Final, cast

from flowfabric.sdk.fabric import Fabric, answered_by
from flowfabric.sdk.task import Task
from flowfabric.testing.errors import ReplayMismatch
from flowfabric.testing.history import read
from flowfabric.testing.loop import run
from flowfabric.testing.replay import check
from flowfabric.testing.tape import Nowhere

MARK: Final = "flowfabric-replayed:"


def main() -> None:
    """Read jobs, write one line."""
    given = json.load(sys.stdin)
    sys.path[:] = given["path"]
    problems = run(_checked(given["jobs"]))
    sys.stdout.write(f"{MARK}{json.dumps(problems)}\n")


async def _checked(jobs: list[dict[str, str]]) -> list[str]:
    problems = []
    for job in jobs:
        task = _task(job)
        if task is None:
            continue
        try:
            with answered_by(cast("Fabric", task.fabric), Nowhere()):
                await check(task, read(job["history"]))
        except ReplayMismatch as error:
            problems.append(str(error))
    return problems


def _task(job: dict[str, str]) -> Task[..., Any] | None:
    """The task, or None where another process cannot have it."""
    try:
        found: Any = _module(job["module"], job["file"])
    except Exception:  # noqa: BLE001 - a module may need what only the session of tests has
        return None
    for part in job["name"].split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, Task) else None


def _module(name: str, file: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module


if __name__ == "__main__":
    main()
