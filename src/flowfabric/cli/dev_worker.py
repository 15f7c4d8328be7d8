"""The worker process of `ff dev`: it tells which files it was made of, and works until it is told
to stop or is left alone."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import sysconfig
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from flowfabric.cli.commands.worker import load
from flowfabric.cli.exits import CommandFailed, describe
from flowfabric.cli.logs import write_logs
from flowfabric.cli.show.terminal import harmless, mask
from flowfabric.model.record import replace
from flowfabric.sdk.fabric import Fabric
from flowfabric.sdk.worker import Worker

_LOOK_S: Final = 1.0
_NOT_OWN: Final = tuple(
    {
        *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")),
        str(Path(__file__).resolve().parents[1]) + os.sep,
        "<",  # what no file holds
    }
)


def main() -> int:
    """Load the program, tell its files, work."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    write_logs(sys.stderr, level=logging.INFO, form="text")
    try:
        app = load(given["app"])
        app.url = given["url"]
        if given["namespace"] is not None:
            app.config = replace(app.config, namespace=given["namespace"])
        worker = _worker(app, given)
    except Exception as error:  # noqa: BLE001 - the program may raise anything
        _tell(files_of(error), is_loaded=False)
        _complain(error)
        return 1
    _tell(files_of(None), is_loaded=True)
    asyncio.run(_work(worker, given["parent"]))
    return 0


def _worker(app: Fabric, given: dict[str, Any]) -> Worker:
    options = {"drain_timeout": given["drain_s"]}
    if given["concurrency"] is not None:
        options["concurrency"] = given["concurrency"]
    return Worker(app, **options)


async def _work(worker: Worker, parent: int) -> None:
    beside = asyncio.create_task(_look_around(worker, parent))
    try:
        await worker.run()
    finally:
        beside.cancel()


async def _look_around(worker: Worker, parent: int) -> None:
    """Tell of files that are imported later; stop when the program that started this is gone."""
    told = files_of(None).keys()
    with suppress(BrokenPipeError):  # it is gone, too
        while os.getppid() == parent:
            await asyncio.sleep(_LOOK_S)
            files = files_of(None)
            if files.keys() != told:
                told = files.keys()
                _tell(files, is_loaded=True)
    worker.stop()


def files_of(error: Exception | None) -> dict[str, int]:
    """The files of the program, and when each was changed last. A module whose import has failed is
    imported no more: it is found by the error."""
    found = [str(getattr(each, "__file__", None) or "") for each in list(sys.modules.values())]
    while error is not None:
        if isinstance(error, SyntaxError) and error.filename:
            found.append(error.filename)
        found += [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        cause = error.__cause__
        error = cause if isinstance(cause, Exception) else None
    own = {each for each in found if each.endswith(".py") and not each.startswith(_NOT_OWN)}
    return {each: changed_at(each) for each in own}


def changed_at(file: str) -> int:
    """When a file was changed last; 0 where there is none."""
    try:
        return Path(file).stat().st_mtime_ns
    except OSError:
        return 0


def _tell(files: dict[str, int], *, is_loaded: bool) -> None:
    print(json.dumps({"files": files, "is_loaded": is_loaded}), flush=True)


def _complain(error: Exception) -> None:
    """The program's own error with its own lines; ours as a line."""
    text = describe(error)
    if isinstance(error, CommandFailed) and error.code == "import_failed":
        shown = traceback.TracebackException.from_exception(error.__cause__ or error)
        lines = [each for each in shown.stack if not each.filename.startswith(_NOT_OWN)]
        shown.stack = traceback.StackSummary.from_list(lines)
        print(harmless(mask("".join(shown.format(chain=False)))), file=sys.stderr)
        text = error.what
    print(f"ff: {harmless(mask(text))}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
