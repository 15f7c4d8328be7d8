"""The glossary is in order, has each word once, and has no word that is used nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
ENTRY = re.compile(r"^\*\*([^*]+)\*\*: (.+?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
REFERENCE = re.compile(r"(?<!\*)\*([^*\n]+)\*(?!\*)")


def entries() -> list[tuple[str, str]]:
    return ENTRY.findall(GLOSSARY.read_text(encoding="utf-8"))


def terms() -> list[str]:
    return [term for term, _ in entries()]


def plain(text: str) -> str:
    """In lower case, and with one space wherever words are parted."""
    return re.sub(r"[\s_-]+", " ", text).casefold()


def everything_else() -> str:
    """The text of the source and of all other pages."""
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    return plain(" ".join(p.read_text(encoding="utf-8") for p in sources if p != GLOSSARY))


def test_the_glossary_is_sorted_and_has_each_term_once() -> None:
    found = terms()
    assert len(found) > 100
    assert found == sorted(found, key=str.casefold)
    assert len(found) == len({term.casefold() for term in found})


def test_every_line_of_the_glossary_belongs_to_an_entry() -> None:
    text = GLOSSARY.read_text(encoding="utf-8")
    first = text.index("**")
    assert not ENTRY.sub("", text[first:]).strip()


def test_every_term_of_the_glossary_is_used_in_the_source_or_the_docs() -> None:
    used = everything_else()
    unused = [term for term in terms() if not re.search(rf"\b{plain(term)}s?\b", used)]
    assert not unused


@pytest.mark.parametrize(("term", "text"), entries(), ids=terms())
def test_an_entry_is_short_and_refers_to_entries(term: str, text: str) -> None:
    assert text.strip().endswith((".", ".)")), term
    assert len(text) < 400
    known = {each.casefold() for each in terms()}
    for word in REFERENCE.findall(text):
        assert {word, word.removesuffix("s")} & known, f"{term} refers to {word}"
