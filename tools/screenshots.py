"""Draw the dashboard's pictures: a store with a story, a server on it, and Chromium.

.venv/bin/python tools/screenshots.py            the pictures of docs/images
.venv/bin/python tools/screenshots.py --all DIR  every page, wide and on a phone, light and dark
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from flowfabric.assemble import open_engine
from flowfabric.server.routes.values import path_id
from flowfabric.server.serve import Server
from flowfabric.server.settings import ServerSettings
from tools.showcase import tell

if TYPE_CHECKING:
    from playwright.async_api import Browser

_IMAGES: Final = Path(__file__).resolve().parent.parent / "docs" / "images"
_BYTES_MAX: Final = 120 * 1024
_WIDE: Final = 1200
_PHONE: Final = 390


class Picture(NamedTuple):
    """A page, and how it is looked at."""

    name: str
    path: str
    height: int = 780
    width: int = _WIDE
    theme: str = "light"


def _shown(ids: dict[str, str]) -> list[Picture]:
    return [
        Picture("overview", "/ui", 760),
        Picture("overview-dark", "/ui", 760, theme="dark"),
        Picture("run", f"/ui/runs/{path_id(ids['run'])}", 780),
        Picture("flow", f"/ui/flows/{ids['flow']}", 640),
        Picture("approvals", "/ui/approvals?tab=all", 460),
    ]


def _every(ids: dict[str, str]) -> list[Picture]:
    run, wait, flow = path_id(ids["run"]), path_id(ids["wait"]), ids["flow"]
    paths = {
        "overview": "/ui",
        "runs": "/ui/runs",
        "runs-nothing": "/ui/runs?q=kind:nothing",
        "run": f"/ui/runs/{run}",
        "run-data": f"/ui/runs/{run}?tab=data",
        "run-attempts": f"/ui/runs/{run}?tab=attempts",
        "run-waiting": f"/ui/runs/{wait}",
        "flows": "/ui/flows",
        "flow": f"/ui/flows/{flow}",
        "flow-waterfall": f"/ui/flows/{flow}?tab=waterfall",
        "approvals": "/ui/approvals?tab=all",
        "approve": f"/ui/approvals/{wait}/publish?decision=approved",
        "failures": "/ui/failures",
        "budgets": "/ui/budgets",
        "budget": "/ui/budgets/gpt",
        "lanes": "/ui/lanes",
        "workers": "/ui/workers",
        "schedules": "/ui/schedules",
        "schedule": "/ui/schedules/reindex?namespace=default",
        "audit": "/ui/audit",
        "system": "/ui/system",
        "login": "/ui/login",
    }
    return [
        Picture(f"{name}-{width}-{theme}", path, 900, width, theme)
        for name, path in paths.items()
        for width, theme in ((1440, "light"), (_PHONE, "light"), (1440, "dark"), (_PHONE, "dark"))
    ]


async def _drawn(
    browser: Browser, address: str, picture: Picture, folder: Path, whole: bool
) -> int:
    """Draw one; how many bytes it has."""
    options: dict[str, Any] = {
        "viewport": {"width": picture.width, "height": picture.height},
        "color_scheme": picture.theme,
        "timezone_id": "UTC",
        "reduced_motion": "reduce",
    }
    page = await browser.new_page(**options)
    await page.goto(address + picture.path)
    if picture.path != "/ui/login":
        await page.wait_for_selector("body[data-live-open]", state="attached")
    path = folder / f"{picture.name}.png"
    await page.screenshot(path=path, full_page=whole)
    await page.close()
    return path.stat().st_size


async def draw(folder: Path, *, every: bool) -> list[str]:
    """Draw all of them; what is too large."""
    from playwright.async_api import async_playwright  # only those that draw need it

    with tempfile.TemporaryDirectory() as scratch:
        url = f"sqlite:///{scratch}/story.db"
        ids = await tell(url)
        engine = open_engine(url)
        await engine.start()
        server = Server(engine, ServerSettings(bind="127.0.0.1:0", rate_address=10_000))
        server.bind()
        await server.open()
        await server.start()
        large = []
        try:
            async with async_playwright() as driver:
                options: dict[str, Any] = {"executable_path": shutil.which("chromium")}
                browser = await driver.chromium.launch(**options, args=["--no-sandbox"])
                for picture in _every(ids) if every else _shown(ids):
                    size = await _drawn(browser, server.address, picture, folder, every)
                    print(f"{picture.name:28} {size / 1024:6.1f} KiB")
                    if size > _BYTES_MAX and not every:
                        large.append(picture.name)
                await browser.close()
        finally:
            await server.stop()
            await engine.close()
    return large


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--all", metavar="DIR", type=Path, help="every page, into this folder")
    folder = parser.parse_args().all
    (folder or _IMAGES).mkdir(parents=True, exist_ok=True)
    large = asyncio.run(draw(folder or _IMAGES, every=folder is not None))
    if large:
        print(f"larger than {_BYTES_MAX // 1024} KiB: {', '.join(large)}")
    return 1 if large else 0


if __name__ == "__main__":
    raise SystemExit(main())
