"""What every page has: its headers, its frame, its errors, its forms."""

from __future__ import annotations

import base64
import json

import pytest

from flowfabric.errors import StoreUnavailable
from flowfabric.model.marks import MARKS as SIGNS
from flowfabric.server.ui.assets import assets
from flowfabric.server.ui.forms import is_local
from flowfabric.server.ui.safety import POLICY
from flowfabric.server.ui.showing import MARKS, visible
from tests.support.http import Desk
from tests.support.lab import Lab, scenario
from tests.support.pages import page_of, sent, shown

BOUNDS = {"css": (28 * 1024, 8 * 1024), "js": (40 * 1024, 14 * 1024), "svg": (8 * 1024, 8 * 1024)}


@pytest.fixture
def lab(quick: Lab) -> Lab:
    """In memory: the store is not the point."""
    return quick


@scenario
async def test_a_page_keeps_to_itself(lab: Lab) -> None:
    reply = await Desk(lab.engine).get("/ui/runs")
    page_of(reply)
    assert reply.headers["content-security-policy"] == POLICY
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "same-origin"
    assert reply.headers["cross-origin-opener-policy"] == "same-origin"
    assert "strict-transport-security" not in reply.headers
    behind = await Desk(lab.engine, behind_proxy=True).get("/ui/runs")
    assert "strict-transport-security" in behind.headers


@scenario
async def test_the_root_leads_to_the_dashboard_and_without_it_nowhere(lab: Lab) -> None:
    for path in ("/", "/ui/"):
        reply = await Desk(lab.engine).get(path)
        assert (reply.status, reply.headers["location"]) == (303, "/ui")
    for path in ("/", "/ui", "/ui/", "/ui/runs", "/ui/static/x.css"):
        assert (await Desk(lab.engine, ui=False).get(path)).status == 404


@scenario
async def test_an_error_is_a_page_with_the_id_of_its_request(lab: Lab) -> None:
    desk = Desk(lab.engine)
    reply = await desk.get("/ui/nowhere", headers={"x-request-id": "asked-7"})
    assert reply.status == 404
    assert "asked-7" in "".join(page_of(reply).texts)
    made = await lab.engine.create_access_token(name="x", scopes=("worker",))
    bearer = {"Authorization": f"Bearer {made.token.reveal()}"}
    page = await shown(desk, "/ui/runs", 403, headers=bearer)
    assert "lacks the scope read" in "".join(page.texts)
    assert not [each for each in page.all("a") if each.attributes["href"] == "/ui/runs"]


@scenario
async def test_a_defect_is_a_page_that_tells_nothing_of_it(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("the inside of the server")

    monkeypatch.setattr(lab.engine, "server_time_ms", broken)
    reply = await Desk(lab.engine).get("/ui/runs")
    assert reply.status == 500
    assert "inside of the server" not in "".join(page_of(reply).texts)


@scenario
async def test_a_page_of_a_store_that_is_away_says_so_and_looks_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise StoreUnavailable("the store is away", retry_after_ms=1_000)

    monkeypatch.setattr(lab.engine, "server_time_ms", away)
    reply = await Desk(lab.engine).get("/ui/runs")
    assert (reply.status, reply.headers["refresh"]) == (503, "5")
    assert "the store is away" in "".join(page_of(reply).texts)


@scenario
async def test_a_browser_that_has_proved_nothing_is_sent_to_the_login(lab: Lab) -> None:
    await lab.engine.create_access_token(name="x", scopes=("read",))
    reply = await Desk(lab.engine).get("/ui/runs?q=state:failed")
    assert reply.status == 303
    assert reply.headers["location"] == "/ui/login?next=/ui/runs%3Fq%3Dstate%3Afailed"


@scenario
async def test_a_choice_of_how_pages_look_is_kept_in_a_cookie(lab: Lab) -> None:
    desk = Desk(lab.engine)
    form = {"content-type": "application/x-www-form-urlencoded"}
    reply = await desk.post("/ui/look", b"theme=dark&back=/ui/runs", headers=form)
    assert (reply.status, reply.headers["location"]) == (303, "/ui/runs")
    cookie = reply.headers["set-cookie"].partition(";")[0]
    page = await shown(desk, "/ui/runs", headers={"cookie": cookie})
    assert page.elements[0] == ("html", page.elements[0][1])
    assert page.elements[0][1]["data-theme"] == "dark"
    other = {**form, "sec-fetch-site": "cross-site"}
    assert (await desk.post("/ui/look", b"theme=dark", headers=other)).status == 403


@scenario
async def test_a_line_that_another_program_left_in_a_cookie_is_not_shown(lab: Lab) -> None:
    """Cookies are those of a host, whatever its port, and of the names below it."""
    desk = Desk(lab.engine)
    run = await desk.created()
    first = await shown(desk, f"/ui/runs/{run}")
    held = await sent(desk, f"/ui/runs/{run}/hold", first)
    own = held.headers["set-cookie"].partition(";")[0]
    page = await shown(desk, "/ui/runs", headers={"cookie": own})
    assert [each for each in page.elements if each[1].get("id") == "flash"]
    proof, _, _ = own.partition(".")
    planted = {"text": "Sure?", "request_id": "r", "undo": f"/ui/runs/{run}/cancel"}
    text = base64.urlsafe_b64encode(json.dumps(planted).encode()).decode()
    for value in (f"ff_flash={text}", f"{proof}.{text}", f"ff_flash=.{text}"):
        page = await shown(desk, "/ui/runs", headers={"cookie": value})
        assert not [each for each in page.elements if each[1].get("id") == "flash"]


@scenario
async def test_a_cookie_that_another_site_has_set_names_no_form(lab: Lab) -> None:
    desk = Desk(lab.engine)
    for text in (b'{"text":"x","request_id":"r","undo":"//evil/ui"}', b"{", b"\xff", b"[]"):
        cookie = f"ff_flash={base64.urlsafe_b64encode(text).decode()}"
        page = await shown(desk, "/ui/runs", headers={"cookie": cookie})
        assert not [each for each in page.closed if each.attributes.get("id") == "flash"]
    await shown(desk, "/ui/runs", headers={"cookie": 'ff_look=theme=<x>.columns="; a b; ff_flash'})


def test_only_paths_of_the_dashboard_are_gone_back_to() -> None:
    for path in ("/ui", "/ui/runs?q=a%20b", "/ui/runs/17.x"):
        assert is_local(path)
    for path in ("//evil", "/ui//evil", "https://evil/ui", "/uix", "/ui/\\evil", "/ui/\n", ""):
        assert not is_local(path)


@scenario
async def test_a_file_is_kept_for_good_under_the_name_of_its_content(lab: Lab) -> None:
    desk = Desk(lab.engine)
    for asset in assets().values():
        plain = await desk.get(f"/ui/static/{asset.name}")
        assert plain.body == asset.plain
        assert "immutable" in plain.headers["cache-control"]
        zipped = await desk.get(f"/ui/static/{asset.name}", headers={"accept-encoding": "gzip"})
        assert (zipped.sent, zipped.body) == (asset.gzipped, asset.plain)
    assert (await desk.get("/ui/static/ui.000000000000.css")).status == 404


def test_files_stay_within_their_bounds_and_import_nothing_from_elsewhere() -> None:
    sizes: dict[str, list[int]] = {}
    for name, asset in assets().items():
        found = sizes.setdefault(name.rpartition(".")[2], [0, 0])
        found[0] += len(asset.plain)
        found[1] += len(asset.gzipped)
        assert b"://" not in asset.plain.replace(b"http://www.w3.org/2000/svg", b""), name
    for kind, (plain, zipped) in BOUNDS.items():
        assert sizes[kind][0] <= plain, (kind, sizes)
        assert sizes[kind][1] <= zipped, (kind, sizes)


def test_every_state_has_a_sign_of_its_own_and_its_word() -> None:
    assert len({*SIGNS.values()}) == len(SIGNS)
    sprite = assets()["icons.svg"].plain.decode()
    for state in SIGNS:
        sign, tone = MARKS[state.value]
        assert f'id="s-{sign}"' in sprite
        assert f".t-{tone}{{" in assets()["ui.css"].plain.decode()


def test_nothing_hides_in_a_text() -> None:
    assert visible("a\x00\x1b\u202e\u200b\ud800\U000e0041b") == "a␀␛⟨202E⟩⟨200B⟩\ufffd⟨E0041⟩b"
    assert visible("a\tb\nc é 日本 👩‍💻") == "a\tb\nc é 日本 👩‍💻"
