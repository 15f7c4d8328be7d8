"""The profile of the walks runs, and sees what a call passes through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools import walk

if TYPE_CHECKING:
    import pytest


def test_every_walk_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    walk.main(["memory"])
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["walk", "files", "limit"]
    assert [row.split()[0] for row in rows] == list(walk.LIMITS)


def test_the_files_of_a_walk_are_listed_as_they_are_met(capsys: pytest.CaptureFixture[str]) -> None:
    walk.main(["memory", "--files", "submit"])
    files = capsys.readouterr().out.splitlines()
    assert files[0] == "sdk/submitting.py"
    assert files.index("kernel/execution/create.py") < files.index("engine/wakeups.py")


def test_switches_are_counted_by_file_and_by_layer() -> None:
    codes = [walk.measured.__code__.replace(co_filename=f"{walk.PACKAGE}{name}") for name in "aab"]
    inner = [walk.measured.__code__.replace(co_filename=f"{walk.PACKAGE}b/c")]
    measure = walk.measured(codes + inner)
    assert measure == walk.Measure(["a", "b", "b/c"], 3, 4, 2, 1)
