"""Strategies for Hypothesis: where a worker may crash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hypothesis import strategies as st

from flowfabric.testing.faults import Crash, Place

_NTH: Final = 3
_PLACES: Final[tuple[Place, ...]] = ("body", "checkpoint", "commit")


def faults(steps: Sequence[str], *, most: int = 3) -> st.SearchStrategy[list[Crash]]:
    """Crashes at these steps, none to a few, for `fabric.crash`.

    ```
    @given(faults(["fetch", "charge"]))
    def test_an_order_survives(crashes: list[Crash]) -> None: ...
    ```
    """
    name, nth = st.sampled_from(list(steps)), st.integers(min_value=1, max_value=_NTH)
    before = st.builds(lambda step, n: Crash(before=step, nth=n), name, nth)
    after = st.builds(
        lambda step, n, at: Crash(after=step, nth=n, at=at), name, nth, st.sampled_from(_PLACES)
    )
    return st.lists(before | after, max_size=most)
