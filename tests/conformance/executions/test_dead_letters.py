"""Dead letters: what failed or expired, until it is replayed or dismissed."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import ExecutionNotEligible, InvalidCursor, InvalidInput, NotFound
from flowfabric.ids import new_execution_id
from flowfabric.limits import FAILED_RETENTION_MS_DEFAULT, RETENTION_MS_DEFAULT
from flowfabric.model.bulk import BulkCounted, BulkOperation
from flowfabric.model.dead import DeadCount, Dismissed, Restored
from flowfabric.model.event import OperatorEventType
from flowfabric.model.state import PublicState
from tests.support.flows import arrows, submit
from tests.support.lab import Lab, scenario


async def lost(lab: Lab, category: str | None = None, **fields: Any) -> str:
    """An execution that failed, each at an instant of its own."""
    namespace = {"namespace": fields["namespace"]} if "namespace" in fields else {}
    key = await lab.create(**fields)
    (claimed,) = await lab.claims(**namespace)
    assert claimed.execution_id == key
    await lab.engine.fail(
        claimed.handle, reason="it broke", failure_class="permanent", category=category
    )
    lab.clock.advance(1)
    return key


async def listed(lab: Lab, **asked: Any) -> list[str]:
    return [each.execution_id for each in (await lab.engine.list_dead(**asked)).items]


@scenario
async def test_they_are_listed_by_kind_and_category_and_counted(lab: Lab) -> None:
    brief = [await lost(lab, "timeout", kind="brief"), await lost(lab, "bug", kind="brief")]
    late = await lab.create("mail", execution_deadline_at=lab.now + 5)
    await lab.after(5)
    assert await lab.state(late) is PublicState.EXPIRED
    lab.clock.advance(1)
    mail = await lost(lab, "timeout", kind="mail")
    foreign = await lost(lab, namespace="other")
    await lab.completed()
    await lab.cancel(await lab.create())
    assert await listed(lab) == [mail, late, *reversed(brief)]
    assert await listed(lab, execution_kind="brief") == list(reversed(brief))
    assert await listed(lab, category="timeout") == [mail, late, brief[0]]
    assert await listed(lab, execution_kind="brief", category="timeout") == [brief[0]]
    assert await listed(lab, execution_kind="none") == await listed(lab, limit=0) == []
    (shown,) = (await lab.engine.list_dead(namespace="other")).items
    assert (shown.execution_id, shown.category, shown.reason) == (foreign, "permanent", "it broke")
    assert (shown.public_state, shown.attempts) == (PublicState.FAILED, 1)
    assert (await lab.engine.list_dead(category="deadline")).items == ()
    counted = await lab.engine.count_dead()
    assert [each for each in counted if each.execution_kind == "brief"] == [
        DeadCount("brief", "bug", 1),
        DeadCount("brief", "timeout", 1),
    ]
    assert sum(each.number for each in counted) == 4
    assert await lab.engine.count_dead(category="timeout") == (
        DeadCount("mail", "timeout", 2),
        DeadCount("brief", "timeout", 1),
    )
    first = await lab.engine.list_dead(limit=3)
    rest = await lab.engine.list_dead(limit=3, cursor=first.next_cursor)
    assert [each.execution_id for each in rest.items] == brief[:1]
    assert (await lab.engine.doctor()).problems == ()


@scenario
async def test_a_dismissed_one_is_listed_no_more_and_stays(lab: Lab) -> None:
    key, done = await lost(lab, "bug"), await lab.completed()
    reply = await lab.engine.dismiss_dead(execution_id=key, reason="known", actor="ada")
    assert reply == Dismissed(key, is_new=True)
    assert await listed(lab) == []
    assert await lab.engine.count_dead() == ()
    assert await lab.state(key) is PublicState.FAILED
    (event,) = await lab.operator_events(key)
    assert (event.event_type, event.actor) == (OperatorEventType.DISMISSED, "ada")
    assert event.details == {"reason": "known", "category": "bug"}
    async with lab.unchanged():
        again = await lab.engine.dismiss_dead(execution_id=key)
    assert again == Dismissed(key, is_new=False)
    async with lab.refuses(ExecutionNotEligible):
        await lab.engine.dismiss_dead(execution_id=done)
    async with lab.refuses(NotFound):
        await lab.engine.dismiss_dead(execution_id=new_execution_id())
    # A replay that fails again leaves another.
    await lab.engine.replay_execution(execution_id=key)
    claimed = await lab.claim()
    await lab.engine.fail(claimed.handle, reason="again", failure_class="permanent")
    assert await listed(lab) == [key]


@scenario
async def test_a_dismissed_one_is_restored_to_its_place(lab: Lab) -> None:
    keys = [await lost(lab, "bug"), await lost(lab, "bug", kind="mail"), await lost(lab, "timeout")]
    for key in keys[:2]:
        await lab.engine.dismiss_dead(execution_id=key)
    assert await listed(lab, is_dismissed=True) == [keys[1], keys[0]]
    assert await listed(lab, is_dismissed=True, execution_kind="mail") == [keys[1]]
    assert await listed(lab, is_dismissed=True, category="timeout") == []
    assert await listed(lab, is_dismissed=True, execution_kind="none") == []
    first = await lab.engine.list_dead(is_dismissed=True, limit=1)
    assert first.items == ()  # the latest submit is not dismissed
    rest = await lab.engine.list_dead(is_dismissed=True, limit=2, cursor=first.next_cursor)
    assert [each.execution_id for each in rest.items] == [keys[1], keys[0]]
    reply = await lab.engine.restore_dead(execution_id=keys[0], reason="known no more", actor="ada")
    assert reply == Restored(keys[0], is_new=True)
    assert await listed(lab) == [keys[2], keys[0]]
    assert await listed(lab, is_dismissed=True) == [keys[1]]
    event = (await lab.operator_events(keys[0]))[-1]
    assert (event.event_type, event.actor) == (OperatorEventType.RESTORED, "ada")
    assert event.details == {"reason": "known no more", "category": "bug"}
    async with lab.unchanged():
        again = await lab.engine.restore_dead(execution_id=keys[0])
    assert again == Restored(keys[0], is_new=False)
    done = await lab.completed()
    for name, error in ((done, ExecutionNotEligible), (new_execution_id(), NotFound)):
        async with lab.refuses(error):
            await lab.engine.restore_dead(execution_id=name)
    await lab.engine.replay_execution(execution_id=keys[1])  # one that was dismissed
    async with lab.refuses(ExecutionNotEligible):
        await lab.engine.restore_dead(execution_id=keys[1])
    assert (await lab.engine.doctor()).problems == ()


@scenario
async def test_an_operation_is_about_open_letters_or_dismissed_ones(lab: Lab) -> None:
    """A retry by letters leaves those alone that someone has seen to."""
    keys = [await lost(lab, each) for each in ("timeout", "bug", "timeout", "timeout")]
    late = await lab.create("mail", execution_deadline_at=lab.now + 5)
    await lab.after(5)
    await lab.engine.dismiss_dead(execution_id=keys[0])

    async def run(action: str, **asked: Any) -> tuple[int, int, int]:
        counted = await lab.engine.start_operation(action=action, **asked, dry_run=True)
        begun = await lab.engine.start_operation(action=action, **asked)
        assert isinstance(begun, BulkOperation)
        await lab.after(1_000)
        found = await lab.engine.describe_operation(operation_id=begun.operation_id)
        assert found is not None
        assert found.is_over
        assert counted == BulkCounted(found.matched)
        return found.matched, found.done, found.unchanged

    assert await run("retry", failure_category="bug", dead_letter="dismissed") == (0, 0, 0)
    open_ones = {"dead_letter": "open", "failure_category": "timeout"}
    assert await run("dismiss", **open_ones, execution_kind="mail") == (1, 1, 0)
    assert await run("retry", **open_ones) == (2, 2, 0)
    assert [await lab.state(key) for key in keys] == ["failed", "failed", "waiting", "waiting"]
    assert await run("restore") == (2, 2, 0)  # without a word: those that were dismissed
    assert await listed(lab) == [late, keys[1], keys[0]]
    assert await run("restore", execution_kind="work") == (0, 0, 0)
    async with lab.refuses(InvalidInput, "dead_letter"):
        await lab.engine.start_operation(action="retry", dead_letter="lost")


@scenario
async def test_a_replayed_one_is_dead_no_more(lab: Lab) -> None:
    key = await lost(lab)
    await lab.engine.replay_execution(execution_id=key)
    assert await listed(lab) == []
    assert (await lab.dump())["ff_dead_letter"] == []
    async with lab.refuses(ExecutionNotEligible):
        await lab.engine.dismiss_dead(execution_id=key)
    graph = await submit(lab, "ab", arrows("a>b"))
    await lab.claim()
    await lab.claim()
    member = graph.ids["a"]
    await lab.engine.fail_execution(
        execution_id=member,
        source="operator_override",
        failure_reason="x",
        failure_class="permanent",
    )
    assert await listed(lab) == [member]  # the skipped one is none


@scenario
async def test_an_operation_dismisses_or_retries_by_category(lab: Lab) -> None:
    keys = [await lost(lab, each) for each in ("timeout", "bug", "timeout")]
    asked: dict[str, Any] = {"action": "dismiss", "failure_category": "timeout", "reason": "known"}
    assert await lab.engine.start_operation(**asked, dry_run=True) == BulkCounted(2)
    begun = await lab.engine.start_operation(**asked)
    await lab.direct.move_due()
    assert isinstance(begun, BulkOperation)
    found = await lab.engine.describe_operation(operation_id=begun.operation_id)
    assert found is not None
    assert (found.is_over, found.matched, found.done, found.refused) == (True, 2, 2, {})
    assert await listed(lab) == [keys[1]]
    await lab.engine.start_operation(action="retry", failure_category="bug")
    await lab.direct.move_due()
    assert [await lab.state(key) for key in keys] == ["failed", "waiting", "failed"]


@scenario
async def test_failures_are_kept_longer_than_other_ends(lab: Lab) -> None:
    failed, done = await lost(lab), await lab.completed()
    brief = await lost(lab, policy={"failed_retention_ttl_ms": 10, "retention_ttl_ms": 10**9})
    late = await lab.create(execution_deadline_at=lab.now + 5)
    await lab.after(5)
    record = await lab.record(failed)
    assert record.purge_at == (record.completed_at or 0) + FAILED_RETENTION_MS_DEFAULT
    await lab.after(10)
    assert await lab.engine.describe_execution(execution_id=brief) is None
    await lab.after(RETENTION_MS_DEFAULT)
    assert await lab.engine.describe_execution(execution_id=done) is None
    assert await listed(lab) == [late, failed]
    await lab.after(FAILED_RETENTION_MS_DEFAULT)
    assert await listed(lab) == []
    assert (await lab.dump())["ff_dead_letter"] == []


@scenario
async def test_wrong_arguments_are_named(lab: Lab) -> None:
    for asked in ({"namespace": ""}, {"execution_kind": 5}, {"category": "a\nb"}, {"limit": -1}):
        (field,) = asked
        with pytest.raises(InvalidInput, match=field):
            await lab.direct.list_dead(**asked)
        if field != "limit":
            with pytest.raises(InvalidInput, match=field):
                await lab.direct.count_dead(**asked)
    with pytest.raises(InvalidCursor):
        await lab.engine.list_dead(cursor="x")
    async with lab.refuses(InvalidInput, "execution_id"):
        await lab.engine.dismiss_dead(execution_id="x")
    async with lab.refuses(InvalidInput, "failure_category"):
        await lab.engine.start_operation(action="retry", failure_category="")
