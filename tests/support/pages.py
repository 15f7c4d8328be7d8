"""Pages of the dashboard as a parser sees them: what is wrong with one, and where it leads."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from flowfabric.errors import FlowFabricError
from flowfabric.server.routes.all import ALL_ROUTES
from flowfabric.server.routes.table import RouteTable
from flowfabric.server.ui.assets import assets
from tests.support.http import Desk, Reply

_VOID: Final = {"area", "br", "col", "hr", "img", "input", "link", "meta", "wbr"}
_SVG_VOID: Final = {"use", "path", "circle", "rect", "line", "ellipse", "polyline", "polygon"}
_URLS: Final = {"href", "src", "action", "formaction"}
_TABLE: Final = RouteTable(ALL_ROUTES)


class Element(NamedTuple):
    tag: str
    attributes: dict[str, str]
    text: str


class Document(HTMLParser):
    """A page; `faults` are what is wrong with its markup."""

    def __init__(self, body: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self._open: list[tuple[str, dict[str, str], list[str]]] = []
        self.closed: list[Element] = []
        self.in_labels: list[dict[str, str]] = []
        self.feed(body.decode("utf-8"))
        self.close()
        if self._open:
            self.faults.append(f"never closed: {[each[0] for each in self._open]}")
        self.faults += self._checked()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len({*names}) < len(names):
            self.faults.append(f"<{tag}> has an attribute twice: {names}")
        attributes = {name: value or "" for name, value in attrs}
        self.elements.append((tag, attributes))
        if any(each[0] == "label" for each in self._open):
            self.in_labels.append(attributes)
        if tag not in _VOID:
            self._open.append((tag, attributes, []))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _SVG_VOID:
            self.faults.append(f"<{tag}/> closes itself")
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1][0] != tag:
            self.faults.append(f"</{tag}> closes {[each[0] for each in self._open[-3:]]}")
            return
        name, attributes, texts = self._open.pop()
        text = "".join(texts)
        self.closed.append(Element(name, attributes, text))
        if self._open:
            self._open[-1][2].append(text)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._open:
            self._open[-1][2].append(data)
        if self._open and self._open[-1][0] in ("script", "style") and data.strip():
            self.faults.append(f"inline <{self._open[-1][0]}>: {data[:80]}")

    def all(self, tag: str) -> list[Element]:
        """Every element of a kind, with the text in it."""
        return [each for each in self.closed if each.tag == tag]

    def _checked(self) -> list[str]:
        faults = []
        ids = [attributes["id"] for _, attributes in self.elements if "id" in attributes]
        faults += [f"id {each!r} is there twice" for each in {*ids} if ids.count(each) > 1]
        if len(self.all("h1")) != 1:
            faults.append(f"{len(self.all('h1'))} h1")
        for tag, attributes in self.elements:
            faults += [f"<{tag} {each}>" for each in attributes if each.startswith("on")]
            if "style" in attributes:
                faults.append(f"<{tag} style>")
            for name in ("for", "aria-labelledby", "popovertarget"):
                if name in attributes and attributes[name] not in ids:
                    faults.append(f"<{tag} {name}={attributes[name]!r}> names no id")
            faults += _address_faults(tag, attributes)
        faults += [f"<button> without a name: {each}" for each in self._nameless_buttons()]
        return faults + self._unlabelled()

    def _nameless_buttons(self) -> list[dict[str, str]]:
        return [
            each.attributes
            for each in (*self.all("button"), *self.all("a"))
            if not each.text.strip() and not each.attributes.get("aria-label")
        ]

    def _unlabelled(self) -> list[str]:
        named = {attributes.get("for") for tag, attributes in self.elements if tag == "label"}
        return [
            f"<{tag} name={attributes.get('name')!r}> has no label"
            for tag, attributes in self.elements
            if tag in ("input", "select", "textarea")
            and attributes.get("type") not in ("hidden", "submit")
            and not attributes.get("aria-label")
            and attributes.get("id", "?") not in named
            and not any(attributes is each for each in self.in_labels)
        ]


def _address_faults(tag: str, attributes: dict[str, str]) -> list[str]:
    found = []
    for name in _URLS & attributes.keys():
        value = attributes[name]
        parts = urlsplit(value)
        if parts.scheme == "https" and tag == "a":
            if attributes.get("rel") != "noreferrer noopener":
                found.append(f"<{tag} {name}={value!r}> tells the other host where it was")
        elif value.startswith("#"):
            continue
        elif parts.scheme or parts.netloc or not leads_somewhere(tag, attributes, parts.path):
            found.append(f"<{tag} {name}={value!r}> leads nowhere")
    return found


def leads_somewhere(tag: str, attributes: dict[str, str], path: str) -> bool:
    """Whether a path is one of the server's, for the method that it is asked by."""
    if path.startswith("/ui/static/"):
        return path.removeprefix("/ui/static/") in {each.name for each in assets().values()}
    method = attributes.get("method", "get").upper() if tag == "form" else "GET"
    try:
        _TABLE.find(method, path.encode())
    except FlowFabricError:
        return False
    return True


def page_of(reply: Reply) -> Document:
    """A page without a fault."""
    assert reply.headers["content-type"] == "text/html; charset=utf-8", reply
    document = Document(reply.body)
    assert not document.faults, document.faults
    return document


async def shown(desk: Desk, path: str, status: int = 200, **more: Any) -> Document:
    """A page of a server, without a fault."""
    reply = await desk.get(path, **more)
    assert reply.status == status, reply
    return page_of(reply)


async def sent(desk: Desk, path: str, page: Document, **fields: str) -> Reply:
    """The form of a page with this action, filled in, as a browser without a script sends it."""
    csrf = next(a["value"] for t, a in page.elements if t == "input" and a.get("name") == "csrf")
    back = next(a["value"] for t, a in page.elements if t == "input" and a.get("name") == "back")
    assert any(t == "form" and a.get("action") == path for t, a in page.elements), path
    body = urlencode({"csrf": csrf, "back": back, **fields}).encode()
    headers = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}
    return await desk.post(path, body, headers=headers)
