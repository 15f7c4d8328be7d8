"""Tokens: one opens one waitpoint, while its key is good; everything else looks the same."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import InvalidInput, InvalidToken, KeyringEmpty, NotFound
from flowfabric.kernel.wait.token import mint
from flowfabric.model.state import PublicState
from flowfabric.model.suspension import (
    Count,
    CountKind,
    SignalDuplicate,
    SignalEffect,
    Single,
    Token,
)
from flowfabric.stores.base import Changes, RowChanges, Transaction
from flowfabric.stores.tables import SECRETS, WAITPOINTS
from tests.support.lab import Lab
from tests.support.waits import pending, signal_to, suspended, told

MANY = Count(100, CountKind.DISTINCT_SIGNALS, ("a",))


@told
async def test_every_wrong_token_meets_the_same_refusal(lab: Lab) -> None:
    """Unknown, foreign, flipped, truncated, upper-case: one answer."""
    waiting, other = await suspended(lab, MANY), await suspended(lab, MANY)
    good = waiting.at["a"].token.reveal()
    kid, _, digest = good.partition(":")
    flipped = digest[:-1] + ("0" if digest[-1] != "0" else "1")
    gone = waiting.execution_id[:-12] + "0" * 12
    tries: list[dict[str, Any]] = [
        {"token": f"{kid}:{flipped}"},
        {"token": f"{kid}:{digest[:-1]}"},
        {"token": f"{kid}:{digest}0"},
        {"token": f"{kid}:{digest.upper()}"},
        {"token": f"k9:{digest}"},
        {"token": digest},
        {"token": ":" + digest},
        {"token": kid + ":"},
        {"token": kid},
        {"token": "é:" + digest},
        {"token": f"{kid}:" + "é" * 64},
        {"token": other.at["a"].token},
        {"waitpoint_id": other.at["a"].waitpoint_id},
        {"waitpoint_id": "0" * 36},
        {"execution_id": other.execution_id},
        {"execution_id": gone},
        {"execution_id": gone, "waitpoint_id": "0" * 36, "token": "k9:00"},
    ]
    refusals: set[tuple[str, str, int]] = set()
    async with lab.unchanged():
        for fields in tries:
            with pytest.raises(InvalidToken) as caught:
                await waiting.send(**fields)
            error = caught.value
            refusals.add((str(error), str(error.fields), error.status))
    assert len(refusals) == 1
    assert refusals.pop()[2] == 401
    assert await waiting.effect() is SignalEffect.APPENDED


@told
async def test_a_wrong_token_learns_nothing_of_state_keys_or_limits(lab: Lab) -> None:
    """Authentication comes before idempotency, state and caps."""
    waiting = await suspended(lab)
    await waiting.send(idempotency_key="k")
    bad = "k1:" + "0" * 64
    async with lab.refuses(InvalidToken):
        await waiting.send(idempotency_key="k", token=bad)
    await lab.cancel(waiting.execution_id)
    async with lab.refuses(InvalidToken):
        await waiting.send(token=bad)


@told
async def test_a_token_serves_one_generation_of_a_waitpoint(lab: Lab) -> None:
    """The same execution, key and instant give another token to another waitpoint."""
    first = await suspended(lab, Single("a"))
    await first.send()
    second = await suspended(lab, Single("a"), claimed=await lab.claim())
    assert first.at["a"].token != second.at["a"].token
    async with lab.refuses(InvalidToken):
        await second.send(token=first.at["a"].token)
    assert await lab.state(second.execution_id) is PublicState.SUSPENDED


@told
async def test_no_token_and_no_secret_is_stored_or_shown(lab: Lab) -> None:
    """Nothing in the store, in text forms or in events."""
    claimed = await lab.started()
    early_bird = await pending(lab, claimed)
    waiting = await suspended(lab, MANY, claimed, idempotency_key="k")
    await waiting.send()
    details = (early_bird, *waiting.outcome.waitpoints)
    stored = repr(await lab.dump())
    shown = " ".join(map(repr, (details, waiting.outcome, waiting.signal(), early_bird.token)))
    for each in details:
        digest = each.token.reveal().partition(":")[2]
        assert digest not in stored
        assert digest not in shown
        assert str(each.token) == "Token(k1:<REDACTED:len=67>)"
    (secret,) = (await lab.dump())[SECRETS.name]
    assert secret.secret_hex not in repr(secret)
    assert secret.secret_hex not in repr(await lab.engine.list_waitpoint_hmac_kids())


@told
async def test_an_operator_can_read_a_token_again_while_it_is_good(lab: Lab) -> None:
    """The same token; none when closed, foreign or unknown."""
    waiting, other = await suspended(lab), await suspended(lab)
    read = lab.engine.read_waitpoint_token
    key, address = waiting.execution_id, waiting.at["a"].waitpoint_id
    found = await read(execution_id=key, waitpoint_id=address)
    assert isinstance(found, Token)
    assert found == waiting.at["a"].token
    assert await read(execution_id=other.execution_id, waitpoint_id=address) is None
    assert await read(execution_id=key, waitpoint_id="0" * 36) is None
    await waiting.send()
    assert await read(execution_id=key, waitpoint_id=address) is None


@told
async def test_a_retired_key_verifies_in_its_grace_and_no_longer(lab: Lab) -> None:
    """A→B→C keeps A; after its grace A is nothing special."""
    waiting = await suspended(lab, MANY)
    await lab.engine.rotate_waitpoint_hmac_secret_all(new_kid="b", grace_ms=1000)
    later = await suspended(lab, MANY)
    assert later.at["a"].token.reveal().startswith("b:")
    await lab.engine.rotate_waitpoint_hmac_secret_all(new_kid="c", grace_ms=5000)
    lab.clock.advance(999)
    assert await waiting.effect() is SignalEffect.APPENDED
    assert await later.effect() is SignalEffect.APPENDED
    lab.clock.advance(1)
    async with lab.refuses(InvalidToken):
        await waiting.send()
    assert await later.effect() is SignalEffect.APPENDED
    await lab.engine.sweep()
    async with lab.refuses(InvalidToken):
        await waiting.send()
    page = await lab.engine.list_pending_waitpoints(execution_id=waiting.execution_id)
    assert [each.token_fingerprint for each in page.items] == [""]
    approved = await lab.engine.deliver_approval_signal(
        execution_id=waiting.execution_id,
        waitpoint_id=waiting.at["a"].waitpoint_id,
        signal_name="go",
        idempotency_suffix="1",
    )
    assert approved.effect is SignalEffect.APPENDED
    again = await lab.engine.read_waitpoint_token(
        execution_id=waiting.execution_id, waitpoint_id=waiting.at["a"].waitpoint_id
    )
    assert await waiting.effect(token=again) is SignalEffect.APPENDED


@told
@pytest.mark.parametrize("grace", [0, 1000])
async def test_a_token_that_is_read_again_is_signed_with_the_current_key(
    lab: Lab, grace: int
) -> None:
    """And is good as long as that one, whatever became of the key the waitpoint began with."""
    waiting = await suspended(lab, MANY)
    names = {"execution_id": waiting.execution_id, "waitpoint_id": waiting.at["a"].waitpoint_id}
    token = waiting.at["a"].token
    for kid in ("b", "c"):
        await lab.engine.rotate_waitpoint_hmac_secret_all(new_kid=kid, grace_ms=grace)
        lab.clock.advance(1)
        found = await lab.engine.read_waitpoint_token(**names)
        assert found is not None
        token = found
        assert token.reveal().startswith(f"{kid}:")
        assert await waiting.effect(token=token) is SignalEffect.APPENDED
    await lab.engine.rotate_waitpoint_hmac_secret_all(new_kid="d", grace_ms=1000)
    await lab.after(999)
    assert await waiting.effect(token=token) is SignalEffect.APPENDED
    await lab.after(1)
    async with lab.refuses(InvalidToken):
        await waiting.send(token=token)


@told
async def test_a_key_that_is_current_once_more_signs_for_what_began_meanwhile(lab: Lab) -> None:
    rotate = lab.engine.rotate_waitpoint_hmac_secret_all
    await rotate(new_kid="b")
    lab.clock.advance(5)
    waiting = await suspended(lab, MANY)
    lab.clock.advance(5)
    await rotate(new_kid="k1", grace_ms=0)
    token = await lab.engine.read_waitpoint_token(
        execution_id=waiting.execution_id, waitpoint_id=waiting.at["a"].waitpoint_id
    )
    assert await waiting.effect(token=token) is SignalEffect.APPENDED
    await rotate(new_kid="c", grace_ms=1000)
    assert await waiting.effect(token=token) is SignalEffect.APPENDED


@told
async def test_a_retired_key_signs_nothing_that_began_after_it(lab: Lab) -> None:
    """Whoever has learned it can do nothing new with it, not even in its grace."""
    await lab.engine.rotate_waitpoint_hmac_secret_all(new_kid="a")
    (old,) = [each for each in (await lab.dump())[SECRETS.name] if each.is_current]
    lab.clock.advance(5)
    await lab.engine.rotate_waitpoint_hmac_secret_all(new_kid="b")
    lab.clock.advance(5)
    waiting = await suspended(lab, MANY)
    key = waiting.at["a"].waitpoint_id
    (row,) = [each for each in (await lab.dump())[WAITPOINTS.name] if each.waitpoint_id == key]
    async with lab.refuses(InvalidToken):
        await waiting.send(token=mint(row, old))


@told
@pytest.mark.parametrize("grace", [0, 60_000])
async def test_a_trusted_signal_needs_no_token_whatever_became_of_the_keys(
    lab: Lab, grace: int
) -> None:
    waiting = await suspended(lab, MANY)
    await lab.engine.rotate_waitpoint_hmac_secret_all(new_kid="b", grace_ms=grace)
    await lab.engine.sweep()
    signal = signal_to(waiting.execution_id, waiting.at["a"], token=None, idempotency_key="once")
    answer = await lab.engine.deliver_trusted_signal(signal)
    assert answer.effect is SignalEffect.APPENDED
    again = await lab.engine.deliver_trusted_signal(signal)
    assert isinstance(again, SignalDuplicate)
    async with lab.refuses(InvalidInput, "token"):
        await lab.engine.deliver_signal(signal)
    forged = signal_to(waiting.execution_id, waiting.at["a"], token="b:" + "0" * 64)
    async with lab.refuses(InvalidToken):
        await lab.engine.deliver_trusted_signal(forged)
    other = signal_to(waiting.execution_id, waiting.at["a"], token=None, waitpoint_id="0" * 36)
    async with lab.refuses(NotFound):
        await lab.engine.deliver_trusted_signal(other)


@told
async def test_a_repeated_suspend_answers_with_tokens_that_are_good(lab: Lab) -> None:
    """Also when the key its waitpoints began with is over."""
    claimed = await lab.started()
    first = await suspended(lab, MANY, claimed=claimed, idempotency_key="once")
    await lab.engine.rotate_waitpoint_hmac_secret_all(new_kid="b", grace_ms=0)
    again = await suspended(lab, MANY, claimed=claimed, idempotency_key="once")
    assert again.at["a"].waitpoint_id == first.at["a"].waitpoint_id
    assert await again.effect() is SignalEffect.APPENDED


@told
async def test_a_token_handed_out_before_a_rotation_is_used_after_it(lab: Lab) -> None:
    """A pending waitpoint's token keeps working after activation under another key."""
    claimed = await lab.started()
    details = await pending(lab, claimed)
    await lab.engine.rotate_waitpoint_hmac_secret_all(new_kid="b")
    answer = await lab.engine.deliver_signal(signal_to(claimed.execution_id, details))
    assert answer.effect is SignalEffect.BUFFERED


@told
async def test_without_a_key_nothing_is_signed_and_that_is_said(lab: Lab) -> None:
    """503, not a token that cannot be verified."""
    before = await lab.started()
    await suspended(lab, claimed=before, idempotency_key="once")
    claimed = await lab.started()

    async def wipe(tx: Transaction) -> None:
        rows: RowChanges = RowChanges()
        rows.deleted.append(("k1",))
        changes = Changes()
        changes.rows = {SECRETS: rows}
        await tx.save(changes)

    await lab.engine.transact(wipe)
    async with lab.refuses(KeyringEmpty):
        await suspended(lab, claimed=claimed)
    async with lab.refuses(KeyringEmpty):
        await suspended(lab, claimed=before, idempotency_key="once")  # a repeated call
    async with lab.refuses(KeyringEmpty):
        await pending(lab, claimed)
    assert KeyringEmpty.status == 503
