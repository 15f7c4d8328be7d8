"""The page of a link, and the one to sign in on.

Plain HTML, no script, nothing from another host, and no browser or proxy keeps it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from typing import Final

from flowfabric.model.suspension import WaitpointShown

_STYLE: Final = """\
:root{color-scheme:light dark}
body{margin:10vh auto;max-width:32rem;padding:0 1.5rem;font:17px/1.5 system-ui,sans-serif}
label{display:block;margin:1rem 0}
input,textarea{display:block;width:100%;font:inherit;padding:.4rem}
button{font:inherit;padding:.5rem 1.4rem;margin:0 .6rem .6rem 0;cursor:pointer}
.soft{opacity:.7}.wrong{color:#c22}
"""
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


def confirmation(
    shown: WaitpointShown, names: Sequence[str], proof: str, wrong: str | None = None
) -> bytes:
    """The question, and a button for each answer."""
    problem = "" if wrong is None else f'<p class="wrong">{escape(wrong)}</p>'
    if shown.payload_type is not None:
        said = (
            "<label>Answer, as JSON<textarea name=payload rows=5 required></textarea></label>"
            f'<p class="soft"><code>{escape(shown.payload_type)}</code></p>'
        )
    else:
        said = (
            "<label>Comment<textarea name=comment rows=3></textarea></label>"
            "<label>Your name<input name=name maxlength=200></label>"
        )
    buttons = "".join(
        f'<button name="decision" value="{escape(name)}">{escape(name)}</button>' for name in names
    )
    return _document(
        shown,
        f"{problem}<form method=post>{said}"
        f'<input type=hidden name=proof value="{escape(proof)}"><p>{buttons}</p></form>',
    )


def told(shown: WaitpointShown, decided: str | None) -> bytes:
    """How it was decided; or that it takes no more answers."""
    if decided is None:
        return _document(shown, "<p>It takes no more answers.</p>")
    return _document(shown, f"<p>Decided: <b>{escape(decided)}</b>.</p>")


def _document(shown: WaitpointShown, body: str) -> bytes:
    waits = f"<p>It waits for {escape(shown.waits_for)}.</p>" if shown.waits_for else ""
    title = f"{escape(shown.execution_kind)}: {escape(shown.waitpoint_key)}"
    source = f'<p class="soft">You answer as {escape(shown.source)}.</p>'
    return _whole(title, f"{waits}{source}{body}")


def sign_in(wanted: str, wrong: str | None = None) -> bytes:
    """The page that asks for a token. `wanted`: the page that comes after it."""
    problem = "" if wrong is None else f'<p class="wrong">{escape(wrong)}</p>'
    return _whole(
        "Sign in",
        f'{problem}<form method=post action="/ui/login">'
        f'<input type=hidden name=next value="{escape(wanted)}">'
        "<label>Access token<input type=password name=token autocomplete=off required></label>"
        "<p><button>Sign in</button></p></form>"
        '<p class="soft">ff token new NAME --scope read makes one.</p>',
    )


def _whole(title: str, body: str) -> bytes:
    """A page; `title` and `body` are markup."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head>"
        f"<body><h1>{title}</h1>{body}</body></html>\n"
    ).encode()
