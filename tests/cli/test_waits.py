"""waits, keys, and what why, show and ps say about suspended executions."""

from __future__ import annotations

import asyncio
import io
import re
from pathlib import Path

import pytest

from flowfabric import Fabric, current_step
from flowfabric.api.waits import Fresh, SuspendRequest
from flowfabric.cli.commands.keys import next_kid
from flowfabric.cli.exits import Exit
from flowfabric.engine.engine import Engine
from flowfabric.model.suspension import (
    AllOf,
    AnyOf,
    Count,
    CountKind,
    KeyInfo,
    OperatorOnly,
    ResumeCondition,
    Single,
    Suspended,
    TimeoutOnly,
)
from tests.cli.desk import Desk
from tests.sdk.workshop import working

TWO = AnyOf(
    (
        Count(2, CountKind.DISTINCT_SOURCES, ("publish",), "approved"),
        Single("publish", "rejected"),
    )
)
BOTH = AllOf((Single("legal"), Single("price", "set")))


def suspend(desk: Desk, condition: ResumeCondition = TWO, **options: object) -> tuple[str, str]:
    """A suspended execution, and the secret part of its first token."""
    execution_id = desk.submit("publish", "topic=solar")

    async def work(engine: Engine) -> str:
        now = await engine.server_time_ms()
        [claimed] = await engine.claim(
            lanes=["default"], worker_id="ada", worker_instance_id="ada-1", limit=1
        )
        given = {"timeout_at": now + 3_600_000, "reason_code": "waiting_for_approval", **options}
        request = SuspendRequest(resume_condition=condition, **given)  # type: ignore[arg-type]
        answer = await engine.suspend(claimed.handle, request)
        assert isinstance(answer, Suspended)
        return answer.waitpoints[0].token.reveal()

    return execution_id, desk.given(work).partition(":")[2]


def link_of(desk: Desk, execution_id: str, key: str = "publish") -> str:
    assert desk.ff("waits", "link", execution_id, key) == Exit.OK, desk.err
    return desk.out.strip()


# --- looking --------------------------------------------------------------------------------------


def test_waits_lists_what_waits_and_how_far_it_is(desk: Desk) -> None:
    desk.submit("other")
    desk.claim()
    assert desk.ff("waits") == Exit.OK
    assert "nothing waits" in desk.err
    execution_id, secret = suspend(desk)
    assert desk.ff("waits", "approve", execution_id, "publish", "--by", "ada") == Exit.OK
    for words in (("waits",), ("waits", "ls"), ("waits", "ls", "--kind", "publish")):
        assert desk.ff(*words) == Exit.OK
        assert execution_id[-8:] in desk.out
        assert "approved from 2 different sources on publish (1/2)" in desk.out
        assert re.search(r"1/2 .* in 59m \d+s: it fails", desk.out)
        assert secret not in desk.out + desk.err
    assert desk.ff("waits", "--kind", "other", "ls") == Exit.OK
    assert execution_id not in desk.out


def test_waits_can_be_paged_and_read_by_programs(desk: Desk) -> None:
    ids = [suspend(desk)[0] for _ in range(3)]
    first = desk.json("waits", "ls", "--limit", "2")
    assert [wait["execution_id"] for wait in first["waits"]] == [ids[2], ids[1]]
    rest = desk.json("waits", "ls", "--limit", "2", "--cursor", first["next_cursor"])
    assert [wait["execution_id"] for wait in rest["waits"]] == [ids[0]]
    wait = rest["waits"][0]
    assert (wait["have"], wait["need"], wait["at_timeout"]) == (0, 2, "fail")
    assert wait["lines"][1] == {
        "waitpoint_keys": ["publish"],
        "signal_name": "rejected",
        "what": "signal",
        "have": 0,
        "need": 1,
    }
    assert desk.ff("waits", "ls", "--limit", "2") == Exit.OK
    assert "--cursor" in desk.err


def test_show_tells_the_wait_its_waitpoints_and_the_past(desk: Desk) -> None:
    execution_id, secret = suspend(desk, BOTH)
    assert desk.ff("waits", "signal", execution_id, "legal", "--by", "ada") == Exit.OK
    assert desk.ff("waits", "show", execution_id) == Exit.OK
    for told in (
        "a signal on legal (came) and signal set on price",
        "legal on legal by user:ada",
        "waiting for approval",
        "k1",
    ):
        assert told in desk.out
    assert re.search(r"price +active +set ", desk.out)
    assert secret not in desk.out
    assert desk.ff("waits", "resume", execution_id, "--by", "ops") == Exit.OK
    assert "resumed, waiting" in desk.out
    assert desk.ff("waits", "show", execution_id) == Exit.OK
    assert "it does not wait for signals" in desk.out
    assert re.search(r"operator +ops", desk.out)
    past = desk.out.splitlines()[-1]
    document = desk.json("waits", "show", execution_id)
    assert document["wait"] is None
    assert document["past"][0]["condition"]["kind"] == "all_of"
    assert document["past"][0]["cause"] == "operator"
    assert past.strip().startswith(document["past"][0]["waited_for"])
    assert secret not in desk.out


def test_why_explains_a_wait(desk: Desk) -> None:
    execution_id, secret = suspend(desk)
    desk.ff("waits", "approve", execution_id, "publish", "--by", "ada")
    assert desk.ff("why", execution_id) == Exit.OK
    assert desk.out.startswith(
        "suspended: waiting for approval: approved from 2 different sources on publish (1/2) "
        "or signal rejected on publish; when its time is over, it fails\n"
    )
    assert re.search(r"timeout +in 59m", desk.out)
    assert f"ff waits approve {execution_id} publish --by NAME" in desk.out
    assert re.search(r"publish +approved +different sources +1/2", desk.out)
    assert "CAN RUN IT" not in desk.out
    document = desk.json("why", execution_id)
    assert document["at_timeout"] == "fail"
    assert document["waits"][0]["have"] == 1
    assert secret not in desk.out


@pytest.mark.parametrize(
    ("condition", "told", "advice"),
    [
        (Single("a", "done"), "signal done on a", "signal {} a --name done --by"),
        (OperatorOnly(), "an operator", "resume {} --by"),
        (TimeoutOnly(), "its timeout; when its time is over, it goes on", "resume {} --by"),
        (
            Count(2, CountKind.DISTINCT_WAITPOINTS, ("a", "b", "c"), None),
            "signals on 2 of a, b, c (0/2)",
            "signal {} a --by",
        ),
        (
            Count(3, CountKind.DISTINCT_SIGNALS, ("a",), "tick"),
            "3 signals tick on a (0/3)",
            "signal {} a --name tick --by",
        ),
        (AllOf((AnyOf((Single("a"), Single("b"))), Single("c"))), "(a signal on a or", "a --by"),
    ],
)
def test_why_names_every_kind_of_condition(
    desk: Desk, condition: ResumeCondition, told: str, advice: str
) -> None:
    if isinstance(condition, TimeoutOnly):
        execution_id, _ = suspend(desk, condition, timeout_behavior="auto_resume")
    else:
        execution_id, _ = suspend(desk, condition, timeout_at=None)
    assert desk.ff("why", execution_id) == Exit.OK
    assert told in desk.out
    assert advice.format(execution_id) in desk.out


def test_show_and_ps_mention_the_wait(desk: Desk) -> None:
    execution_id, _ = suspend(desk, timeout_behavior="escalate")
    assert desk.ff("show", execution_id) == Exit.OK
    assert "approved from 2 different sources on publish (0/2)" in desk.out
    assert "an operator must look" in desk.out
    assert desk.json("show", execution_id)["wait"]["need"] == 2
    assert desk.ff("ps", "--state", "suspended") == Exit.OK
    assert "waiting for approval" in desk.out


# --- acting ---------------------------------------------------------------------------------------


def test_two_people_approve_on_the_command_line(desk: Desk) -> None:
    execution_id, _ = suspend(desk)
    approve = ("waits", "approve", execution_id, "publish", "--by")
    assert desk.ff(*approve, "ada", "--comment", "fine") == Exit.OK
    assert desk.out == "counted; it waits for more\n"
    assert desk.ff(*approve, "ada") == Exit.OK
    assert desk.out == "was sent before: counted; it waits for more\n"
    answer = desk.json(*approve, "grace")
    assert (answer["effect"], answer["duplicate"]) == ("resume_condition_satisfied", False)
    assert desk.ff(*approve, "joan") == Exit.REFUSED
    assert "takes no more signals" in desk.err


def test_a_rejection_ends_the_wait(desk: Desk) -> None:
    execution_id, _ = suspend(desk)
    words = ("waits", "reject", execution_id, "publish", "--by", "ada", "why=typos", "pages:=[3]")
    assert desk.ff(*words) == Exit.OK
    assert desk.out == "it goes on\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("approve", "ID", "publish"), "--by"),
        (("approve", "ID", "publish", "--by", "ada", "--comment", "x", "a=1"), "not both"),
        (("signal", "ID", "publish", "--payload", "{", "--by", "ada"), "is not JSON"),
        (("signal", "ID", "publish", "--payload", "1", "a=1"), "give one of them"),
        (("signal", "ID", "publish", "--by", ":"), "source"),
        (("signal", "ID", "publish", "--name", "__x"), "reserved"),
        (("signal", "nonsense", "publish"), "neither an execution id nor a link"),
        (("link", "ffw1.AAAA", "publish"), "a link is not an id"),
        (("lst",), "did you mean ls?"),
    ],
)
def test_wrong_words_change_nothing_and_say_what_to_do(
    desk: Desk, words: tuple[str, ...], told: str
) -> None:
    execution_id, _ = suspend(desk)
    filled = [execution_id if word == "ID" else word for word in words]
    assert desk.ff("waits", *filled) == Exit.USAGE
    assert told in desk.err
    assert desk.json("waits", "show", execution_id)["wait"]["signals"] == []


def test_a_wrong_key_names_those_there_are(desk: Desk) -> None:
    execution_id, _ = suspend(desk, BOTH)
    assert desk.ff("waits", "signal", execution_id, "prize") == Exit.NOT_FOUND
    assert "it waits on legal, price" in desk.err
    assert desk.ff("waits", "resume", desk.submit()) == Exit.REFUSED


def test_a_payload_must_fit(desk: Desk) -> None:
    execution_id, _ = suspend(desk, Single("n"), waitpoints=(Fresh("n", '{"type":"integer"}'),))
    assert desk.ff("waits", "signal", execution_id, "n", "--payload", '"x"') == Exit.USAGE
    assert "expected integer" in desk.err
    assert desk.ff("waits", "signal", execution_id, "n", "--payload", "3") == Exit.OK
    assert desk.out == "it goes on\n"


# --- links ----------------------------------------------------------------------------------------


def test_after_a_rotation_old_links_are_void_and_new_ones_and_keys_are_good(desk: Desk) -> None:
    execution_id, _ = suspend(desk)
    old = link_of(desk, execution_id)
    assert desk.ff("keys", "rotate", "--grace", "0") == Exit.OK
    assert desk.ff("waits", "signal", old, "approved", "--by", "eve") != Exit.OK
    link = link_of(desk, execution_id)
    assert link != old
    assert desk.ff("waits", "signal", link, "approved", "--by", "ada") == Exit.OK
    by_key = ("waits", "signal", execution_id, "publish", "--name", "approved", "--by", "grace")
    assert desk.ff(*by_key) == Exit.OK
    assert desk.out == "it goes on\n"


def test_a_link_is_printed_with_a_warning_and_opens_the_wait(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution_id, _ = suspend(desk)
    link = link_of(desk, execution_id)
    assert "this is a credential" in desk.err
    assert link.startswith("ffw1.")
    assert desk.json("waits", "link", execution_id, "publish")["link"] == link
    assert desk.ff("waits", "signal", link, "approved", "--by", "ada") == Exit.OK
    monkeypatch.setattr("sys.stdin", io.StringIO(link + "\n"))
    once = ("waits", "signal", "-", "approved", "--by", "grace", "--idempotency-key", "x")
    assert desk.ff(*once) == Exit.OK
    assert desk.out == "it goes on\n"
    assert desk.ff("waits", "signal", link, "approved", "--idempotency-key", "x") == Exit.OK
    assert "was sent before" in desk.out
    assert desk.ff("waits", "signal", link, "approved") == Exit.REFUSED
    assert desk.ff("waits", "link", execution_id, "publish") == Exit.REFUSED
    assert desk.ff("waits", "signal", link, "a", "--name", "b") == Exit.USAGE


def test_a_spoiled_link_is_refused_and_never_repeated(desk: Desk) -> None:
    execution_id, secret = suspend(desk)
    link = link_of(desk, execution_id)
    other = link_of(desk, suspend(desk)[0])
    for spoiled in (link[:-1], link + "x", link[:60] + other[60:], link[5:]):
        for extra in ((), ("--json",), ("--debug",)):
            assert main_of(desk, spoiled, *extra) in (Exit.USAGE, Exit.REFUSED)
            assert spoiled not in desk.out + desk.err
            assert secret not in desk.out + desk.err
    assert desk.json("waits", "show", execution_id)["wait"]["signals"] == []


def main_of(desk: Desk, link: str, *extra: str) -> int:
    """`ff waits signal`, which with --debug may print a traceback."""
    from flowfabric.cli import main

    code = main(["waits", "signal", link, "approved", *extra, "--url", desk.url])
    desk.out, desk.err = desk._capsys.readouterr()
    return code


# --- keys -----------------------------------------------------------------------------------------


def test_keys_are_listed_and_rotated_without_their_secrets(desk: Desk) -> None:
    execution_id, _ = suspend(desk)
    link = link_of(desk, execution_id)
    assert desk.ff("keys") == Exit.OK
    assert re.search(r"k1 +yes", desk.out)
    assert desk.ff("keys", "rotate", "--grace", "1h") == Exit.OK
    assert desk.out == "k2 signs from now on\n"
    assert "signed by k1 are good for 1h more" in desk.err
    listed = desk.json("keys", "ls")
    assert {key["kid"]: key["is_current"] for key in listed} == {"k1": False, "k2": True}
    assert set(listed[0]) == {"kid", "is_current", "created_at", "expires_at"}
    assert desk.ff("keys", "rotate", "--kid", "k2") == Exit.OK
    assert desk.out == "k2 signs already\n"
    assert desk.ff("waits", "signal", link, "approved", "--by", "ada") == Exit.OK


def test_tokens_of_a_key_without_grace_are_void_at_once(desk: Desk) -> None:
    execution_id, _ = suspend(desk)
    link = link_of(desk, execution_id)
    document = desk.json("keys", "rotate", "--kid", "2026-12", "--grace", "0")
    assert (document["rotated"], document["new_kid"]) == (True, "2026-12")
    assert desk.ff("waits", "signal", link, "approved") == Exit.REFUSED
    assert "it says no more on purpose" in desk.err


def test_a_secret_comes_from_a_file_and_is_never_shown(desk: Desk, tmp_path: Path) -> None:
    suspend(desk)
    secret = "5a" * 31 + "5b"
    path = tmp_path / "secret"
    path.write_text(f"{secret}\n")
    rotate = ("keys", "rotate", "--kid", "mine", "--secret-file")
    assert desk.ff(*rotate, str(path)) == Exit.OK
    assert secret not in desk.out + desk.err
    assert desk.ff(*rotate, str(tmp_path / "none")) == Exit.NOT_FOUND
    path.write_text("too short")
    assert desk.ff(*rotate, str(path)) == Exit.USAGE
    assert "too short" not in desk.err
    path.write_text("5c" * 31 + "5d")
    assert desk.ff(*rotate, str(path)) == Exit.REFUSED
    assert "5c" not in desk.err


def test_the_next_key_has_the_next_number() -> None:
    keys = [KeyInfo(kid, False, 0, None) for kid in ("k9", "k10", "mine", "kx")]
    assert next_kid(keys) == "k11"
    assert next_kid([]) == "k1"


def test_an_interrupted_step_is_asked_about_and_answered(desk: Desk) -> None:
    """The question is listed, `why` tells it, and an answer of the wrong type is refused."""
    ff, ran = Fabric(desk.url), list[int]()

    @ff.step(once=True, on_interrupted="ask")
    async def pay() -> str:
        ran.append(1)
        engine = await ff.start()
        execution_id = current_step().journal.owner.claimed.execution_id
        await engine.revoke_lease(execution_id=execution_id, reason="the test says so")
        return "lost"

    @ff.task
    async def order() -> str:
        return await pay()

    async def until(state: str) -> str:
        async with ff, working(ff):
            run = await ff.submit(order, key="one")
            while (await run.state()).value != state:  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.01)
            return run.id

    execution_id = asyncio.run(until("suspended"))
    assert desk.ff("waits") == Exit.OK
    assert "did pay happen?" in desk.out
    assert desk.ff("why", execution_id) == Exit.OK
    assert "did pay happen?" in desk.out
    approve = ("waits", "approve", execution_id, "did pay happen?", "--by", "ada")
    assert desk.ff(*approve) != Exit.OK
    assert "payload" in desk.err
    assert desk.ff(*approve, "--payload", '"tx-4711"') == Exit.OK
    assert "it goes on" in desk.out
    asyncio.run(until("completed"))
    assert desk.ff("journal", execution_id, "--values") == Exit.OK
    assert "started" in desk.out
    assert "tx-4711" in desk.out
    assert ran == [1]
