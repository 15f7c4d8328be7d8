"""Signals, approvals, links and typed payloads, from outside the handler."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowfabric import (
    Context,
    Fabric,
    FlowFabricError,
    InvalidInput,
    InvalidLink,
    InvalidPayload,
    InvalidToken,
    NotFound,
    PublicState,
    Run,
    SignalDuplicate,
    TargetNotSignalable,
    Token,
    Waitpoint,
    WaitpointClosed,
    all_of,
    approval,
    count,
)
from flowfabric.sdk.context.received import ReceivedSignal
from flowfabric.sdk.durations import to_datetime
from flowfabric.sdk.links import PREFIX, Address, is_link, make_link, read_link
from flowfabric.sdk.payload_types import schema_of
from flowfabric.sdk.waits import read_source
from tests.sdk.test_suspending import suspended
from tests.sdk.workshop import working
from tests.support.inner import inner


class Desk:
    """A fabric with one task that waits for what a test says, and keeps what it was given."""

    def __init__(self, url: str) -> None:
        self.ff = Fabric(url)
        self.waitpoints: list[Waitpoint] = []
        self.wait: Callable[[], Any] | None = None
        self.expect: Any = None

        @self.ff.task
        async def patient(ctx: Context) -> list[Any]:
            if not ctx.resumed and self.wait is not None:
                await ctx.suspend(self.wait(), timeout="1h")
            if not ctx.resumed:
                types = {} if self.expect is None else {"expect": self.expect}
                made = await ctx.waitpoint("reply", expires="1h", **types)
                self.waitpoints.append(made)
                await ctx.suspend(made, timeout="1h")
            return [[each.name, each.source, each.payload] for each in ctx.signals]

        self.task = patient

    async def waiting(self) -> Run[list[Any]]:
        """A run that is suspended."""
        run = await self.ff.submit(self.task)
        await suspended(run)
        return run


def at_desk(url: str, main: Callable[[Desk], Any]) -> None:
    async def run() -> None:
        desk = Desk(url)
        async with desk.ff, working(desk.ff):
            await main(desk)

    asyncio.run(run())


# --- signals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["link", "waitpoint", "run", "id"])
def test_a_signal_finds_its_wait(url: str, how: str) -> None:
    async def main(desk: Desk) -> None:
        run = await desk.waiting()
        (waitpoint,) = desk.waitpoints
        target: Any = {
            "link": waitpoint.link(),
            "waitpoint": waitpoint,
            "run": run,
            "id": run.id,
        }[how]
        if how in ("link", "waitpoint"):
            await desk.ff.signal(target, "done", [1, 2], source="ada")
        else:
            await desk.ff.signal(target, "reply", [1, 2], name="done", source="ada")
        assert await run.result("60s") == [["done", "user:ada", [1, 2]]]

    at_desk(url, main)


def test_a_signal_without_words_has_a_name_all_the_same(url: str) -> None:
    async def main(desk: Desk) -> None:
        run = await desk.waiting()
        await desk.ff.signal(desk.waitpoints[0])
        assert await run.result("60s") == [["signal", "", None]]
        run = await desk.waiting()
        await desk.ff.signal(run, "reply")
        assert await run.result("60s") == [["reply", "", None]]

    at_desk(url, main)


def test_a_repeated_key_counts_once_and_is_answered_again(url: str) -> None:
    async def main(desk: Desk) -> None:
        desk.wait = lambda: count(2, "reply", signals=True)
        run = await desk.waiting()
        link = await desk.ff.link(run, "reply")
        first = await desk.ff.signal(link, "a", idempotency_key="one")
        again = await desk.ff.signal(link, "a", idempotency_key="one")
        assert isinstance(again, SignalDuplicate)
        assert again.effect is first.effect
        assert await run.state() is PublicState.SUSPENDED
        await desk.ff.signal(link, "b", idempotency_key="two")
        assert len(await run.result("60s")) == 2
        late = await desk.ff.signal(link, "b", idempotency_key="two")
        assert late.effect.value == "resume_condition_satisfied"

    at_desk(url, main)


def test_a_late_signal_is_told_that_the_wait_is_over(url: str) -> None:
    async def main(desk: Desk) -> None:
        run = await desk.waiting()
        link = desk.waitpoints[0].link()
        await desk.ff.signal(link, "done")
        await run.result("60s")
        with pytest.raises(TargetNotSignalable):
            await desk.ff.signal(link, "more")
        with pytest.raises(WaitpointClosed):
            await desk.ff.signal(run, "reply")
        with pytest.raises(WaitpointClosed):
            await desk.ff.link(run, "reply")

    at_desk(url, main)


@pytest.mark.parametrize("grace_ms", [0, 60_000])
def test_an_open_wait_can_be_signalled_from_inside_after_a_rotation(
    url: str, grace_ms: int
) -> None:
    """The trusted path needs no token, so that it has none that could be void."""

    async def main(desk: Desk) -> None:
        run = await desk.waiting()
        engine = await desk.ff.start()
        await engine.rotate_waitpoint_hmac_secret_all(new_kid="k2", grace_ms=grace_ms)
        await inner(engine).sweep()
        await desk.ff.signal(run, "reply", [1], name="done", source="ada")
        assert await run.result("60s") == [["done", "user:ada", [1]]]

    at_desk(url, main)


@pytest.mark.parametrize("grace_ms", [0, 60_000])
def test_a_link_that_is_handed_out_after_a_rotation_is_good(url: str, grace_ms: int) -> None:
    async def main(desk: Desk) -> None:
        run = await desk.waiting()
        engine = await desk.ff.start()
        await engine.rotate_waitpoint_hmac_secret_all(new_kid="k2", grace_ms=grace_ms)
        link = await desk.ff.link(run, "reply")
        assert read_link(link).token.reveal().startswith("k2:")
        if not grace_ms:
            with pytest.raises(InvalidToken):
                await desk.ff.signal(desk.waitpoints[0].link(), "done")
        await desk.ff.signal(link, "done", [2], source="ada")
        assert await run.result("60s") == [["done", "user:ada", [2]]]

    at_desk(url, main)


def test_a_signal_that_is_repeated_after_the_wait_is_answered_as_before(url: str) -> None:
    async def main(desk: Desk) -> None:
        run = await desk.waiting()
        first = await desk.ff.signal(run, "reply", name="done", idempotency_key="once")
        await run.result("60s")
        again = await desk.ff.signal(run, "reply", name="done", idempotency_key="once")
        assert isinstance(again, SignalDuplicate)
        assert again.effect is first.effect
        with pytest.raises(TargetNotSignalable):
            await desk.ff.signal(run, "reply", name="done", idempotency_key="other")

    at_desk(url, main)


def test_an_unknown_key_names_those_there_are(url: str) -> None:
    async def main(desk: Desk) -> None:
        desk.wait = lambda: all_of("legal", "price")
        run = await desk.waiting()
        with pytest.raises(NotFound, match="it waits on legal, price") as caught:
            await desk.ff.signal(run, "logal")
        assert caught.value.fields["entity"] == "waitpoint"
        with pytest.raises(InvalidInput, match="name the key"):
            await desk.ff.signal(run)
        gone = run.id[:-4] + "0000"
        with pytest.raises(NotFound, match="execution"):
            await desk.ff.signal(gone, "legal")

    at_desk(url, main)


@pytest.mark.parametrize(
    ("source", "parts"),
    [(None, ("", "")), ("ada", ("user", "ada")), ("service:a:b", ("service", "a:b"))],
)
def test_a_source_is_a_kind_and_a_name(source: str | None, parts: tuple[str, str]) -> None:
    assert read_source(source) == parts


@pytest.mark.parametrize("source", ["", ":", 3])
def test_a_source_without_a_name_is_refused(source: Any) -> None:
    with pytest.raises(InvalidInput, match="source"):
        read_source(source)


def test_a_payload_that_is_no_json_is_refused_at_the_sender(url: str) -> None:
    async def main(desk: Desk) -> None:
        run = await desk.waiting()
        with pytest.raises(InvalidInput, match="payload"):
            await desk.ff.signal(run, "reply", object())
        assert await run.state() is PublicState.SUSPENDED

    at_desk(url, main)


# --- approvals ------------------------------------------------------------------------------------


def test_two_people_approve(url: str) -> None:
    async def main(desk: Desk) -> None:
        desk.wait = lambda: approval("publish", of=2)
        run = await desk.waiting()
        first = await desk.ff.approve(run, "publish", by="ada", comment="looks good")
        assert first.effect.value == "appended_to_waitpoint"
        again = await desk.ff.approve(run, "publish", by="ada")
        assert isinstance(again, SignalDuplicate)
        (wait,) = await desk.ff.waits()
        assert (wait.have, wait.need) == (1, 2)
        assert "(1/2)" in wait.waits_for
        await desk.ff.approve(run, "publish", by="grace")
        assert await run.result("60s") == [
            ["approved", "operator:ada", {"comment": "looks good"}],
            ["approved", "operator:grace", None],
        ]
        repeated = await desk.ff.approve(run, "publish", by="grace")
        assert repeated.effect.value == "resume_condition_satisfied"
        with pytest.raises(TargetNotSignalable):
            await desk.ff.approve(run, "publish", by="joan")

    at_desk(url, main)


def test_one_rejection_is_enough(url: str) -> None:
    async def main(desk: Desk) -> None:
        desk.wait = lambda: approval("publish", of=2)
        run = await desk.waiting()
        await desk.ff.reject(run, "publish", by="ada", payload={"why": "typos"})
        assert await run.result("60s") == [["rejected", "operator:ada", {"why": "typos"}]]

    at_desk(url, main)


def test_a_comment_and_a_payload_exclude_each_other(url: str) -> None:
    async def main(desk: Desk) -> None:
        run = await desk.waiting()
        with pytest.raises(InvalidInput, match="comment"):
            await desk.ff.approve(run, "reply", by="ada", comment="x", payload=1)

    at_desk(url, main)


# --- listings -------------------------------------------------------------------------------------


def test_waits_are_listed_by_kind_and_lane_and_never_with_a_token(url: str) -> None:
    async def main(desk: Desk) -> None:
        runs = [await desk.waiting() for _ in range(3)]
        found = await desk.ff.waits()
        assert [each.execution_id for each in found] == [run.id for run in reversed(runs)]
        assert [each.waits_for for each in found] == ["a signal on reply"] * 3
        assert len(await desk.ff.waits(limit=2)) == 2
        assert len(await desk.ff.waits(kind="patient", lane="default")) == 3
        assert await desk.ff.waits(kind="other") == []
        assert await desk.ff.waits(lane="other") == []
        secrets = [waitpoint.token.reveal() for waitpoint in desk.waitpoints]
        assert not [secret for secret in secrets if secret.partition(":")[2] in repr(found)]

    at_desk(url, main)


def test_an_explanation_says_what_is_missing(url: str) -> None:
    async def main(desk: Desk) -> None:
        desk.wait = lambda: all_of("legal", approval("publish", of=2))
        run = await desk.waiting()
        await desk.ff.signal(run, "legal")
        await desk.ff.approve(run, "publish", by="ada")
        told = await run.explain()
        assert told.summary == (
            "waiting for approval: a signal on legal (came) and "
            "(approved from 2 different sources on publish (1/2) or signal rejected on publish); "
            "when its time is over, it fails"
        )
        assert told.due_at is not None
        assert told.at_timeout == "fail"
        assert [(each.have, each.need) for each in told.waits] == [(1, 1), (1, 2), (0, 1)]
        assert told.hints[1] == f"ff waits approve {run.id} publish --by NAME"

    at_desk(url, main)


def test_the_blocking_fabric_signals_as_well(durable_url: str) -> None:
    async def main(desk: Desk) -> None:
        desk.wait = lambda: approval("publish", of=2)
        run = await desk.waiting()

        def talk() -> str:
            with desk.ff.sync as sync:
                sync.approve(run, "publish", by="ada")
                assert [wait.have for wait in sync.waits()] == [1]
                sync.signal(sync.link(run, "publish"), "approved", {"a": 1}, source="grace")
                return str(sync.run(run.id).result("60s"))

        assert "user:grace" in await asyncio.to_thread(talk)
        run = await desk.waiting()
        await asyncio.to_thread(desk.ff.sync.reject, run, "publish", by="ada")
        assert (await run.result("60s"))[0][0] == "rejected"
        run = await desk.waiting()
        await asyncio.to_thread(desk.ff.sync.resume, run.id, by="ops")
        assert await run.result("60s") == []
        await asyncio.to_thread(desk.ff.sync.close)

    at_desk(durable_url, main)


# --- typed payloads -------------------------------------------------------------------------------


@dataclass
class Decision:
    ok: bool
    note: str = ""


class Reply(msgspec.Struct):
    rows: list[int]
    when: date | None = None


class Inner(pydantic.BaseModel):
    score: int


class Form(pydantic.BaseModel):
    grade: Literal["a", "b"]
    inner: Inner


TYPES: list[Any] = [
    pytest.param(Decision, {"ok": "yes"}, {"ok": True}, Decision(True), id="dataclass"),
    pytest.param(Reply, {"rows": ["x"]}, {"rows": [1]}, Reply([1]), id="struct"),
    pytest.param(
        Form,
        {"grade": "c", "inner": {"score": 1}},
        {"grade": "a", "inner": {"score": 1}},
        Form(grade="a", inner=Inner(score=1)),
        id="pydantic",
    ),
    pytest.param(
        list[Form],
        [{"grade": "a", "inner": {"score": "x"}}],
        [{"grade": "a", "inner": {"score": 1}}],
        [Form(grade="a", inner=Inner(score=1))],
        id="list-of-models",
    ),
    pytest.param(list[int], [1, "2"], [1, 2], [1, 2], id="list"),
    pytest.param(Literal["yes", "no"], "maybe", "yes", "yes", id="literal"),
    pytest.param(bool, None, True, True, id="bool"),
    pytest.param(dict[str, int], {"a": "b"}, {"a": 1}, {"a": 1}, id="dict"),
    pytest.param(int | None, "x", None, None, id="optional"),
]


@pytest.mark.parametrize(("kind", "wrong", "right", "value"), TYPES)
def test_a_wrong_payload_is_refused_and_the_wait_goes_on(
    kind: Any, wrong: Any, right: Any, value: Any
) -> None:
    async def main(desk: Desk) -> None:
        desk.expect = kind
        run = await desk.waiting()
        with pytest.raises(InvalidPayload, match="payload"):
            await desk.ff.signal(run, "reply", wrong)
        assert await run.state() is PublicState.SUSPENDED
        await desk.ff.signal(run, "reply", right)
        ((_, _, payload),) = await run.result("60s")
        assert received(payload).payload_as(kind) == value

    at_desk("memory://", main)


def received(payload: Any, *, encoding: str = "json", raw: bytes | None = None) -> ReceivedSignal:
    body = json.dumps(payload).encode() if raw is None else raw
    return ReceivedSignal("n", "k", "", body, encoding, "i", "", "", to_datetime(0))


def test_a_payload_is_plain_json_until_a_type_is_named() -> None:
    assert received({"ok": True}).payload == {"ok": True}
    assert received({"ok": True, "more": 1}).payload_as(Decision) == Decision(True)
    with pytest.raises(InvalidPayload, match="payload of n"):
        received({"ok": 1}).payload_as(Decision)
    with pytest.raises(InvalidPayload):
        received({"grade": "z"}).payload_as(Form)
    assert received(None, raw=b"\x00", encoding="bytes").payload == b"\x00"
    assert received(None, raw=b"not json").payload == b"not json"


def test_definitions_of_nested_models_are_found_at_the_root() -> None:
    schema = json.loads(schema_of(dict[str, Form]))
    assert set(schema["$defs"]) >= {"Inner"}
    assert "$defs" not in json.dumps({**schema, "$defs": {}}).replace('"$defs": {}', "").replace(
        "#/$defs/", ""
    )


# --- links ----------------------------------------------------------------------------------------

ADDRESS = Address("{fp:7}:01a1e2cc-e39e-7000-b468-2465814ea8a0", "0" * 36, Token("k1:" + "ab" * 32))


def test_a_link_is_one_word_that_leads_back() -> None:
    link = make_link(ADDRESS)
    assert link.startswith(PREFIX)
    assert link.replace("-", "").replace("_", "").replace(".", "").isalnum()
    assert read_link(f" {link}\n") == ADDRESS
    assert is_link(link)


@given(st.data())
def test_a_changed_link_is_no_link_or_another_one(data: st.DataObject) -> None:
    link = make_link(ADDRESS)
    at = data.draw(st.integers(0, len(link) - 1))
    letter = data.draw(st.sampled_from("abcXYZ019-_=.+/ \n"))
    changed = link[:at] + letter + link[at + 1 :]
    if changed.strip() == link:
        return
    try:
        found = read_link(changed)
    except InvalidLink as error:
        told = str(error)
    else:
        assert found != ADDRESS
        return
    assert told.startswith("invalid_link: link: not a complete FlowFabric link. ")


@given(st.one_of(st.text(), st.text().map(PREFIX.__add__), st.binary(), st.none(), st.integers()))
def test_garbage_is_no_link(text: Any) -> None:
    with pytest.raises(InvalidLink):
        read_link(text)


@pytest.mark.parametrize(
    "body", [b"[]", b'["a","b"]', b'["a","b",1]', b'{"a":1}', b'["a","b","c","d"]', b"\xff\xfe"]
)
def test_a_link_of_another_shape_is_refused(body: bytes) -> None:
    text = PREFIX + base64.urlsafe_b64encode(body).decode().rstrip("=")
    with pytest.raises(InvalidLink):
        read_link(text)
    with pytest.raises(InvalidLink):
        read_link(PREFIX + "A" * 10_000)


def test_forged_links_open_nothing_and_all_say_the_same(url: str) -> None:
    async def main(desk: Desk) -> None:
        run, other = await desk.waiting(), await desk.waiting()
        mine, theirs = desk.waitpoints
        token = mine.token.reveal()
        flipped = Token(token[:-1] + ("0" if token[-1] != "0" else "1"))
        forged = [
            Address(run.id, mine.id, flipped),
            Address(run.id, mine.id, Token(token[:-8])),
            Address(run.id, mine.id, theirs.token),
            Address(run.id, theirs.id, mine.token),
            Address(other.id, mine.id, mine.token),
            Address(other.id, theirs.id, mine.token),
            Address(run.id, "0" * 36, mine.token),
            Address(run.id, mine.id, Token("k9:" + token.partition(":")[2])),
        ]
        told = set()
        for address in forged:
            with pytest.raises(InvalidToken) as caught:
                await desk.ff.signal(make_link(address), "done")
            told.add(str(caught.value))
        assert len(told) == 1
        assert await run.state() is await other.state() is PublicState.SUSPENDED

    at_desk(url, main)


def test_a_bare_token_is_not_taken_for_an_id_and_not_repeated(url: str) -> None:
    async def main(desk: Desk) -> None:
        run = await desk.waiting()
        token = desk.waitpoints[0].token.reveal()
        for target in (token, desk.waitpoints[0].link()[:-3], 3, None):
            with pytest.raises(InvalidInput) as caught:
                await desk.ff.signal(target, "reply")  # type: ignore[arg-type]
            text = "".join(traceback.format_exception(caught.value))
            assert token not in text
            assert token.partition(":")[2] not in text
        assert await run.state() is PublicState.SUSPENDED

    at_desk(url, main)


# --- secrets --------------------------------------------------------------------------------------


def test_no_token_reaches_logs_errors_listings_or_reprs(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    shown: list[str] = []
    secrets: list[str] = []

    async def main(desk: Desk) -> None:
        run = await desk.waiting()
        (waitpoint,) = desk.waitpoints
        token, link = waitpoint.token.reveal(), waitpoint.link()
        secrets.extend([token.partition(":")[2], link])
        shown.extend(map(repr, (waitpoint, waitpoint.token, str(waitpoint), await desk.ff.waits())))
        shown.extend(map(repr, (await run.explain(), await run.info())))
        wrong: list[dict[str, Any]] = [
            {"target": link, "word": "__bad"},
            {"target": link, "payload": b"x" * 100_000},
            {"target": link[:-1]},
            {"target": link, "source": ":"},
        ]
        for words in wrong:
            with pytest.raises(FlowFabricError) as caught:
                await desk.ff.signal(**words)
            shown.extend(["".join(traceback.format_exception(caught.value)), repr(caught.value)])
            shown.append(json.dumps(caught.value.as_dict()))
        await desk.ff.signal(link, "done")
        shown.append(repr(await run.result("60s")))
        with pytest.raises(FlowFabricError) as caught:
            await desk.ff.signal(link, "late")
        shown.append("".join(traceback.format_exception(caught.value)))
        engine = await desk.ff.start()
        shown.append(repr((await engine.list_suspensions(execution_id=run.id)).items))
        shown.append(repr(await engine.list_waitpoint_hmac_kids()))

    with caplog.at_level(logging.DEBUG):
        at_desk(url, main)
    shown.append(caplog.text)
    assert secrets
    for secret in secrets:
        assert not [text for text in shown if secret in text]


def test_a_waitpoint_cannot_be_returned_as_a_result(url: str) -> None:
    ff = Fabric(url)

    @ff.task
    async def careless(ctx: Context) -> Any:
        return await ctx.waitpoint("reply")

    async def main() -> None:
        async with ff, working(ff):
            run = await ff.submit(careless)
            with pytest.raises(FlowFabricError, match="cannot be written as JSON") as caught:
                await run.result("60s")
            assert "k1:" not in str(caught.value.fields)

    asyncio.run(main())
