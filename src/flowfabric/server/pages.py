"""The page of a link: plain HTML, no script, nothing from another host, kept by nobody."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any, Final

from flowfabric.model.record import Record, to_json
from flowfabric.model.suspension import WaitpointShown
from flowfabric.model.times import absolute, relative
from flowfabric.server.ui.views.answers import Entry, Filled, blank, filled, with_problem
from flowfabric.server.ui.views.approvals import (
    APPROVED,
    cause_in_words,
    decisions_of,
    outlook,
    progress_at,
    then_of,
)
from flowfabric.server.ui.views.forms import field_of

_STYLE: Final = (files("flowfabric.server.ui") / "templates" / "link.css").read_text("utf-8")
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode("ascii")
HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-robots-tag", b"noindex, nofollow"),
    (b"x-content-type-options", b"nosniff"),
    (
        b"content-security-policy",
        f"default-src 'none'; style-src 'sha256-{_HASH}'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'".encode(),
    ),
)


class Typed:
    """What was typed into the form of a page."""

    def __init__(self, pairs: tuple[tuple[str, str], ...]) -> None:
        self.pairs = pairs

    def get(self, name: str, default: str = "") -> str:
        """One field; the last of several."""
        found = [value for key, value in self.pairs if key == name]
        return found[-1].replace("\r\n", "\n") if found else default


class LinkForm(Record, frozen=True, kw_only=True):
    """The form of a link that is open."""

    entry: Entry | None
    proof: str
    outlook: tuple[str, ...]
    decisions: tuple[tuple[str, str], ...]
    comment: str = ""
    name: str = ""
    problem: str = ""


class LinkPage(Record, frozen=True, kw_only=True):
    """All that the page says. `verdict`: where it takes no answer; `decided`: the holder's own."""

    title: str
    facts: tuple[str, ...] = ()
    verdict: str = ""
    decided: str | None = None
    form: LinkForm | None = None


class Filling:
    """A form that was sent: the payload it stands for, and the page on which it is shown again."""

    def __init__(self, shown: WaitpointShown, now: int, proof: str, typed: Typed) -> None:
        self._shown, self._now, self._proof, self._typed = shown, now, proof, typed
        field = field_of(shown.payload_type)
        self._filled: Filled | None = None
        if field is not None:
            self._filled = filled(field, typed.pairs, typed.get("more"))

    @property
    def is_wrong(self) -> bool:
        """Whether a field stands for no value."""
        return self._filled is not None and self._filled.payload is None

    @property
    def payload(self) -> bytes | None:
        """What the wait asks for; else a comment and the name that was typed, if any."""
        if self._filled is not None:
            return self._filled.payload
        said = {name: self._typed.get(name).strip() for name in ("comment", "name")}
        said = {name: text for name, text in said.items() if text}
        return to_json(said) if said else None

    def again(self, problem: str = "") -> bytes:
        """The page with what was typed, and what is wrong with it."""
        entry = None if self._filled is None else self._filled.entry
        if entry is not None and problem:
            entry = with_problem(entry, problem)
        form = LinkForm(
            entry=entry,
            proof=self._proof,
            outlook=_outlook(self._shown),
            decisions=decisions_of(self._shown.signal_names),
            comment=self._typed.get("comment"),
            name=self._typed.get("name"),
            problem=problem,
        )
        return _written(_page(self._shown, self._now, form=form))


def asking(shown: WaitpointShown, now: int, proof: str) -> bytes:
    """The question, its form, and a button for each answer."""
    field = field_of(shown.payload_type)
    form = LinkForm(
        entry=None if field is None else blank(field),
        proof=proof,
        outlook=_outlook(shown),
        decisions=decisions_of(shown.signal_names),
    )
    return _written(_page(shown, now, form=form))


def told(shown: WaitpointShown, now: int) -> bytes:
    """How it was decided by the holder of the link; or that it takes no more answers, and why."""
    if shown.decided is not None:
        return _written(_page(shown, now, verdict="Decided:", decided=shown.decided))
    verdict = f"{cause_in_words(shown.cause)}."
    if shown.cause is not None:
        verdict = f"{verdict} It takes no more answers."
    return _written(_page(shown, now, verdict=verdict))


def foreign() -> bytes:
    """The page of a link that opens nothing; it is the same for each."""
    facts = ("It is damaged, or the key that signed it is no longer known.", "Ask for another one.")
    return _written(LinkPage(title="This link opens nothing", facts=facts))


def reads_pages(accept: str | None) -> bool:
    """Whether a browser asks, and no program."""
    return accept is not None and "text/html" in accept


def _outlook(shown: WaitpointShown) -> tuple[str, ...]:
    names = [name for name, _ in decisions_of(shown.signal_names)]
    return outlook(shown.lines, shown.waitpoint_key, names)


def _page(
    shown: WaitpointShown,
    now: int,
    *,
    form: LinkForm | None = None,
    verdict: str = "",
    decided: str | None = None,
) -> LinkPage:
    until = shown.timeout_at
    then = then_of(until, shown.at_timeout)
    facts = (
        "" if form is None else _progress(shown),
        f"You answer as {shown.source}.",
        f"{relative(until, now)} ({absolute(until)}) {then}."
        if until is not None and form is not None
        else "",
    )
    return LinkPage(
        title=f"{shown.execution_kind}: {shown.waitpoint_key}",
        facts=tuple(f"{each[:1].upper()}{each[1:]}" for each in facts if each),
        form=form,
        verdict=verdict,
        decided=decided,
    )


def _progress(shown: WaitpointShown) -> str:
    """What is there already; a wait that is for no approval is told as it is."""
    if APPROVED not in shown.signal_names:
        return f"It waits for {shown.waits_for}." if shown.waits_for else ""
    have, need = progress_at(shown.lines, shown.waitpoint_key)
    return f"{have} of {need} approvals so far." if need > 1 else ""


def _written(page: LinkPage) -> bytes:
    text: str = _template().render(view=page)
    return text.encode()


@cache
def _template() -> Any:
    """A program without a server needs no templates."""
    from markupsafe import Markup

    from flowfabric.server.ui.rendering import environment

    style = Markup(_STYLE)  # noqa: S704 - our own sheet
    return environment().get_template("link.html", globals={"style": style})
