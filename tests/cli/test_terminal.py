"""Tables fit, secrets stay hidden and stored text cannot drive the terminal."""

from __future__ import annotations

import io
import sys

import pytest

from flowfabric.cli import terminal as terminal_module
from flowfabric.cli.plain import decoded, plain, preview
from flowfabric.cli.terminal import Column, Terminal, clean, mask
from flowfabric.cli.times import absolute, both, relative, span
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


def test_progress_is_rewritten_only_where_somebody_watches(
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
