"""How large answers are, and how much one caller may ask for at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from flowfabric import limits
from flowfabric.api.operation import Scope
from tests.support.http import Desk
from tests.support.lab import Lab, scenario

if TYPE_CHECKING:
    import pytest

LIST = "/v1/executions"
GZIP = {"Accept-Encoding": "br, gzip;q=0.5"}


@scenario
async def test_a_large_answer_is_gzip_for_those_that_ask(quick: Lab) -> None:
    desk = Desk(quick.engine)
    for _ in range(3):
        await desk.created()
    plain = await desk.get(LIST)
    assert (plain.headers["vary"], "content-encoding" in plain.headers) == (
        "accept-encoding",
        False,
    )
    packed = await desk.get(LIST, headers=GZIP)
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["content-length"] == str(len(packed.sent))
    assert packed.body == plain.body
    assert len(packed.sent) < len(plain.body) / 2
    refused = await desk.get(LIST, headers={"Accept-Encoding": "gzip;q=0"})
    assert "content-encoding" not in refused.headers
    small = await desk.get("/livez", headers=GZIP)
    assert "content-encoding" not in small.headers


@scenario
async def test_a_body_that_is_packed_is_the_same_bytes(quick: Lab) -> None:
    """A large one, which is packed apart from the event loop; and stored bytes, which never are."""
    desk = Desk(quick.engine)
    text = b'{"big":"' + b"0123456789" * 40_000 + b'", "n" : 1e5}'
    made = await desk.post(LIST, b'{"execution_kind":"work","input":' + text + b"}")
    place = made.headers["location"]
    packed = await desk.get(f"{place}/input", headers=GZIP)
    assert text in packed.body
    raw = await desk.get(f"{place}/input?raw=1", headers=GZIP)
    assert (raw.body, "content-encoding" in raw.headers) == (text, False)


@scenario
async def test_a_page_shrinks_to_fit_and_gives_a_cursor(
    quick: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(quick.engine)
    made = [await desk.created(tags={"team.a": "x" * 900}) for _ in range(9)]
    whole = await desk.get(LIST)
    monkeypatch.setattr(limits, "ANSWER_BYTES_MAX", len(whole.body) // 3)
    found, pages, query = [], 0, ""
    while pages < len(made):
        page = await desk.get(LIST + query)
        assert len(page.body) <= limits.ANSWER_BYTES_MAX
        found += [each["execution_id"] for each in page.json["items"]]
        pages += 1
        if page.json["next_cursor"] is None:
            break
        query = f"?cursor={page.json['next_cursor']}"
    assert len(set(found)) == len(found) == len(made)
    assert 3 <= pages <= 5
    monkeypatch.setattr(limits, "ANSWER_BYTES_MAX", 10)
    assert len((await desk.get(LIST)).json["items"]) == 1  # a single one is answered in any case


async def bearer(lab: Lab) -> dict[str, str]:
    made = await lab.engine.create_access_token(name="t", scopes=(Scope.ADMIN.value,))
    return {"Authorization": f"Bearer {made.token.reveal()}"}


@scenario
async def test_what_reads_much_is_asked_for_rarely(quick: Lab) -> None:
    desk = Desk(quick.engine, rate_expensive=1)
    headers, other = await bearer(quick), await bearer(quick)
    search = f"{LIST}?text=solar"
    replies = [await desk.get(search, headers=headers) for _ in range(3)]
    assert [each.status for each in replies] == [200, 200, 429]
    assert replies[2].headers["ratelimit"] == '"expensive";r=0;t=1'
    assert replies[2].json["rate"] == "expensive"
    bulk = {"action": "cancel", "reason": "no"}
    for path, body in ((f"{LIST}/bulk", bulk), ("/v1/doctor", {})):
        assert (await desk.post(path, body, headers=headers)).status == 429
    assert (await desk.get(f"{LIST}/count?text=solar", headers=headers)).status == 429
    assert (await desk.get(LIST, headers=headers)).status == 200
    assert (await desk.get(search, headers=other)).status == 200


@scenario
async def test_the_waits_of_one_token_are_bounded(quick: Lab) -> None:
    desk = Desk(quick.engine, waits_per_token=1)
    headers, other = await bearer(quick), await bearer(quick)
    made = await desk.created(headers=headers)
    path = f"{LIST}/{made}/outcome?wait=25s"
    first = asyncio.create_task(desk.get(path, headers=headers))
    while desk.service.waits < 1:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.001)
    told = await desk.get(path, headers=headers)
    assert (told.status, told.json["code"]) == (429, "too_many_waits")
    second = asyncio.create_task(desk.get(path, headers=other))
    while desk.service.waits < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    await desk.post(f"{LIST}/{made}/cancel", {"reason": "no"}, headers=headers)
    replies = await asyncio.gather(first, second)
    assert [each.json["ended"]["public_state"] for each in replies] == ["cancelled", "cancelled"]
    assert (await desk.get(path, headers=headers)).status == 200
