"""Access tokens: made once, recognised until they end, and shown to nobody."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric import limits
from flowfabric.errors import InvalidInput, NotFound, Unauthorized
from flowfabric.limits import TOKEN_USE_MS
from flowfabric.model.access import AccessToken, AccessTokenCreated, Namespaces, Scope
from flowfabric.model.bulk import BulkOperation
from flowfabric.model.feed import EventFilter
from flowfabric.model.suspension import Token
from tests.support.lab import Lab, scenario

UNKNOWN = "{fp:0}:01890000-0000-7000-8000-000000000001"
YEAR_MS = 365 * 86_400_000


async def made(lab: Lab, **fields: Any) -> AccessTokenCreated:
    return await lab.engine.create_access_token(**{"name": "ci", "scopes": ("read",), **fields})


async def listed(lab: Lab, **fields: Any) -> list[AccessToken]:
    return list((await lab.engine.list_access_tokens(**fields)).items)


@scenario
async def test_a_token_is_recognised_by_its_text_alone(lab: Lab) -> None:
    token = await made(lab, scopes=("submit", "read"), namespaces=("b", "a"), actor="ann")
    assert token.expires_at == lab.now + YEAR_MS
    assert token.scopes == (Scope.READ, Scope.SUBMIT)
    found = await lab.engine.authenticate(token=token.token)
    assert (found.id, found.name, found.scopes) == (token.id, "ci", token.scopes)
    assert (found.namespaces, found.speaks_for) == (("a", "b"), False)
    text = token.token.reveal()
    other = await made(lab)
    swapped = "_".join((*text.split("_")[:2], *other.token.reveal().split("_")[2:]))
    for wrong in ("", "ff", text[:-1], text + "0", text.swapcase(), swapped):
        async with lab.refuses(Unauthorized):
            await lab.engine.authenticate(token=Token(wrong))


@scenario
async def test_the_refusal_of_every_token_that_is_not_good_is_the_same(lab: Lab) -> None:
    revoked, over = await made(lab), await made(lab, expires_in_ms=1_000)
    await lab.engine.revoke_access_token(token_id=revoked.id)
    await lab.after(1_000)
    told = set()
    for text in ("", "nonsense", revoked.token.reveal(), over.token.reveal()):
        with pytest.raises(Unauthorized) as caught:
            await lab.engine.authenticate(token=Token(text))
        told.add((str(caught.value), repr(caught.value.fields)))
    assert len(told) == 1


@scenario
async def test_the_secret_of_a_token_is_stored_nowhere(lab: Lab) -> None:
    token = await made(lab)
    _, _, secret, checksum = token.token.reveal().split("_")
    stored = repr(await lab.dump()) + repr(await listed(lab)) + repr(token)
    assert token.id in stored
    assert secret not in stored
    assert checksum not in stored


@scenario
async def test_a_use_is_noted_at_most_every_five_minutes(lab: Lab) -> None:
    token = await made(lab)
    noted = []
    for _ in range(3):
        await lab.engine.authenticate(token=token.token)
        noted.append((await listed(lab))[0].last_used_at)
        await lab.after(TOKEN_USE_MS // 2)
    first = noted[0]
    assert first is not None
    assert noted == [first, first, first + TOKEN_USE_MS]


@scenario
async def test_a_token_is_revoked_for_good(lab: Lab) -> None:
    token, kept = await made(lab), await made(lab)
    gone = await lab.engine.revoke_access_token(token_id=token.id, actor="ann")
    assert (gone.is_new, gone.revoked_at) == (True, lab.now)
    await lab.after(5)
    again = await lab.engine.revoke_access_token(token_id=token.id, actor="bob")
    assert (again.is_new, again.revoked_at) == (False, gone.revoked_at)
    with pytest.raises(Unauthorized):
        await lab.engine.authenticate(token=token.token)
    assert (await lab.engine.authenticate(token=kept.token)).id == kept.id
    shown = {each.id: each for each in await listed(lab)}
    assert (shown[token.id].revoked_by, shown[kept.id].revoked_at) == ("ann", None)
    async with lab.refuses(NotFound, "access token"):
        await lab.engine.revoke_access_token(token_id="unknown")


@scenario
async def test_a_listing_of_namespaces_has_the_tokens_that_are_for_these_alone(lab: Lab) -> None:
    for number, namespaces in enumerate((None, ("a",), ("a", "b"), ("b",), ("c",))):
        await made(lab, name=str(number), namespaces=namespaces)
    found = {each.name for each in await listed(lab, namespaces=("a", "b"))}
    assert found == {"1", "2", "3"}
    page = await lab.engine.list_access_tokens(namespaces=("a", "b"), limit=2)
    rest = await lab.engine.list_access_tokens(namespaces=("a", "b"), cursor=page.next_cursor)
    assert {each.name for each in (*page.items, *rest.items)} == found


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("scopes", ()),
        ("scopes", ("reed",)),
        ("scopes", (5,)),
        ("namespaces", ()),
        ("namespaces", ("",)),
        ("namespaces", tuple(map(str, range(101)))),
        ("expires_in_ms", 999),
        ("expires_in_ms", 11 * YEAR_MS),
        ("speaks_for", 1),
    ],
)
@scenario
async def test_a_wrong_argument_makes_no_token(lab: Lab, field: str, value: Any) -> None:
    async with lab.refuses(InvalidInput, field):
        await made(lab, **{field: value})


@scenario
async def test_a_misspelt_scope_names_the_nearest(lab: Lab) -> None:
    async with lab.refuses(InvalidInput, "did you mean operate?"):
        await made(lab, scopes=("opertae",))


@scenario
async def test_tokens_that_have_ended_give_way_when_there_are_too_many(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ACCESS_TOKENS_MAX", 2)
    first, second = await made(lab, name="1"), await made(lab, name="2")
    with pytest.raises(Exception, match="revoke one"):
        await made(lab, name="3")
    await lab.engine.revoke_access_token(token_id=first.id)
    await made(lab, name="3")
    assert {each.name for each in await listed(lab)} == {"2", "3"}
    assert (await lab.engine.authenticate(token=second.token)).name == "2"


@scenario
async def test_things_tell_whose_they_are_and_what_is_nothing_is_nobodys(lab: Lab) -> None:
    mine = await lab.create(namespace="a")
    flow = await lab.engine.create_flow(namespace="b")
    held = await lab.engine.start_operation(action="hold", namespace="a")
    assert isinstance(held, BulkOperation)
    await lab.engine.create_consumer_group(group_id="all")
    await lab.engine.create_consumer_group(group_id="b", filter=EventFilter(namespace="b"))
    await lab.engine.create_budget(budget_id="mine", namespace="a")
    await lab.engine.create_budget(budget_id="ours")
    await lab.engine.create_quota_policy(quota_policy_id="mine", namespace="b", max_concurrent=1)
    found = await lab.engine.find_namespaces(
        execution_ids=(mine, UNKNOWN, "nonsense"),
        flow_ids=(flow.flow_id, "nonsense"),
        operation_ids=(held.operation_id, "nonsense"),
        group_ids=("all", "b", "c"),
        budget_ids=("mine", "ours", "no"),
        quota_policy_ids=("mine", "no"),
    )
    assert found == Namespaces(
        executions={mine: "a"},
        flows={flow.flow_id: "b"},
        operations={held.operation_id: "a"},
        groups={"all": None, "b": "b"},
        budgets={"mine": "a", "ours": None},
        quotas={"mine": "b"},
    )
    wrongs: tuple[Any, ...] = ("text", (5,), ("",))
    for wrong in wrongs:
        async with lab.refuses(InvalidInput, "flow_ids"):
            await lab.engine.find_namespaces(flow_ids=wrong)
