"""The plugin for pytest: fixtures, a mark, async tests, and the check with another hash seed.

Every session of pytest loads it, so it imports the kit where a test first needs it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

if TYPE_CHECKING:
    from flowfabric.sdk.fabric import Fabric
    from flowfabric.testing.blocking import SyncTestFabric
    from flowfabric.testing.elsewhere import Elsewhere
    from flowfabric.testing.fabric import TestFabric
    from flowfabric.testing.loop import VirtualLoop

_MARK: Final = "flowfabric"
_KEY: Final = "flowfabric_elsewhere"
_ELSEWHERE: Final[pytest.StashKey[Elsewhere]] = pytest.StashKey()
_LOOP: Final[pytest.StashKey[VirtualLoop]] = pytest.StashKey()
_PROBLEMS: Final = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Settings in the project's configuration."""
    parser.addini("flowfabric_app", "the fabric of the program, as module:name", default="")
    parser.addini("flowfabric_store", "memory, sqlite, postgresql or a URL", default="memory")
    parser.addini("flowfabric_replay", "strict, always or off", default="strict")


def pytest_configure(config: pytest.Config) -> None:
    """Announce the mark."""
    config.addinivalue_line(
        "markers",
        "flowfabric(app, store, replay, start): the fabric of a test, as `TestFabric` takes it",
    )
    config.stash[_PROBLEMS] = []


def _options(request: pytest.FixtureRequest) -> tuple[Fabric | None, dict[str, Any]]:
    """Those of the mark nearest to the test, else those of the project."""
    from flowfabric.testing.apps import load_app

    config = request.config
    options: dict[str, Any] = {
        "app": config.getini("flowfabric_app") or None,
        "store": config.getini("flowfabric_store"),
        "replay": config.getini("flowfabric_replay"),
    }
    for mark in reversed(list(request.node.iter_markers(_MARK))):
        options.update(mark.kwargs)
    app = options.pop("app")
    return load_app(app) if isinstance(app, str) else app, options


def _opened(request: pytest.FixtureRequest) -> Iterator[tuple[TestFabric, VirtualLoop]]:
    from flowfabric.testing.elsewhere import Elsewhere
    from flowfabric.testing.fabric import TestFabric
    from flowfabric.testing.loop import VirtualLoop

    app, options = _options(request)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = cast("VirtualLoop", runner.get_loop())
        request.node.stash[_LOOP] = loop
        fabric = TestFabric(app, **options)
        loop.run_until_complete(fabric.open())
        try:
            yield fabric, loop
            loop.run_until_complete(fabric.close())
            request.config.stash.setdefault(_ELSEWHERE, Elsewhere()).take(fabric.recorded)
        finally:
            loop.run_until_complete(fabric.close(checks=False))


@pytest.fixture
def fabric(request: pytest.FixtureRequest) -> Iterator[TestFabric]:
    """A `TestFabric` for an async test, which runs in its loop."""
    for opened, _ in _opened(request):
        yield opened


@pytest.fixture
def sync_fabric(request: pytest.FixtureRequest) -> Iterator[SyncTestFabric]:
    """The same for a test without asyncio."""
    from flowfabric.testing.blocking import SyncTestFabric

    for opened, loop in _opened(request):
        yield SyncTestFabric(opened, loop)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test that uses the fixture in the fixture's loop."""
    loop = pyfuncitem.stash.get(_LOOP, None)
    if loop is None or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    loop.run_until_complete(pyfuncitem.obj(**arguments))
    return True


# --- once per session -----------------------------------------------------------------------------


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Replay what tests recorded in a process with another hash seed."""
    config = session.config
    elsewhere = config.stash.get(_ELSEWHERE, None)
    problems = [] if elsewhere is None else elsewhere.check()
    output = getattr(config, "workeroutput", None)
    if output is not None:  # of a worker of pytest-xdist: its controller tells
        output[_KEY] = problems
        return
    problems = [*config.stash[_PROBLEMS], *problems]
    config.stash[_PROBLEMS] = problems
    if problems and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A worker of pytest-xdist has ended."""
    problems = (getattr(node, "workeroutput", None) or {}).get(_KEY, ())
    node.config.stash[_PROBLEMS].extend(problems)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Tell what differs with another hash seed."""
    problems = config.stash.get(_PROBLEMS, [])
    if problems:
        terminalreporter.section("flowfabric: not the same with another hash seed")
        for problem in problems:
            terminalreporter.line(problem, red=True)
