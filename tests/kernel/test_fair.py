"""Tags of fair keys against a model: a server that always serves the least tag."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from flowfabric.kernel.order.fair import SPAN_MS, clock_of, started
from flowfabric.model.fair import Fair, FairPhase, FairRow

NOW = 1_700_000_000_000
KEYS = "abc"
WEIGHTS = {"a": 1, "b": 3, "c": 2}


def row(number: int, fair: Fair, phase: FairPhase) -> FairRow:
    return FairRow(str(number), "n", "l", 0, phase, fair.tag, fair.key, fair.finish)


class Model:
    """One queue: what waits, and what runs."""

    def __init__(self) -> None:
        self.waiting: dict[int, Fair] = {}
        self.running: dict[int, Fair] = {}
        self.made = 0

    def submit(self, key: str, now: int) -> Fair:
        unfinished = (*self.waiting.values(), *self.running.values())
        last = max((each.finish for each in unfinished if each.key == key), default=None)
        running = max(self.running.items(), key=lambda pair: pair[1].tag, default=None)
        ready = min(self.waiting.items(), key=lambda pair: pair[1].tag, default=None)
        clock = clock_of(
            None if running is None else row(*running, FairPhase.RUNNING),
            None if ready is None else row(*ready, FairPhase.READY),
            now,
        )
        fair = started(key, clock, last, WEIGHTS[key])
        self.waiting[self.made] = fair
        self.made += 1
        return fair

    def claim(self) -> Fair | None:
        if not self.waiting:
            return None
        number = min(self.waiting, key=lambda each: (self.waiting[each].tag, each))
        self.running[number] = self.waiting.pop(number)
        return self.running[number]

    def end(self) -> None:
        if self.running:
            self.running.pop(min(self.running))


steps = st.lists(
    st.one_of(st.sampled_from(KEYS), st.sampled_from(("claim", "claim", "end"))), max_size=120
)


@settings(max_examples=100)
@given(steps)
def test_tags_of_a_key_rise_by_its_span_and_never_fall_behind_the_clock(steps: list[str]) -> None:
    model, last = Model(), dict[str, Fair]()
    for number, step in enumerate(steps):
        if step == "claim":
            model.claim()
        elif step == "end":
            model.end()
        else:
            unfinished = {each.key for each in (*model.waiting.values(), *model.running.values())}
            served = max((each.tag for each in model.running.values()), default=0)
            fair = model.submit(step, NOW + number)
            assert fair.finish - fair.tag == SPAN_MS // WEIGHTS[step]
            assert fair.tag >= served
            if step in unfinished:
                assert fair.tag >= last[step].tag
            last[step] = fair


@settings(max_examples=60)
@given(
    st.integers(10, 300),
    st.dictionaries(st.sampled_from("bc"), st.integers(30, 60), min_size=1),
    st.integers(0, 20),
)
def test_backlogged_keys_are_served_by_weight(
    ahead: int, others: dict[str, int], served: int
) -> None:
    """However long one has waited, and whoever comes later: within a turn of each key."""
    model = Model()
    for _ in range(ahead + 200):
        model.submit("a", NOW)
    for _ in range(served):
        model.claim()
    for key, count in others.items():
        for _ in range(count):
            model.submit(key, NOW + 1)
    weights = {key: WEIGHTS[key] for key in ("a", *others)}
    total = sum(weights.values())
    got: Counter[str] = Counter()
    for turn in range(1, 31):
        fair = model.claim()
        assert fair is not None
        got[fair.key] += 1
        for key, weight in weights.items():
            assert abs(got[key] - turn * weight / total) <= len(weights) + 1


def test_a_newcomer_stands_at_the_clock() -> None:
    model = Model()
    for _ in range(10_000):
        model.submit("a", NOW)
    for _ in range(20):
        model.claim()
    model.submit("b", NOW + 5)
    turns = next(turn for turn in range(20) if (each := model.claim()) and each.key == "b")
    assert turns <= 1
