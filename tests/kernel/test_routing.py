"""Who may run what: the grammar of capabilities, matching, workers and explanations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowfabric import limits
from flowfabric.errors import InvalidCapabilities, InvalidInput
from flowfabric.kernel.decision import Moment, Refused
from flowfabric.kernel.execution.routing import Offer, matching_routes, missing_capabilities
from flowfabric.kernel.explain.execution import explain
from flowfabric.kernel.explain.limits import BoundsLook
from flowfabric.kernel.place.workers import (
    HeartbeatWorker,
    RegisterWorker,
    heartbeat_worker,
    register_worker,
)
from flowfabric.model.checks import check_capabilities
from flowfabric.model.record import replace
from flowfabric.model.results import NotRegistered, Refreshed, Registered
from flowfabric.model.route import Catalog, Lane, LaneState, Route
from flowfabric.model.worker import Worker
from tests.support import builders as make
from tests.support.builders import NOW, claimed

good_tokens = st.text(
    st.characters(blacklist_categories=["Z", "C"], blacklist_characters=","),
    min_size=1,
    max_size=8,
).filter(str.isprintable)
token_sets = st.frozensets(good_tokens, max_size=6)


def check(tokens: object) -> tuple[str, ...]:
    return check_capabilities(tokens, field="capabilities")


@given(st.lists(good_tokens, max_size=20))
def test_any_printable_word_is_a_capability(tokens: list[str]) -> None:
    """One grammar for both sides; order and repetition mean nothing."""
    assert check(tokens) == tuple(sorted(set(tokens)))


@given(good_tokens, st.sampled_from([",", " ", "\t", "\n", "\x7f", "\x00", "\u00a0", "\u2003"]))
def test_a_comma_a_space_or_a_control_character_is_refused(token: str, bad: str) -> None:
    """Unicode spaces included."""
    for spoiled in (bad, token + bad, bad + token, token + bad + token):
        with pytest.raises(InvalidCapabilities, match="capabilities"):
            check([spoiled])


@pytest.mark.parametrize("wrong", ["gpu", b"gpu", {"gpu": True}, 5, None, [""], [5], [None]])
def test_a_list_of_another_shape_is_refused(wrong: object) -> None:
    """Never read as "any worker may run this"."""
    with pytest.raises(InvalidCapabilities, match="capabilities"):
        check(wrong)


def test_the_east_counts() -> None:
    assert check(["东京-gpu"]) == ("东京-gpu",)


def test_both_maxima_are_inclusive() -> None:
    """256 words, 4096 bytes of the comma-joined form."""
    words = [f"w{number}" for number in range(limits.CAPABILITY_TOKENS_MAX)]
    assert len(check(words)) == limits.CAPABILITY_TOKENS_MAX
    with pytest.raises(InvalidCapabilities, match="256 words"):
        check([*words, "more"])
    long = "x" * limits.CAPABILITY_CSV_BYTES
    assert check([long]) == (long,)
    with pytest.raises(InvalidCapabilities, match="4096 bytes"):
        check([long + "x"])
    with pytest.raises(InvalidCapabilities, match="4096 bytes"):
        check([long[:-1], "y"])


@given(token_sets, token_sets)
def test_a_worker_fits_exactly_when_it_offers_a_superset(
    required: frozenset[str], offered: frozenset[str]
) -> None:
    missing = missing_capabilities(required, offered)
    assert missing == tuple(sorted(required - offered))
    catalog = Catalog(1, (Route("default", "lane", "kind", tuple(sorted(required))),), {})
    matched = matching_routes(Offer(("default",), ("lane",), tuple(offered)), catalog)
    assert bool(matched) == (required <= offered)


@pytest.mark.parametrize(
    ("offer", "fits"),
    [
        (Offer(("default",), ("lane",)), True),
        (Offer(("default",), ("other", "lane")), True),
        (Offer(("other",), ("lane",)), False),
        (Offer(("default",), ("other",)), False),
        (Offer(("default",), ("lane",), (), ("kind",)), True),
        (Offer(("default",), ("lane",), (), ("other",)), False),
        (Offer(("default",), ("lane",), (), ()), False),
    ],
)
def test_a_route_fits_in_all_its_parts(offer: Offer, fits: bool) -> None:
    catalog = Catalog(1, (Route("default", "lane", "kind"),), {})
    assert bool(matching_routes(offer, catalog)) == fits


@pytest.mark.parametrize("state", LaneState)
def test_only_an_open_lane_hands_out(state: LaneState) -> None:
    lane = Lane("lane", state, NOW, NOW)
    catalog = Catalog(1, (Route("default", "lane", "kind"),), {"lane": lane})
    matched = matching_routes(Offer(("default",), ("lane",)), catalog)
    assert bool(matched) == (state in (LaneState.ACTIVE, LaneState.DRAINING))


# --- the registry ------------------------------------------------------------------------------

TTL = 1000


def worker(capabilities: tuple[str, ...] = (), heard_at: int = NOW) -> Worker:
    return Worker("default", "w1-1", "w1", ("lane",), capabilities, None, heard_at, TTL, heard_at)


BEAT = HeartbeatWorker(namespace="default", worker_instance_id="w1-1")


def register(known: Worker | None, worker_id: str = "w1", now: int = NOW) -> object:
    offer = Offer(("default",), ("lane",))
    command = RegisterWorker(
        offer=offer, worker_id=worker_id, worker_instance_id="w1-1", liveness_ttl_ms=TTL
    )
    return register_worker(known, command, Moment(now)).reply


@pytest.mark.parametrize(("age_ms", "live"), [(TTL - 1, True), (TTL, False), (TTL + 1, False)])
def test_a_worker_lapses_exactly_after_its_time(age_ms: int, live: bool) -> None:
    now = NOW + age_ms
    expected = Refreshed(now + TTL) if live else NotRegistered()
    assert heartbeat_worker(worker(), BEAT, Moment(now)).reply == expected
    again = Refreshed(now + TTL) if live else Registered(now + TTL)
    assert register(worker(), now=now) == again


def test_an_instance_changes_its_pool_only_after_it_lapsed() -> None:
    reply = register(worker(), "w2")
    assert isinstance(reply, Refused)
    assert reply.error is InvalidInput
    assert reply.fields["field"] == "worker_id"
    assert register(worker(), "w2", NOW + TTL) == Registered(NOW + 2 * TTL)


def test_refreshing_keeps_the_registration_instant_and_writes_no_event() -> None:
    """Heartbeats append nothing."""
    beat = heartbeat_worker(worker(), BEAT, Moment(NOW + 5))
    assert beat.events == ()
    assert beat.saves == (replace(worker(), last_heartbeat_at=NOW + 5),)


# --- explain -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("situation", "waiting_for"),
    [
        ("delayed", "waiting_for_delay"),
        ("retrying", "waiting_for_retry_backoff"),
        ("held", "paused_by_operator"),
        ("leased", "nothing"),
        ("lapsed", "reclaim"),
        ("revoked", "reclaim"),
        ("completed", "nothing"),
    ],
)
def test_every_situation_explains_itself(situation: str, waiting_for: str) -> None:
    """I9: a due time or a named cause."""
    answer = explain(make.SITUATIONS[situation](), LaneState.ACTIVE, [], BoundsLook(), NOW)
    assert answer.waiting_for == waiting_for
    assert answer.summary


def test_waiting_work_names_what_no_live_worker_offers() -> None:
    """waiting_for_capable_worker with what is missing."""
    needs = make.created(route=Route("default", "lane", "kind", ("cuda", "gpu")))
    answer = explain(needs, LaneState.ACTIVE, [worker(("gpu",))], BoundsLook(), NOW)
    assert answer.waiting_for == "waiting_for_capable_worker"
    assert answer.missing_capabilities == ("cuda",)
    assert [fit.lacks for fit in answer.could_run] == ["lacks cuda"]
    fit = explain(needs, LaneState.ACTIVE, [worker(("cuda", "gpu"))], BoundsLook(), NOW)
    assert (fit.waiting_for, fit.missing_capabilities) == ("worker", ())
    lapsed = explain(needs, LaneState.ACTIVE, [worker(("cuda", "gpu"))], BoundsLook(), NOW + TTL)
    assert lapsed.waiting_for == "waiting_for_capable_worker"
    assert lapsed.could_run == ()


def test_a_closed_lane_is_the_first_reason_named() -> None:
    answer = explain(make.created(), LaneState.PAUSED, [worker()], BoundsLook(), NOW)
    assert answer.waiting_for == "lane_state"


def test_an_expired_lease_that_was_not_marked_yet_is_explained() -> None:
    running = claimed(make.created())
    answer = explain(running, LaneState.ACTIVE, [], BoundsLook(), NOW + make.TTL_MS)
    assert answer.waiting_for == "lease_expiry"
