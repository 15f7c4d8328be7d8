"""The tree of errors: drawn as it is, and a code for each class."""

from __future__ import annotations

import re
from collections.abc import Iterator

from flowfabric import errors
from flowfabric.errors import FlowFabricError

DEFINED = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, FlowFabricError)
]


def drawn() -> Iterator[tuple[str, str | None]]:
    """Each class of the drawing with the one it stands under; lower case begins a remark."""
    drawing = (errors.__doc__ or "").split("```")[1].strip("\n")
    above: dict[int, str] = {}
    for line in drawing.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        names = re.match(r"\s*((?:[A-Z]\w+(?:  |$))+)", f"{line}  ")
        assert names is not None, line
        for name in names[1].split():
            above[depth] = name
            yield name, above.get(depth - 1)


def test_the_tree_is_drawn_as_it_is() -> None:
    shown = list(drawn())
    assert len({name for name, _ in shown}) == len(shown), "a class is drawn twice"
    assert dict(shown) == {
        kind.__name__: None if kind is FlowFabricError else kind.__bases__[0].__name__
        for kind in DEFINED
    }


def test_a_code_is_of_one_class() -> None:
    codes = [kind.code for kind in DEFINED]
    assert len(set(codes)) == len(codes)
    for kind in DEFINED:
        assert "code" in vars(kind), f"{kind.__name__} has the code of its family"


def test_every_class_says_what_to_do() -> None:
    for kind in DEFINED:
        assert kind("something").advice.endswith("."), kind.__name__


def test_a_status_is_one_that_a_server_may_answer() -> None:
    """Never 502 or 504, which belong to proxies."""
    assert {kind.status for kind in DEFINED} <= {
        *(202, 400, 401, 403, 404, 405, 406, 409, 410, 412, 413, 414, 415),
        *(421, 422, 428, 429, 431, 500, 503),
    }
    statuses = {kind.__name__: kind.status for kind in DEFINED}
    assert statuses["InvalidInput"] == statuses["HandleFromOtherBackend"] == 422
    assert statuses["InvalidCursor"] == 400
    assert statuses["WaitTimeout"] == 202


def test_what_is_retryable_is_neither_the_callers_fault_nor_a_contradiction() -> None:
    for kind in DEFINED:
        if kind.retryable:
            assert kind.status in (202, 409, 412, 429, 503), kind.__name__
