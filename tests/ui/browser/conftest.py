"""Chromium as people have it, and a server on a store with a story: one of each for all tests.

The browser is that of the machine (`FF_CHROMIUM`, or on the path); nothing is downloaded. Without
one these tests are skipped, with one line; with `FF_REQUIRE_BROWSER=1` they fail.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.support.server_thread import ServerThread
from tests.ui.browser.watching import Driver, Tabs
from tools.showcase import tell

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ABSENT = "NO BROWSER: the dashboard was not tested in one. Install chromium, or set FF_CHROMIUM."


class Site(NamedTuple):
    """A server, and the ids of its story."""

    server: ServerThread
    ids: dict[str, str]

    def at(self, path: str) -> str:
        return self.server.address + path


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Run each test here in the thread that owns the browser."""
    names = pyfuncitem._fixtureinfo.argnames
    given = {name: pyfuncitem.funcargs[name] for name in names}
    driver = pyfuncitem.funcargs["driver"]
    assert isinstance(driver, Driver)
    driver.run(lambda: pyfuncitem.obj(**given))
    return True


@pytest.fixture(scope="session")
def driver() -> Iterator[Driver]:
    thread = Driver()
    yield thread
    thread.close()


@pytest.fixture(scope="session")
def chromium(driver: Driver) -> Iterator[Browser]:
    found = os.environ.get("FF_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        if os.environ.get("FF_REQUIRE_BROWSER") == "1":
            pytest.fail(_ABSENT, pytrace=False)
        pytest.skip(_ABSENT)
    playwright = driver.run(lambda: sync_playwright().start())
    options: dict[str, Any] = {"executable_path": found, "args": ["--no-sandbox"]}
    browser = driver.run(lambda: playwright.chromium.launch(**options))
    yield browser
    driver.run(browser.close)
    driver.run(playwright.stop)


@pytest.fixture
def tabs(driver: Driver, chromium: Browser) -> Iterator[Tabs]:
    """Tabs that complain of nothing."""
    watched = Tabs(chromium)
    yield watched
    driver.run(watched.close)
    assert not watched.complaints, watched.complaints


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """What all tests may read, and add to."""
    url = f"sqlite:///{tmp_path_factory.mktemp('site') / 'story.db'}"
    ids = asyncio.run(tell(url, minutes=5))
    server = ServerThread(url, rate_address=100_000)
    yield Site(server, ids)
    server.close()
