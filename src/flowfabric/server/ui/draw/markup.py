"""Elements of SVG as text: whatever is in an attribute or between tags is escaped."""

from __future__ import annotations

from markupsafe import Markup, escape

from flowfabric.server.ui.showing import visible


def element(name: str, *inside: Markup, text: str = "", **attributes: object) -> Markup:
    """One element. `_` in the name of an attribute is `-`, and at its end is nothing; those that
    are None are left out.

    >>> str(element("a", element("title", text="x<y"), class_="k", href="/ui"))
    '<a class="k" href="/ui"><title>x&lt;y</title></a>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = str(escape(visible(text))) + "".join(map(str, inside))
    return Markup(f"<{name}{written}>{inner}</{name}>")  # noqa: S704 - all parts are escaped


def _plain(value: object) -> str:
    """Numbers without needless digits."""
    return (
        f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else visible(str(value))
    )
