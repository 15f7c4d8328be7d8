"""Processes to be killed, forked from one that has imported the package once: most of what a start
costs is imports, and a test run starts some two hundred."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.reduction import DupFd
from typing import Any, Final

_IMPORTED: Final = [
    "flowfabric",
    "flowfabric.stores.postgres.store",
    "flowfabric.stores.sqlite.store",
]
_CONTEXT: Final = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(_IMPORTED)


class Born:
    """`python -m MODULE WORDS` with pipes, without its imports."""

    def __init__(self, folder: str, module: str, words: Sequence[str]) -> None:
        heard, tells = os.pipe()
        hears, said = os.pipe()
        self._work = _CONTEXT.Process(
            target=_Life(folder, module, tuple(words), heard, said), daemon=True
        )
        self._work.start()
        os.close(heard)
        os.close(said)
        self.stdin = os.fdopen(tells, "wb")
        self.stdout = os.fdopen(hears, "rb", buffering=0)

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._work.pid is not None
        return self._work.pid

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._work.is_alive()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Its exit code, once it has ended; negative if a signal ended it."""
        self._work.join(timeout_s)
        return self._work.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        """From outside; one that has ended gets none."""
        if self.is_running():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


class _Life:
    """What goes to the new process."""

    def __init__(
        self, folder: str, module: str, words: tuple[str, ...], heard: int, said: int
    ) -> None:
        self._pipes: tuple[int, int] = (heard, said)
        self._told = (folder, module, words, dict(os.environ))

    def __getstate__(self) -> Any:
        return self._told, [DupFd(each) for each in self._pipes]

    def __setstate__(self, state: Any) -> None:
        self._told, pipes = state
        self._pipes = tuple(each.detach() for each in pipes)

    def __call__(self) -> None:
        for number, pipe in enumerate(self._pipes):
            os.dup2(pipe, number)
            os.close(pipe)
        folder, module, words, environment = self._told
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.stdin = os.fdopen(0, "r", closefd=False)
        sys.argv = [module, *words]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
