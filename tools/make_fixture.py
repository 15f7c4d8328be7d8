"""Stores a database of the present schema with living work of every kind, for the upgrade tests.

Run it before you add a migration: `.venv/bin/python tools/make_fixture.py`. A fixture that is there
is never made again: other code would make other rows, and the old ones are what it is for.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
# Records with numbers of events, which each store draws in its own way.
NUMBERED = {"ff_consumer_group", "ff_group_delivery", "ff_statistic_roll_up"}


def commit() -> str:
    """The commit of the code that runs; with a plus sign if it was changed since."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603, S607
        return done.stdout.strip()

    return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain") else "")


def main() -> None:
    """Write the fixture of each store, and the notes that belong to both."""
    sys.path.insert(0, str(ROOT))
    from tests.support.databases import postgres_server
    from tests.support.living import fixture

    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        server = stack.enter_context(postgres_server())
        urls = (f"sqlite:///{folder}/new.db", stack.enter_context(server.empty_database()))
        made = [fixture.make(url, commit=commit()) for url in urls]
    sqlite, postgres = (memory.records for _, _, memory in made)
    differing = {name for name in sqlite if sqlite[name] != postgres[name]}
    if differing - NUMBERED:
        sys.exit(
            f"the stores keep different records: {differing}; see tests/property/test_parity.py"
        )
    for new, text, memory in made:
        if new.sql.exists():
            sys.exit(f"{new.sql} exists: a fixture is made once for each schema")
        new.sql.parent.mkdir(exist_ok=True)
        new.sql.write_text(text, encoding="utf-8")
        new.json.write_text(fixture.to_text(memory), encoding="utf-8")
        print(f"{new}: {len(text) >> 10} KB, {len(memory.notes)} kinds of living work")


if __name__ == "__main__":
    main()
