"""Writes what the documentation says of the server's settings, from their declarations.

tools/configuration_page.py             write
tools/configuration_page.py --check     only compare; exit code 1 if a page is stale
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from flowfabric.server.settings import SETTINGS, Form, Setting
from flowfabric.server.sources import PREFIX, written

DOCS = Path(__file__).resolve().parent.parent / "docs"
MARKS = ("<!-- settings of the server: written by tools/configuration_page.py -->", "<!-- end -->")


def default(setting: Setting) -> str:
    text = written(setting, setting.default)
    return f"`{text}`" if text else "none"


def bounds(setting: Setting) -> str:
    about = setting.about
    if about.words:
        return ", ".join(f"`{word}`" for word in about.words)
    if about.form in (Form.COUNT, Form.DURATION):
        least, most = (written(setting, each) for each in (about.least, about.most))
        return f"{least}–{most}"
    return str(about.form.value)


def settings_table() -> str:
    rows = [
        f"| `{key}` | {default(each)} | {bounds(each)} | {each.about.text} |"
        for key, each in SETTINGS.items()
    ]
    return "\n".join(["| key | default | bounds | meaning |", "|---|---|---|---|", *rows])


def options_table() -> str:
    """For the page of the command line: flags and variables."""
    rows = []
    for key, each in SETTINGS.items():
        option = f"--{key.replace('_', '-')}"
        shown = f"`{option}`"
        if each.about.form is Form.FLAG:
            shown += f", `--no{option[1:]}`"
        rows.append(f"| {shown} | `{PREFIX}{key.upper()}` |")
    return "\n".join(["| option | variable |", "|---|---|", *rows])


PAGES = {DOCS / "configuration.md": settings_table, DOCS / "cli.md": options_table}


def main(words: list[str]) -> int:
    stale = 0
    begin, end = MARKS
    for page, table in PAGES.items():
        text = page.read_text(encoding="utf-8")
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        wanted = pattern.sub(lambda _, table=table: f"{begin}\n{table()}\n{end}", text)  # type: ignore[misc]
        if words != ["--check"]:
            page.write_text(wanted, encoding="utf-8")
        elif text != wanted or begin not in text:
            sys.stderr.write(f"{page.name} is stale: run tools/configuration_page.py\n")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
