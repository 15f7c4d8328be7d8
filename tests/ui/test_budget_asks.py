"""Questions of budgets among the approvals: what they show, and what answers do."""

from __future__ import annotations

from typing import Final

import pytest

from flowfabric.api.waits import SuspendRequest, UsePending
from flowfabric.model.ask import AskState
from flowfabric.model.event import OperatorEventType
from flowfabric.model.suspension import ReasonCode, Single
from tests.support.http import Desk
from tests.support.lab import Lab, scenario
from tests.support.pages import page_of, sent, shown
from tests.ui.asking import flash_in, posted, text_of, token

LIST: Final = "/ui/approvals"
FORM: Final = f"{LIST}/budget/gpt/tokens/hard"


@pytest.fixture
def lab(quick: Lab) -> Lab:
    """In memory: the store is not the point."""
    return quick


async def asked(lab: Lab, namespace: str = "default") -> str:
    """A run that reached the limit of the budget, and waits for an answer."""
    await lab.create("research", namespace=namespace)
    claimed = await lab.claim(namespace=namespace)
    told = await lab.engine.ask_budget(claimed.handle, budget_id="gpt", amounts={"tokens": 600})
    wait = SuspendRequest(
        resume_condition=Single(told.waitpoint_key),
        waitpoints=(UsePending(told.waitpoint_id, told.waitpoint_key),),
        reason_code=ReasonCode.PAUSED_BY_BUDGET,
    )
    await lab.engine.suspend(claimed.handle, wait)
    return claimed.execution_id


async def budget(lab: Lab) -> None:
    await lab.engine.create_budget(
        budget_id="gpt",
        dimensions=["tokens"],
        hard_limits=[1_000],
        soft_limits=[0],
        on_hard_limit="ask",
    )
    await lab.engine.report_usage_admin(budget_id="gpt", dimensions=["tokens"], deltas=[600])


async def state(lab: Lab) -> AskState:
    (found,) = (await lab.engine.list_budget_asks(only_open=False)).items
    return found.state


@scenario
async def test_a_question_is_listed_with_what_is_used_and_wanted(lab: Lab) -> None:
    await budget(lab)
    await asked(lab)
    desk = Desk(lab.engine)
    page = await shown(desk, LIST)
    words = text_of(page)
    assert "600 of 1 000 tokens used, 600 more wanted by 1 run: 1 200 then" in words
    assert "asked first by research" in words
    assert "1 waits for people" in words
    assert FORM in [each.attributes["href"] for each in page.all("a")]


@scenario
async def test_a_raise_and_an_allowance_are_told_and_counted(lab: Lab) -> None:
    await budget(lab)
    await asked(lab)
    desk = Desk(lab.engine)
    page = await shown(desk, FORM)
    answer = {"number": "1", "decision": "approved", "how": "raise", "by": "ada"}
    for wrong in ("", "0", "x", "-5"):
        async with lab.unchanged("ff_audit"):
            refused = await sent(desk, FORM, page, **answer, raise_by=wrong)
        assert (refused.status, b'class="flaw"' in refused.body) == (422, True)
    done = await sent(desk, FORM, page, **answer, raise_by="500", comment="go")
    assert "the limit is 1500 now" in flash_in(done)
    assert await state(lab) is AskState.APPROVED
    over = text_of(await shown(desk, FORM))
    assert "Approved by ada: the limit was raised by 500." in over
    decided = text_of(await shown(desk, f"{LIST}?tab=decided"))
    assert "raised by 500" in decided
    assert "“go”" in decided


@scenario
async def test_an_answer_once_and_a_rejection(lab: Lab) -> None:
    await budget(lab)
    await asked(lab)
    desk, ada = Desk(lab.engine), await token(lab, "approve")
    once = await posted(desk, FORM, ada, number="1", decision="approved", how="once")
    assert "once; 1 run goes on beyond the limit" in flash_in(once)
    await lab.direct.move_due()
    await lab.claim("w9")
    await asked(lab)
    rejected = await posted(desk, FORM, ada, number="2", decision="rejected")
    assert "1 run is told no" in flash_in(rejected)
    assert await state(lab) is AskState.REJECTED
    events = await lab.operator_events("gpt")
    answers = [e for e in events if e.event_type is OperatorEventType.BUDGET_ASK_ANSWERED]
    assert [each.actor.partition(":")[0] for each in answers] == ["token", "token"]


@scenario
async def test_a_question_that_was_answered_meanwhile_is_told_and_not_answered_again(
    lab: Lab,
) -> None:
    await budget(lab)
    await asked(lab)
    desk = Desk(lab.engine)
    page = await shown(desk, FORM)
    await lab.engine.answer_budget_ask(
        budget_id="gpt", dimension="tokens", approve=False, actor="eve"
    )
    async with lab.unchanged("ff_audit"):
        late = await sent(desk, FORM, page, number="1", decision="approved", how="once")
    assert late.status == 409
    assert "Meanwhile: Rejected by eve." in text_of(page_of(late))
    assert (await desk.get(f"{LIST}/budget/gpt/cost/hard")).status == 404


@scenario
async def test_a_shared_budget_is_answered_only_for_all_namespaces(lab: Lab) -> None:
    await budget(lab)
    await asked(lab, namespace="a")
    desk, own = Desk(lab.engine), await token(lab, "approve", namespaces=("a",))
    page = await shown(desk, FORM, headers=own)
    assert "only a token for all of them may answer" in text_of(page)
    assert "Approve" not in [each.text for each in page.all("button")]
    async with lab.unchanged("ff_audit"):
        refused = await posted(desk, FORM, own, number="1", decision="rejected")
    assert refused.status == 403
    foreign = await token(lab, "approve", namespaces=("b",))
    assert "gpt" not in text_of(await shown(desk, LIST, headers=foreign))
    assert (await desk.get(FORM, headers=foreign)).status == 404


@scenario
async def test_what_one_caller_counts_of_a_namespace_is_not_told_to_another(lab: Lab) -> None:
    """An operator of all that looks at one namespace sees the questions of all beside it."""
    await budget(lab)
    await asked(lab, "b")
    desk, operator = Desk(lab.engine), await token(lab, "operate")
    held = await token(lab, "read", namespaces=("a",))
    looked = await shown(desk, f"{LIST}?namespace=a", headers=operator)
    assert "1 waits for people" in text_of(looked)
    page = await shown(desk, "/ui/runs", headers=held)
    assert not [each for each in page.all("span") if each.attributes.get("class") == "count"]
