"""Tables fit, secrets stay hidden and stored text cannot drive the terminal."""

from __future__ import annotations

import io
import json
import sys

import pytest

from flowfabric.cli.show import terminal as terminal_module
from flowfabric.cli.show.plain import decoded, plain, preview
from flowfabric.cli.show.terminal import Column, Terminal, cells_of, clean, mask
from flowfabric.cli.show.times import absolute, both, relative, span
from flowfabric.cli.watching import bar


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def a_screen(monkeypatch: pytest.MonkeyPatch) -> _Screen:
    """Called in the test itself: pytest puts its own stream back between fixture and test."""
    screen = _Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", "40")
    return screen


def test_a_table_fits_the_terminal_and_keeps_ids_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = a_screen(monkeypatch)
    identity = "x" * 20
    Terminal(color=False).table(
        (Column("ID"), Column("NOTE", shrinks=True)), [(identity, "n" * 100)]
    )
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= 40
    assert identity in lines[1]
    assert lines[1].endswith("…")


def test_a_state_is_coloured_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = a_screen(monkeypatch)
    columns = (Column("STATE", styled=True),)
    Terminal().table(columns, [("failed",)])
    assert "\x1b[31m" in screen.getvalue()
    piped = io.StringIO()
    monkeypatch.setattr(sys, "stdout", piped)
    Terminal().table(columns, [("failed",)])
    assert piped.getvalue() == "STATE\nfailed\n"


def test_piped_output_is_never_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().table((Column("NOTE", shrinks=True),), [("n" * 500,)])
    assert "n" * 500 in capsys.readouterr().out


def test_progress_is_rewritten_only_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched, piped = _Screen(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", watched)
    Terminal().status("half way")
    monkeypatch.setattr(sys, "stderr", piped)
    Terminal().status("half way")
    assert "half way" in watched.getvalue()
    assert piped.getvalue() == ""


def test_stored_text_cannot_send_control_characters() -> None:
    assert "\x1b" not in clean("\x1b[2J bell \x07")
    assert clean("one\ntwo") == "one⏎two"


@pytest.mark.parametrize(
    "text",
    ["postgresql://ada:hunter2@db/app", "postgresql://db/app?user=a&password=hunter2&x=1"],
)
def test_passwords_are_masked(text: str) -> None:
    assert "hunter2" not in mask(f"cannot reach {text} now")
    assert "***" in mask(text)


def test_a_url_without_a_password_is_left_alone() -> None:
    assert mask("sqlite:////tmp/a.db") == "sqlite:////tmp/a.db"


def test_durations_are_short() -> None:
    day = 86_400_000
    assert [span(n) for n in (0, 999, 2300, 61_000, day, day + 3_600_000)] == [
        "0ms",
        "999ms",
        "2.3s",
        "1m 1s",
        "1d",
        "1d 1h",
    ]


def test_instants_are_relative_and_absolute() -> None:
    assert relative(1000, 4000) == "3.0s ago"
    assert relative(4000, 1000) == "in 3.0s"
    assert absolute(0) == "1970-01-01T00:00:00Z"
    assert both(None, 5) == ""


def test_stored_bytes_are_shown_as_what_they_are() -> None:
    assert decoded(b'{"a": 1}') == {"a": 1}
    assert decoded(b"plain words") == "plain words"
    assert decoded(b"\xff") == {"base64": "/w=="}
    assert preview(b"\xff\xfe") == "2 bytes (not text)"
    assert preview(None) == "none"
    assert plain((1, {"a": b"2"})) == [1, {"a": 2}]


def test_a_bar_shows_how_far_it_is() -> None:
    assert bar(0, 4) == "[....]   0%"
    assert bar(100, 4) == "[####] 100%"
    assert terminal_module.shorten("abcdef", 4) == "abc…"


def test_a_drawing_takes_the_place_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = a_screen(monkeypatch)
    terminal = Terminal()
    terminal.redraw(["one", "two"])
    terminal.redraw(["three"])
    terminal.redraw(["four"])
    assert screen.getvalue() == (
        "\x1b[?7lone\ntwo\x1b[?7h\n"
        "\x1b[2F\x1b[J\x1b[?7lthree\x1b[?7h\n"  # two lines up
        "\x1b[1F\x1b[J\x1b[?7lfour\x1b[?7h\n"
    )


def test_a_table_counts_the_cells_of_wide_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = a_screen(monkeypatch)
    columns = (Column("ID"), Column("NOTE", shrinks=True), Column("END"))
    Terminal(color=False).table(columns, [("1", "日本" * 30, "end"), ("2", "ab", "end")])
    lines = screen.getvalue().splitlines()
    assert [cells_of(line) for line in lines[1:]] == [40, 40]


def test_a_column_gives_what_it_has_over_its_least_first(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = a_screen(monkeypatch)
    columns = (Column("A", shrinks=True), Column("NOTE", shrinks=True, least=28))
    Terminal(color=False).table(columns, [("a" * 60, "n" * 60)])
    assert screen.getvalue().splitlines()[1] == "a" * 9 + "…  " + "n" * 27 + "…"


def test_a_column_that_says_the_same_everywhere_may_be_silent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    columns = (Column("ID"), Column("PRI", silent="0"))
    Terminal().table(columns, [("a", 0), ("b", 0)])
    assert capsys.readouterr().out == "ID\na\nb\n"
    Terminal().table(columns, [("a", 0), ("b", 1)])
    assert capsys.readouterr().out.splitlines()[0] == "ID  PRI"


def test_facts_and_prose_wrap_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prose = "word " * 20
    Terminal().facts([("name", prose.strip())])
    assert capsys.readouterr().out.count("\n") == 1
    screen = a_screen(monkeypatch)
    Terminal(color=False).facts([("name", prose)])
    Terminal(color=False).text(f"failed: {prose}", state="failed")
    lines = screen.getvalue().splitlines()
    assert len(lines) > 5
    assert max(map(len, lines)) <= 40
    assert all(line.startswith("        word") for line in lines[1:3])


CONTROL = "a\x1b[2J\x9b31m\u202eb\x7f\r\x00"


def test_json_holds_no_control_character_and_the_same_value(
    capsys: pytest.CaptureFixture[str],
) -> None:
    value = {"text": f"{CONTROL}\n日本\ud800\U000e0001"}
    Terminal(as_json=True).document(value)
    printed = capsys.readouterr().out
    assert all(each.isprintable() or each == "\n" for each in printed)
    assert json.loads(printed) == value
    assert "日本" in printed


def test_a_stored_text_is_harmless_on_a_terminal_and_unchanged_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Terminal().stored(CONTROL)
    assert capsys.readouterr().out == f"{CONTROL}\n"
    screen = a_screen(monkeypatch)
    Terminal().stored(f"one\n  {CONTROL}")
    assert screen.getvalue() == "one\n  a�[2J�31m�b���\n"
