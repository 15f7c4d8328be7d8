"""What a page of the dashboard is: declared once, and a row of the table of routes from then on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from flowfabric.api.operation import Scope
from flowfabric.model.record import Record
from flowfabric.server.exchange import Answer, Call, Streamed
from flowfabric.server.places import Nav, Place
from flowfabric.server.routes.route import Judge, Reach, Repeat, Route, Size
from flowfabric.server.routes.values import full_id
from flowfabric.server.ui.forms import Done, Form, after, form_of, refused_form

if TYPE_CHECKING:
    from flowfabric.server.service import Service

HTML: Final = "text/html; charset=utf-8"

View = Callable[["Service", Call], Awaitable[Any]]
Act = Callable[["Service", Call, Form], Awaitable[Done | Answer]]


class Page(Record, frozen=True, kw_only=True):
    """One page. `view` asks what it needs and answers what `template` is given as `view`.

    `parts`: its live parts, each a template `parts/<name>.html`; `topics`: what makes the server
    look at them again, with the parameters of the path in braces (`docs/design/040-dashboard.md`
    has the words). `is_personal`: its parts are not the same for all callers with the same rights.
    `counts_new`: what is newer than the page is counted and not listed: its live address has the
    instant as `as_of`.
    `asks`: the operations that `view` asks for. `reads_much`: whether a request for it reads
    much of the store, which a caller may do rarely.
    """

    path: str
    title: str
    view: View
    template: str
    scope: Scope | None = Scope.READ
    also: tuple[Scope, ...] = ()
    reach: Reach = Reach.NAMED
    asks: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    is_personal: bool = False
    counts_new: bool = False
    nav: Nav | None = None
    reads_much: Judge | None = None

    def topics_of(self, params: Mapping[str, str]) -> tuple[str, ...]:
        """Its topics, for what a path names; ids of executions are given in full."""
        names = {
            name: full_id(value) if name == "execution_id" else value
            for name, value in params.items()
        }
        return tuple(each.format_map(names) if "{" in each else each for each in self.topics)

    def route(self) -> Route:
        """Its row of the table."""
        return Route(
            method="GET",
            path=self.path,
            title=self.title,
            asks=self.asks,
            scope=self.scope,
            also=self.also,
            reach=self.reach,
            handler=Showing(self),
            reads_much=self.reads_much,
            media=HTML,
            tag="ui",
            is_page=True,
        )


class Action(Record, frozen=True, kw_only=True):
    """One thing that a form does. `act` reads the form, asks an operation, and tells what became of
    it; the browser then goes back to the page that the form was on. It may answer by itself, for
    example with the same form and what is wrong with it."""

    path: str
    title: str
    act: Act
    scope: Scope | None = Scope.OPERATE
    also: tuple[Scope, ...] = ()
    reach: Reach = Reach.OBJECT
    asks: tuple[str, ...] = ()
    size: Size = Size.SMALL
    is_expensive: bool = False

    def route(self) -> Route:
        """Its row of the table."""
        return Route(
            method="POST",
            path=self.path,
            title=self.title,
            asks=self.asks,
            scope=self.scope,
            also=self.also,
            reach=self.reach,
            handler=Acting(self),
            is_expensive=self.is_expensive,
            size=self.size,
            repeat=Repeat.STATE,
            media=HTML,
            tag="ui",
            is_page=True,
        )


class Showing:
    """The handler of a page."""

    def __init__(self, page: Page) -> None:
        self.page = page

    async def __call__(self, service: Service, call: Call) -> Answer | Streamed:
        """The whole page. A view may answer by itself, for example with a redirect."""
        from flowfabric.server.ui.rendering import whole  # a program without a server needs none

        view = await self.page.view(service, call)
        if isinstance(view, Answer):
            return view
        return await whole(service, call, self.page, view)


class Acting:
    """The handler of a form."""

    def __init__(self, action: Action) -> None:
        self.action = action

    async def __call__(self, service: Service, call: Call) -> Answer:
        """Do it, and go back with a line that says what has happened."""
        form = await form_of(service, call)
        try:
            done = await self.action.act(service, call, form)
        except Exception as error:  # noqa: BLE001 - what is no refusal is raised again
            return refused_form(service, call, form, error)
        return done if isinstance(done, Answer) else after(service, call, form, done)


def places_of(routes: Iterable[Route]) -> tuple[Place, ...]:
    """The places of the navigation, in its order."""
    found = []
    for route in routes:
        page = route.handler.page if isinstance(route.handler, Showing) else None
        if page is not None and page.nav is not None:
            scopes = frozenset() if page.scope is None else frozenset((page.scope, *page.also))
            is_shared = page.reach is Reach.SHARED
            found.append(Place(path=page.path, nav=page.nav, scopes=scopes, is_shared=is_shared))
    return tuple(sorted(found, key=lambda each: (each.nav.group, each.nav.order)))
