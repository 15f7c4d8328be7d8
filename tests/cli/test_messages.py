"""Messages name the command that helps, give units, and the nearest name that exists."""

from __future__ import annotations

import inspect

import pytest

from flowfabric import errors
from flowfabric.cli.exits import Exit, advice_of, describe
from flowfabric.errors import FlowFabricError
from flowfabric.model.shown import shown_length
from flowfabric.sdk import errors as sdk_errors
from tests.cli.desk import Desk


@pytest.fixture
def shop(desk: Desk) -> Desk:
    """A store with names that can be misspelt."""
    desk.submit("greet", "--lane", "video")
    assert desk.ff("budget", "create", "gpt", "--hard", "tokens=100") == Exit.OK
    assert desk.ff("quota", "create", "calls", "--starts", "1") == Exit.OK
    return desk


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("budget show gtp", 3, "no budget gtp — did you mean gpt? ff budget ls lists them"),
        ("budget set gtp --hard a=1", 3, "did you mean gpt?"),
        ("submit greet --budget gtp", 3, "did you mean gpt?"),
        ("submit greet --quota cals", 3, "no quota cals — did you mean calls?"),
        ("lanes set video --budget gtp", 3, "did you mean gpt?"),
        ("quota show cals", 3, "did you mean calls? ff quota ls lists them"),
        ("budget create gpt --hard tokens=5", 4, "ff budget set changes it"),
        ("quota create calls --starts 9", 4, "ff quota set changes it"),
        ("budget raise gpt tokens=5", 2, "ff budget set gpt --hard"),
        ("quota create q --starts 5 --per 10ms", 2, "per: 10ms is below 1s"),
        ("quota create q --starts 5 --per 1500ms", 2, "1s500ms is no number of whole seconds"),
        ("quota set calls --jitter 5h", 2, "5h is above 1h"),
        ("budget create y --hard t=1 --every 10ms", 2, "10ms is below 1s"),
        ("lanes set video --aging 400d", 2, "400d is above 365d"),
        ("lanes pause vidoe", 0, "this lane is new: nothing was ever on it; did you mean video?"),
        ("submit gret", 0, "this kind is new: no live worker runs it; did you mean greet?"),
        ("ps --kind gret", 0, "no execution was ever of kind gret; did you mean greet?"),
        ("ps --lane vidoe", 0, "no execution was ever of lane vidoe; did you mean video?"),
        ("cancel --kind gret --yes", 0, "did you mean greet?"),
        ("retry latest", 4, "ff cancel ends it"),
        ("submit greet --priority high", 2, "--priority: 'high' is not a whole number"),
        ("waits signal latest x --payload {", 2, "write for example --payload"),
        ("--bogus", 2, "unknown option '--bogus'"),
        ("--jsn ps", 2, "did you mean --json?"),
        ("ps --state fail", 2, "did you mean failed?"),
        ("flow show ffff", 3, "ff flow ls lists them"),
    ],
)
def test_a_mistake_is_answered_with_what_helps(shop: Desk, line: str, code: int, told: str) -> None:
    assert shop.ff(*line.split()) == code, shop.err
    assert told in shop.err


def every_error() -> list[type[FlowFabricError]]:
    found = {
        value
        for module in (errors, sdk_errors)
        for _, value in inspect.getmembers(module, inspect.isclass)
        if issubclass(value, FlowFabricError)
    }
    return sorted(found, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", every_error())
def test_every_error_prints_its_detail_and_what_to_do(kind: type[FlowFabricError]) -> None:
    told = describe(kind("the detail"))
    assert "the detail — " in told
    assert told.count("\n") == 0
    assert len(advice_of(kind("the detail"))) > 8
    bare = describe(kind())
    assert bare[0].islower() or bare[0] in "`F"  # a sentence goes on after `ff: `
    assert not bare.endswith(".")


def test_a_length_is_told_exactly() -> None:
    for milliseconds, text in ((0, "0s"), (1, "1ms"), (90_061_001, "1d1h1m1s1ms"), (-5, "-5ms")):
        assert shown_length(milliseconds) == text
    assert shown_length(10**5000).endswith(" ms")
