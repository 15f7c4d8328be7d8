"""Places in streams as text, and back."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from flowfabric.errors import InvalidCursor, InvalidInput
from flowfabric.model.log_lines import LinePlace, line_place_from
from flowfabric.model.stream import (
    BEGINNING,
    LAST,
    FrameId,
    Place,
    bound_from,
    frame_id_from,
    place_from,
)

NUMBERS = st.integers(min_value=0, max_value=2**63 - 1)
IDS = st.builds(FrameId, NUMBERS, NUMBERS)


@given(IDS)
def test_an_id_comes_back_from_its_text(frame_id: FrameId) -> None:
    assert frame_id_from(str(frame_id), field="after") == frame_id
    assert bound_from(str(frame_id), field="after") == frame_id


@given(st.integers(min_value=0, max_value=10**9), IDS)
def test_a_place_comes_back_from_its_text(attempt: int, frame_id: FrameId) -> None:
    place = Place(attempt, frame_id)
    assert place_from(str(place)) == place


@given(IDS)
def test_every_id_is_between_the_two_ends(frame_id: FrameId) -> None:
    assert bound_from("start", field="x") == BEGINNING <= frame_id <= LAST
    assert bound_from("end", field="x") == LAST


@given(NUMBERS)
def test_milliseconds_alone_are_their_first_place(ms: int) -> None:
    assert frame_id_from(str(ms), field="after") == FrameId(ms, 0)


@given(st.text(max_size=30))
def test_any_other_text_is_refused_by_a_typed_error(text: str) -> None:
    """Or it is one of the forms above."""
    for read in (
        lambda: frame_id_from(text, field="after"),
        lambda: bound_from(text, field="after"),
        lambda: place_from(text),
    ):
        with contextlib.suppress(InvalidCursor, InvalidInput):
            read()


@given(st.integers(0, 10**10 - 1), st.integers(0, 10**10 - 1))
def test_a_place_in_a_log_comes_back_from_its_text(attempt: int, number: int) -> None:
    place = LinePlace(attempt, number)
    assert line_place_from(str(place)) == place


@given(st.text(max_size=30))
def test_no_text_is_an_accident_as_a_place_in_a_log(text: str) -> None:
    try:
        found = line_place_from(text)
    except (InvalidCursor, InvalidInput):
        return
    assert line_place_from(str(found)) == found
