"""Bad input about budgets: a typed error that names the field, and nothing changed."""

from __future__ import annotations

from typing import Any, cast

import pytest

from flowfabric import limits
from flowfabric.api.budgets import Usage
from flowfabric.errors import (
    BudgetScopeMismatch,
    FlowFabricError,
    HandleFromOtherBackend,
    InvalidBudgetScope,
    InvalidInput,
    NotFound,
    ValidationError,
)
from flowfabric.model.budget import AMOUNT_MAX, HardBreach, Ok
from flowfabric.model.record import replace
from tests.support.budgets import (
    BUDGET,
    ledger,
    make_budget,
    report,
    reserve,
    settle,
    spend,
    usage,
)
from tests.support.lab import Lab, scenario

NOBODY = "{fp:7}:01890000-0000-7000-8000-000000000001"
BAD_AMOUNTS = [-1, True, False, 1.0, 0.0, "1", None, 2**63, 2**64, float("nan")]
BAD_NAMES = ["", "x" * 257, "a\x00b", "a\nb", "\ud800", 7, None, b"b"]
TOO_MANY = {f"d{number}": 1 for number in range(limits.DIMENSIONS_MAX + 1)}


def field_of(error: FlowFabricError) -> str:
    return str(error.fields.get("field", ""))


# --- attaching -----------------------------------------------------------------------------------


@scenario
async def test_an_unknown_budget_is_not_attached(lab: Lab) -> None:
    """Nothing is created; usage alone is no budget."""
    await make_budget(lab)
    await report(lab, {"a": 1}, "only-usage")
    for name in ("missing", "only-usage"):
        async with lab.refuses(NotFound, field=name):
            await lab.create(budget_ids=(BUDGET, name))
    with pytest.raises(NotFound) as refusal:
        await lab.create(budget_ids=("missing",))
    assert (field_of(refusal.value), refusal.value.fields["entity"]) == ("budget_ids", "budget")


@pytest.mark.parametrize("budget_ids", ["b", {"b": 1}, 7, ("",), (7,), ("x" * 257,), ("a\nb",)])
@scenario
async def test_malformed_budget_ids_are_refused(lab: Lab, budget_ids: Any) -> None:
    await make_budget(lab)
    async with lab.refuses(InvalidInput, field="budget_ids"):
        await lab.create(budget_ids=budget_ids)


@scenario
async def test_too_many_budgets_are_refused(lab: Lab) -> None:
    names = tuple(f"b{number}" for number in range(limits.BUDGETS_ATTACHED_MAX + 1))
    async with lab.refuses(InvalidInput, field="budget_ids"):
        await lab.create(budget_ids=names)


@scenario
async def test_a_budget_for_something_else_is_not_attached(lab: Lab) -> None:
    other = await lab.create()
    await make_budget(lab, "lane", scope_type="lane", scope_id="gpu")
    await make_budget(lab, "namespace", scope_type="namespace", scope_id="acme")
    await make_budget(lab, "execution", scope_type="execution", scope_id=other)
    for name in ("lane", "namespace", "execution"):
        async with lab.refuses(BudgetScopeMismatch, field="budget_ids"):
            await lab.create(budget_ids=(name,))
    await lab.create(budget_ids=("lane",), lane_id="gpu")
    await lab.create(budget_ids=("namespace",), namespace="acme")


# --- policies ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BAD_NAMES)
@scenario
async def test_a_budget_needs_a_name(lab: Lab, name: Any) -> None:
    engine = lab.engine
    for call in (
        engine.create_budget,
        engine.update_budget,
        engine.reset_budget,
        engine.get_budget_status,
        engine.read_budget_usage_and_limits,
    ):
        async with lab.refuses(InvalidInput, field="budget_id"):
            await cast("Any", call)(budget_id=name)


@pytest.mark.parametrize(
    "field", ["scope_type", "enforcement_mode", "on_hard_limit", "on_soft_limit"]
)
@pytest.mark.parametrize("word", ["", "whim", "BLOCK", 1, True, None, ["block"]])
@scenario
async def test_unknown_words_are_refused(lab: Lab, field: str, word: Any) -> None:
    """At creation, and when a policy is changed."""
    async with lab.refuses(InvalidInput, field=field):
        await make_budget(lab, "new", **{field: word})
    if field != "scope_type" and word is not None:
        await make_budget(lab)
        async with lab.refuses(InvalidInput, field=field):
            await lab.engine.update_budget(budget_id=BUDGET, **{field: word})


@pytest.mark.parametrize("interval", [-1, 1, 999, True, 1000.0, "1000", limits.DURATION_MS_MAX + 1])
@scenario
async def test_a_period_is_none_or_at_least_a_second(lab: Lab, interval: Any) -> None:
    await make_budget(lab)
    async with lab.refuses(InvalidInput, field="reset_interval_ms"):
        await make_budget(lab, "new", reset_interval_ms=interval)
    async with lab.refuses(InvalidInput, field="reset_interval_ms"):
        await lab.engine.update_budget(budget_id=BUDGET, reset_interval_ms=interval)


@scenario
async def test_the_shortest_period_is_a_second(lab: Lab) -> None:
    await make_budget(lab, reset_interval_ms=1000)


@pytest.mark.parametrize("amount", BAD_AMOUNTS)
@scenario
async def test_limits_are_whole_numbers_of_64_bits(lab: Lab, amount: Any) -> None:
    if type(amount) is not int:
        lab.engine = lab.direct  # a wire knows only that it was an entry of the map
    await make_budget(lab)
    create, update = lab.engine.create_budget, lab.engine.update_budget
    for field, other in (("hard_limits", "soft_limits"), ("soft_limits", "hard_limits")):
        lists: dict[str, Any] = {field: [amount], other: [0]}
        async with lab.refuses(InvalidInput, field=field):
            await create(budget_id="new", dimensions=["a"], **lists)
        change: dict[str, Any] = {field: {"a": amount}}
        async with lab.refuses(InvalidInput, field=f"{field}.a"):
            await update(budget_id=BUDGET, **change)


@scenario
async def test_the_largest_limit_is_kept_exactly(lab: Lab) -> None:
    await make_budget(lab, hard={"a": AMOUNT_MAX})
    assert await report(lab, {"a": AMOUNT_MAX}) == Ok()
    assert await usage(lab) == {"a": AMOUNT_MAX}


@pytest.mark.parametrize("lists", [{"dimensions": "ab"}, {"dimensions": 7}, {"hard_limits": None}])
@scenario
async def test_the_lists_of_a_budget_are_lists(lab: Lab, lists: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"dimensions": ["a"], "hard_limits": [1], "soft_limits": [1], **lists}
    async with lab.refuses(InvalidInput, field=next(iter(lists))):
        await lab.engine.create_budget(budget_id=BUDGET, **fields)


@scenario
async def test_a_budget_has_a_bounded_number_of_limits(lab: Lab) -> None:
    """Also when they are added a few at a time."""
    async with lab.refuses(InvalidInput, field="hard_limits"):
        await make_budget(lab, hard=TOO_MANY)
    first = dict(list(TOO_MANY.items())[: limits.DIMENSIONS_MAX])
    await make_budget(lab, hard=first)
    for field in ("hard_limits", "soft_limits"):
        async with lab.refuses(InvalidInput, field=field):
            await lab.engine.update_budget(budget_id=BUDGET, **cast("Any", {field: {"zz": 1}}))
    await lab.engine.update_budget(budget_id=BUDGET, hard_limits={"d0": 5})


@pytest.mark.parametrize(
    ("scope", "target"),
    [
        ("free", "x"),
        ("lane", ""),
        ("flow", ""),
        ("namespace", ""),
        ("execution", ""),
    ],
)
@scenario
async def test_a_scope_needs_its_target(lab: Lab, scope: str, target: str) -> None:
    async with lab.refuses(InvalidBudgetScope, field="scope_id"):
        await make_budget(lab, scope_type=scope, scope_id=target)


@pytest.mark.parametrize(
    ("scope", "target"),
    [("lane", "x" * 65), ("lane", "übung"), ("execution", "nonsense"), ("namespace", "a\nb")],
)
@scenario
async def test_a_scopes_target_is_well_formed(lab: Lab, scope: str, target: str) -> None:
    async with lab.refuses(InvalidInput):
        await make_budget(lab, scope_type=scope, scope_id=target)


@scenario
async def test_an_execution_budget_needs_its_execution(lab: Lab) -> None:
    async with lab.refuses(NotFound):
        await make_budget(lab, scope_type="execution", scope_id=NOBODY)


# --- spending ------------------------------------------------------------------------------------


@pytest.mark.parametrize("amount", BAD_AMOUNTS)
@scenario
async def test_amounts_are_whole_numbers_of_64_bits(lab: Lab, amount: Any) -> None:
    """In every operation that takes them."""
    if type(amount) is not int:
        lab.engine = lab.direct  # a wire knows only that it was an entry of the map
    await make_budget(lab)
    claimed = await lab.started()
    await reserve(lab, claimed, {"a": 1})
    engine, handle, amounts = lab.engine, claimed.handle, {"a": amount}
    calls: list[tuple[str, Any]] = [
        ("deltas", lambda: report(lab, amounts)),
        ("deltas.a", lambda: spend(lab, claimed.execution_id, amounts)),
        (
            "amounts.a",
            lambda: engine.reserve_budget(handle, budget_id=BUDGET, amounts=amounts),
        ),
        ("amounts.a", lambda: settle(lab, claimed, amounts)),
        ("custom.a", lambda: tell(lab, handle, Usage(custom=amounts))),
        ("input_tokens", lambda: tell(lab, handle, Usage(input_tokens=amount))),
        ("output_tokens", lambda: tell(lab, handle, Usage(output_tokens=amount))),
        ("wall_ms", lambda: tell(lab, handle, Usage(wall_ms=amount))),
    ]
    for field, call in calls:
        async with lab.refuses(InvalidInput, field=field):
            await call()


async def tell(lab: Lab, handle: Any, used: Any) -> Any:
    return await lab.engine.report_usage(handle, budget_id=BUDGET, usage=used)


@pytest.mark.parametrize("name", BAD_NAMES)
@scenario
async def test_dimensions_have_names(lab: Lab, name: Any) -> None:
    if not isinstance(name, str) or not name.isascii():
        lab.engine = lab.direct  # no such name has a form on a wire
    claimed = await lab.started()
    amounts = {name: 1}
    calls: list[Any] = [
        lambda: report(lab, amounts),
        lambda: spend(lab, claimed.execution_id, amounts),
        lambda: reserve(lab, claimed, amounts),
        lambda: settle(lab, claimed, amounts),
        lambda: tell(lab, claimed.handle, Usage(custom=amounts)),
        lambda: make_budget(lab, hard=amounts),
    ]
    for call in calls:
        async with lab.refuses(InvalidInput, field="dimension"):
            await call()


@pytest.mark.parametrize("amounts", [None, 7, [("a", 1)], "a", TOO_MANY])
@scenario
async def test_amounts_are_a_map_of_bounded_size(lab: Lab, amounts: Any) -> None:
    claimed = await lab.started()
    calls: list[tuple[str, Any]] = [
        ("deltas", lambda: spend(lab, claimed.execution_id, amounts)),
        ("amounts", lambda: reserve(lab, claimed, amounts)),
        ("amounts", lambda: settle(lab, claimed, amounts)),
        ("custom", lambda: tell(lab, claimed.handle, Usage(custom=amounts))),
    ]
    for field, call in calls:
        async with lab.refuses(InvalidInput, field=field):
            await call()


@pytest.mark.parametrize(
    ("dimensions", "deltas"),
    [(["a"], []), ([], [1]), (["a"], [1, 2]), ("a", [1]), (["a"], 1), (None, [1])],
)
@scenario
async def test_a_report_is_two_lists_of_one_length(lab: Lab, dimensions: Any, deltas: Any) -> None:
    async with lab.refuses(InvalidInput):
        await lab.engine.report_usage_admin(budget_id=BUDGET, dimensions=dimensions, deltas=deltas)


@scenario
async def test_a_dimension_named_twice_is_added_up(lab: Lab) -> None:
    """Its sum too has 64 bits."""
    call = lab.engine.report_usage_admin
    await call(budget_id=BUDGET, dimensions=["a", "a"], deltas=[2, 3])
    assert await usage(lab) == {"a": 5}
    async with lab.refuses(InvalidInput, field="deltas.a"):
        await call(budget_id=BUDGET, dimensions=["a", "a"], deltas=[AMOUNT_MAX, 1])


@scenario
async def test_sums_never_pass_64_bits(lab: Lab) -> None:
    """Used and held together; with no limit at all, and in every operation."""
    await make_budget(lab)
    claimed = await lab.started()
    await spend(lab, claimed.execution_id, {"a": AMOUNT_MAX - 5})
    await reserve(lab, claimed, {"a": 3})
    over: list[Any] = [
        lambda: report(lab, {"a": 3}),
        lambda: spend(lab, claimed.execution_id, {"a": 3}),
        lambda: reserve(lab, claimed, {"a": 3}, "h2"),
        lambda: settle(lab, claimed, {"a": 6}),
        lambda: tell(lab, claimed.handle, Usage(custom={"a": 3})),
    ]
    for call in over:
        async with lab.refuses(InvalidInput, field="a: the sum"):
            await call()
    assert await settle(lab, claimed, {"a": 5}) == Ok()
    assert await usage(lab) == {"a": AMOUNT_MAX}
    assert await ledger(lab, claimed.execution_id) == {"a": AMOUNT_MAX}


@scenario
async def test_a_breach_near_the_edge_of_64_bits_is_a_breach(lab: Lab) -> None:
    await make_budget(lab, hard={"a": AMOUNT_MAX - 1})
    assert await report(lab, {"a": AMOUNT_MAX}) == HardBreach("a", 0, AMOUNT_MAX - 1)


@pytest.mark.parametrize("used", [None, {}, {"input_tokens": 1}, 7, "x"])
@scenario
async def test_a_report_needs_a_usage(lab: Lab, used: Any) -> None:
    if isinstance(used, dict):
        lab.engine = lab.direct  # behind a wire a map is a Usage
    claimed = await lab.started()
    async with lab.refuses(InvalidInput, field="usage"):
        await tell(lab, claimed.handle, used)


@scenario
async def test_a_part_of_a_usage_is_given_once(lab: Lab) -> None:
    claimed = await lab.started()
    twice = Usage(input_tokens=1, custom={"input_tokens": 1})
    async with lab.refuses(InvalidInput, field="custom.input_tokens"):
        await tell(lab, claimed.handle, twice)


@scenario
async def test_every_part_of_a_usage_counts(lab: Lab) -> None:
    """Under its own name; what was not used makes no row."""
    claimed = await lab.started()
    used = Usage(input_tokens=1, output_tokens=2, wall_ms=3, custom={"cost": 4})
    await tell(lab, claimed.handle, used)
    assert await usage(lab) == {"cost": 4, "input_tokens": 1, "output_tokens": 2, "wall_ms": 3}
    await tell(lab, claimed.handle, Usage())
    assert len(await usage(lab)) == 4


@pytest.mark.parametrize("handle", [None, 7, "handle", b"nonsense", b"", {}])
@scenario
async def test_a_malformed_handle_is_refused(lab: Lab, handle: Any) -> None:
    await make_budget(lab)
    engine = lab.engine
    named = {"budget_id": BUDGET, "hold_id": "h"}
    calls: list[Any] = [
        lambda: tell(lab, handle, Usage(input_tokens=1)),
        lambda: engine.reserve_budget(handle, budget_id=BUDGET, amounts={"a": 1}),
        lambda: engine.settle_budget(handle, **named, amounts={"a": 1}),
        lambda: engine.release_hold(handle, **named),
    ]
    for call in calls:
        async with lab.refuses(ValidationError, field="handle"):
            await call()


@scenario
async def test_a_handle_of_another_store_is_refused(lab: Lab) -> None:
    claimed = await lab.started()
    foreign = replace(claimed.handle, backend="elsewhere")
    async with lab.refuses(HandleFromOtherBackend, field="handle"):
        await tell(lab, foreign, Usage(input_tokens=1))


@pytest.mark.parametrize("ttl", [0, -1, True, 1.5, "1", None, limits.DURATION_MS_MAX + 1])
@scenario
async def test_times_to_live_are_positive(lab: Lab, ttl: Any) -> None:
    claimed = await lab.started()
    calls: list[tuple[str, Any]] = [
        ("dedup_ttl_ms", lambda: report(lab, {"a": 1}, dedup_key="k", dedup_ttl_ms=ttl)),
        ("dedup_ttl_ms", lambda: spend(lab, claimed.execution_id, {"a": 1}, dedup_ttl_ms=ttl)),
        ("ttl_ms", lambda: reserve(lab, claimed, {"a": 1}, ttl_ms=ttl)),
    ]
    for field, call in calls:
        async with lab.refuses(InvalidInput, field=field):
            await call()


@pytest.mark.parametrize("key", [7, True, b"k", "x" * 513, "a\x00", "a\nb"])
@scenario
async def test_dedup_keys_are_text(lab: Lab, key: Any) -> None:
    claimed = await lab.started()
    calls: list[tuple[str, Any]] = [
        ("dedup_key", lambda: report(lab, {"a": 1}, dedup_key=key)),
        ("dedup_key", lambda: tell(lab, claimed.handle, Usage(wall_ms=1, dedup_key=key))),
        (
            "idempotency_key",
            lambda: spend(lab, claimed.execution_id, {"a": 1}, idempotency_key=key),
        ),
    ]
    for field, call in calls:
        async with lab.refuses(InvalidInput, field=field):
            await call()


@pytest.mark.parametrize("name", BAD_NAMES)
@scenario
async def test_holds_have_names(lab: Lab, name: Any) -> None:
    claimed = await lab.started()
    calls: list[Any] = [lambda: settle(lab, claimed, {"a": 1}, name)]
    if name is not None:
        calls.append(lambda: reserve(lab, claimed, {"a": 1}, name))
    for call in calls:
        async with lab.refuses(InvalidInput, field="hold_id"):
            await call()


# --- reading -------------------------------------------------------------------------------------


@scenario
async def test_pages_of_budgets_go_on_past_usage_without_a_policy(lab: Lab) -> None:
    """What only collects usage is not listed and hides nothing."""
    for number in range(6):
        await report(lab, {"a": 1}, f"a{number}")
    for number in range(3):
        await make_budget(lab, f"b{number}")
    pages: list[list[str]] = []
    cursor = None
    while not pages or cursor is not None:
        page = await lab.engine.list_budgets(cursor=cursor, limit=2)
        pages.append([each.budget_id for each in page.items])
        cursor = page.next_cursor
    assert pages == [["b0", "b1"], ["b2"]]


@pytest.mark.parametrize("limit", [-1, True, 1.0, None, limits.PAGE_MAX + 1])
@scenario
async def test_a_page_is_bounded(lab: Lab, limit: Any) -> None:
    async with lab.refuses(InvalidInput, field="limit"):
        await lab.engine.list_budgets(limit=limit)
