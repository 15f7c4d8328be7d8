"""Lines of serial keys: what an end means for the next place."""

from __future__ import annotations

import pytest

from flowfabric.kernel.decision import Moment
from flowfabric.kernel.order.line import advance, leave, place_key
from flowfabric.model.execution import Execution
from flowfabric.model.line import LineRow, PlaceRow
from flowfabric.model.record import replace
from flowfabric.model.ties import Ties
from tests.support.builders import NOW, cancel_by_operator, created, image

AT = Moment(NOW)


def ended(*, place: int, holds_line: bool = False) -> Execution:
    ties = Ties(serial_key="acme", holds_line=holds_line)
    waits = replace(created(), ties=ties, line_place=place)
    return image(waits, cancel_by_operator())


def line(head: str, *, number: int, waiting: int) -> LineRow:
    return LineRow("default", "acme", head, number, number + waiting, waiting, due_at=NOW + 50)


def test_a_place_behind_the_head_closes() -> None:
    gone = ended(place=2)
    decision = leave(line("another", number=1, waiting=2), gone, AT)
    assert decision.reply is False
    assert decision.execution is not None
    assert decision.execution.line_place == 0
    (shorter,) = decision.saves
    assert isinstance(shorter, LineRow)
    assert shorter.waiting == 1
    assert decision.drops == (PlaceRow("default", "acme", 2, gone.execution_id),)


@pytest.mark.parametrize("place", [0, 2], ids=["told", "not-told-yet"])
def test_a_head_that_ends_gives_its_turn_away_whether_it_knew_of_it_or_not(place: int) -> None:
    """It was locked by the transaction that ends it when it got the turn."""
    head = ended(place=place)
    before = line(head.execution_id, number=2, waiting=1)
    decision = leave(before, head, AT)
    assert decision.reply is True
    assert (decision.saves, decision.drops) == ((), ())
    assert decision.execution is None or decision.execution.line_place == 0
    following = PlaceRow("default", "acme", 3, "next")
    assert place_key(before, 3) == ("default", "acme", 3)
    (after,) = advance(before, following).saves
    assert isinstance(after, LineRow)
    assert (after.head_id, after.waiting) == ("next", 0)


def test_an_execution_that_never_joined_leaves_no_line() -> None:
    decision = leave(line("another", number=1, waiting=1), ended(place=0), AT)
    assert (decision.reply, decision.execution, decision.saves) == (False, None, ())
