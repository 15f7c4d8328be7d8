"""A tab that is watched: what it complains of, and the conditions that a test waits for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from playwright.sync_api import Browser, BrowserContext, Dialog, Page, expect

T = TypeVar("T")
PATIENCE_MS: Final = 20_000  # reached only by a bug, however busy the machine is
expect.set_options(timeout=PATIENCE_MS)


class Driver:
    """A thread that owns the browser: elsewhere its loop would be in the way of other tests'."""

    def __init__(self) -> None:
        self._work: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._go_on, name="browser", daemon=True)
        self._thread.start()

    def _go_on(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def run(self, work: Callable[[], T]) -> T:
        """What a call in that thread returns or raises."""
        ended: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue()

        def kept() -> None:
            try:
                ended.put((work(), None))
            except BaseException as error:  # noqa: BLE001 - it is raised where it was asked
                ended.put((None, error))

        self._work.put(kept)
        result, error = ended.get()
        if error is not None:
            raise error
        return result  # type: ignore[return-value]

    def close(self) -> None:
        self._work.put(None)
        self._thread.join()


class Tabs:
    """Tabs of browsers that share nothing, and all that they complained of."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self.complaints: list[str] = []

    def open(self, **options: Any) -> Page:
        """A tab of a new browser, which is watched."""
        context = self._browser.new_context(
            **{"viewport": {"width": 1280, "height": 800}, **options}
        )
        context.set_default_timeout(PATIENCE_MS)
        self._contexts.append(context)
        return self.beside(context)

    def beside(self, context: BrowserContext) -> Page:
        """One more tab of a browser."""
        page = context.new_page()
        page.on("console", lambda said: self._noted(page, said.type, said.text))
        page.on("pageerror", lambda error: self._noted(page, "error", str(error)))
        page.on("dialog", lambda dialog: self._dismissed(page, dialog))
        return page

    def _dismissed(self, page: Page, dialog: Dialog) -> None:
        self._noted(page, "error", f"a dialog: {dialog.message}")
        dialog.dismiss()

    def _noted(self, page: Page, kind: str, text: str) -> None:
        if kind in ("error", "warning", "assert"):
            self.complaints.append(f"{page.url}: {text}")

    def close(self) -> None:
        for each in self._contexts:
            each.close()


def live(page: Page) -> None:
    """Wait until what happens is followed."""
    page.wait_for_selector("body[data-live-open]", state="attached")


def sequence(page: Page) -> int:
    """How many changes a page was told of."""
    return int(page.get_attribute("body", "data-live-seq") or 0)


def changed(page: Page, since: int) -> None:
    """Wait until a page was told of a change."""
    page.wait_for_function("since => Number(document.body.dataset.liveSeq) > since", arg=since)
