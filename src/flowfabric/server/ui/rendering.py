"""Templates and what they are filled with. All are compiled when the server starts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any, Final

import jinja2
from markupsafe import Markup

from flowfabric.errors import NotFound
from flowfabric.ids import new_secret_id
from flowfabric.model.record import replace
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.ui import showing
from flowfabric.server.ui.assets import assets
from flowfabric.server.ui.clocks import now_of
from flowfabric.server.ui.draw.burn import burn_chart
from flowfabric.server.ui.draw.graph import draw_graph
from flowfabric.server.ui.draw.spark import minute_chart, spark
from flowfabric.server.ui.draw.timeline import timeline
from flowfabric.server.ui.draw.waterfall import draw_waterfall
from flowfabric.server.ui.forms import FLASH, cookie, csrf_of
from flowfabric.server.ui.frame import Frame, address_of, frame_of
from flowfabric.server.ui.pages import HTML, Page
from flowfabric.server.ui.safety import safe_headers
from flowfabric.server.ui.waiting import counts_for

if TYPE_CHECKING:
    from flowfabric.server.service import Service
    from flowfabric.server.ui.refusals import Refusal

# Stands for a form's proof while markup is made, so that viewers can share it. Nobody outside of
# this process knows it.
_CSRF: Final = f"csrf-{new_secret_id()}"
# The words between the tags of an instant change by themselves, in the browser.
_INSTANT: Final = re.compile(r"(<time [^>]*>)[^<]*")
_DIGEST_CHARS: Final = 12
AS_OF: Final = "as_of"  # when a live page was first shown: what is newer is counted, not listed


def _drawing(draw: Callable[..., str]) -> Callable[..., Markup]:
    """What a template calls: a drawing escapes all texts by itself."""
    return lambda *given, **more: Markup(draw(*given, **more))  # noqa: S704


_DRAWINGS: Final = {
    "burn_chart": burn_chart,
    "graph": _drawing(draw_graph),
    "minute_chart": minute_chart,
    "spark": spark,
    "timeline": timeline,
    "waterfall": _drawing(draw_waterfall),
}


@cache
def environment() -> jinja2.Environment:
    """Every template of the package, compiled."""
    root = files("flowfabric.server.ui") / "templates"
    sources = dict(_sources(root, ""))
    made = jinja2.Environment(
        loader=jinja2.DictLoader(sources),
        autoescape=True,
        finalize=showing.finalized,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        cache_size=-1,
        auto_reload=False,
    )
    made.globals.update({"asset": _asset, "marks": showing.MARKS, **_DRAWINGS})
    made.filters.update(showing.FILTERS)
    for name in sources:
        made.get_template(name)
    return made


def _sources(folder: Traversable, before: str) -> list[tuple[str, str]]:
    found = []
    for each in folder.iterdir():
        if each.is_dir():
            found += _sources(each, f"{before}{each.name}/")
        elif each.name.endswith(".html"):
            found.append((before + each.name, each.read_text(encoding="utf-8")))
    return found


def _asset(name: str) -> str:
    return assets()[name].name


def prepare() -> None:
    """Compile and compress what every page needs."""
    environment()
    assets()


# --- pages ---------------------------------------------------------------------------------------


async def whole(
    service: Service, call: Call, page: Page, view: Any, *, status: int = 200
) -> Answer:
    """A page, with its live parts in place."""
    now = await now_of(service, call)
    counts = await counts_for(service, call)
    of = address_of(call, **({AS_OF: now + 1} if page.counts_new else {})) if page.topics else None
    title = getattr(view, "title", page.title)
    frame = frame_of(service, call, title=title, now=now, of=of, counts=counts)
    answer = _answer(service, call, page.template, _context(frame, view))
    answer.status = status
    return answer


async def live_parts(
    service: Service, call: Call, page: Page, of: str
) -> tuple[int, Mapping[str, tuple[str, str]], bool, tuple[str, ...]]:
    """When it was, and the live parts of a page: for each a digest of what it says, and its
    markup; whether time alone changes nothing; and the topics of the view. The forms in it lead
    back to the page."""
    view = await page.view(service, call)
    if isinstance(view, Answer):  # such as another page, for a caller that may not see this one
        raise NotFound("of: this page has no live parts for this caller")
    now = await now_of(service, call)
    frame = frame_of(service, call, title=page.title, now=now, of=of)
    context = _context(frame, view)
    made = {name: _part(name, context) for name in page.parts}
    parts = {name: (digest_of(text), text) for name, text in made.items()}
    return now, parts, getattr(view, "is_quiet", False), getattr(view, "topics", ())


def refused(
    service: Service, call: Call, view: Refusal, headers: tuple[tuple[bytes, bytes], ...]
) -> Answer:
    """The page of an error."""
    answer = alone(service, call, "refused.html", view, title=view.title, status=view.status)
    answer.headers = (*answer.headers, *headers)
    return answer


def alone(
    service: Service, call: Call, template: str, view: Any, *, title: str, status: int
) -> Answer:
    """A page that needs no store. What it was asked with is not repeated on it."""
    asked = frame_of(service, call, title=title, now=0, of=None)
    frame = replace(asked, address=asked.address.partition("?")[0])
    answer = _answer(service, call, template, _context(frame, view))
    answer.status = status
    return answer


def _answer(service: Service, call: Call, name: str, context: dict[str, Any]) -> Answer:
    text = environment().get_template(name).render(context)
    body = with_proof(text, csrf_of(service, call)).encode()
    headers = safe_headers(service, call)
    if context["frame"].flash is not None:
        headers = (*headers, cookie(FLASH, "", max_age_s=0))
    return Answer(body, media=HTML.encode(), headers=headers)


def _context(frame: Frame, view: Any) -> dict[str, Any]:
    context = {"frame": frame, "view": view, "now": frame.now, "csrf": _CSRF}

    def part(name: str) -> Markup:
        return wrapped(name, _part(name, context))

    context["part"] = part
    return context


# --- parts ---------------------------------------------------------------------------------------


def _part(name: str, context: Mapping[str, Any]) -> str:
    return environment().get_template(f"parts/{name}.html").render(context)


def wrapped(name: str, text: str) -> Markup:
    """A part in the element that is replaced when it changes."""
    opening = Markup('<div class="part" id="part-{}" data-part="{}" data-v="{}">')
    return opening.format(name, name, digest_of(text)) + Markup(text) + Markup("</div>")  # noqa: S704


def digest_of(text: str) -> str:
    """Tells whether a part says something new; that time passes is nothing new."""
    return hashlib.blake2b(_INSTANT.sub(r"\1", text).encode()).hexdigest()[:_DIGEST_CHARS]


def with_proof(text: str, csrf: str) -> str:
    """Markup for one caller: with the proof in its forms."""
    return text.replace(_CSRF, csrf)
