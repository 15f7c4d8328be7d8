"""Three hundred hostile texts in every field of runs: each is read as text, and nothing else."""

from __future__ import annotations

import json
import unicodedata
from urllib.parse import quote

import pytest

from flowfabric.errors import FlowFabricError
from flowfabric.model.log_lines import LogBatch, NewLine
from flowfabric.server.routes.values import path_id
from flowfabric.server.ui.showing import visible, without_colours
from flowfabric.server.ui.views.execution import TABS
from tests.support.hostile import HOSTILE
from tests.support.http import Desk
from tests.support.lab import Lab, scenario
from tests.support.pages import Document, page_of, shown


def _is_control(character: str) -> bool:
    return unicodedata.category(character) == "Cc"


# Names and tags have no control characters; payloads, reasons and lines of logs may.
NAMES = [each for each in HOSTILE if each.strip() and not any(map(_is_control, each))]
_SCRIPTS = 2  # of the frame, and of a page that has one of its own


@pytest.fixture
def lab(quick: Lab) -> Lab:
    """In memory: the store is not the point."""
    return quick


def is_ours(page: Document) -> bool:
    """Whether all that runs or loads is what the frame has."""
    tags = [tag for tag, _ in page.elements]
    return tags.count("script") <= _SCRIPTS and not {*tags} & {"img", "iframe", "object", "base"}


def said(page: Document) -> str:
    return "".join(page.texts)


@scenario
async def test_hostile_texts_in_every_field_are_read_as_texts(lab: Lab) -> None:
    desk = Desk(lab.engine)
    made = []
    for number, text in enumerate(NAMES[:150:3]):
        tags = {f"key.n{number}": text}
        try:
            made.append((await lab.create(text, tags=tags), text))
        except FlowFabricError:  # no name may be so; a tag may
            made.append((await lab.create("brief", tags=tags), text))
    page = await shown(desk, "/ui/runs")
    assert is_ours(page)
    for _, text in made:
        assert visible(text).strip() in said(page)
    for key, text in made[::5]:
        one = await shown(desk, f"/ui/runs/{path_id(key)}")
        assert is_ours(one)
        assert visible(text) in said(one)


@scenario
async def test_hostile_payloads_logs_and_reasons_are_read_as_texts(lab: Lab) -> None:
    desk = Desk(lab.engine)
    values = {text: [text, {"inner": text}] for text in HOSTILE}
    key = await lab.create("brief", input_payload=json.dumps(values).encode())
    path = f"/ui/runs/{path_id(key)}"
    claimed = await lab.claim("w1")
    lines = [NewLine(message=text, at=lab.now, logger=NAMES[0]) for text in HOSTILE[-190:]]
    await lab.engine.append_logs(claimed.handle, logs=LogBatch(lines=lines))
    await lab.engine.progress(claimed.handle, percent=5, message=HOSTILE[0])
    reason = "\n".join(HOSTILE)[:8_000]
    await lab.engine.fail(claimed.handle, reason=reason, failure_class="permanent", category="x")
    for tab, _ in TABS:
        page = await shown(desk, f"{path}?tab={tab}")
        assert is_ours(page), tab
        if tab == "data":
            for text in HOSTILE:
                assert visible(text) in said(page)
            links = [e.attributes["href"] for e in page.all("a") if e.attributes.get("rel")]
            assert not [each for each in links if not each.startswith(("https://", "/"))]
    log = said(await shown(desk, f"{path}?tab=log"))
    for text in HOSTILE[-100:]:
        assert visible(without_colours(text)) in log


@scenario
async def test_hostile_words_in_addresses_are_read_as_texts(lab: Lab) -> None:
    desk = Desk(lab.engine, rate_expensive=100_000)
    for text in HOSTILE[::6]:
        page = await desk.get(f"/ui/runs?q={quote(text)}")
        assert page.status in (200, 422)  # a text to look for has no control characters
        assert is_ours(page_of(page))
        reply = await desk.get(f"/ui/search?q={quote(text)}")
        assert reply.headers["location"].startswith("/ui/runs")
        other = await desk.get(f"/ui/runs/{quote(text or '-', safe='')}?tab={quote(text)}")
        assert other.status in (400, 404, 422), other
