"""Tests that the documentation names exist: a promise must not point at a renamed test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
PATH = re.compile(r"(?<![\w/])tests(?:/[\w.]+)+")
FILE = re.compile(r"(?<!\w)(test_\w+\.py)")
NAME = re.compile(r"::(test_\w+)")
DEFINED = re.compile(r"def (test_\w+)\(")
CHANGELOG = ROOT / "CHANGELOG.md"  # history: what it names may be gone


def sources() -> list[Path]:
    return list((ROOT / "tests").rglob("*.py"))


@pytest.mark.parametrize(
    "page", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in PAGES if p != CHANGELOG]
)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    paths = {each.rstrip(".") for each in PATH.findall(text)}
    assert not [path for path in paths if not (ROOT / path).exists()]
    files = {path.name for path in sources()}
    own = {match for match in FILE.findall(text) if f"# {match}" not in text}
    assert not own - files
    if named := set(NAME.findall(text)):
        defined = {name for path in sources() for name in DEFINED.findall(path.read_text("utf-8"))}
        assert not named - defined


def test_every_scenario_of_a_server_names_its_test() -> None:
    page = (ROOT / "docs" / "RELIABILITY.md").read_text(encoding="utf-8")
    chapter = page.partition("## What a server must do")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| .+? \| (.+?) \|$", chapter, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 45))
    assert [number for number, test in rows if not NAME.search(test)] == []
