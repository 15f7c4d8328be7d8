"""What of a flow a page shows, as its address says it, and the addresses of what is beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

from flowfabric.model.flow_graph import GroupPlace
from flowfabric.model.record import Record
from flowfabric.model.state import PublicState

TABS: Final = ("graph", "list", "waterfall")
ONLY: Final = ("failed", "running", "blocking")
# The states of each filter; what blocks is known by more than its state.
STATES_OF: Final[Mapping[str, frozenset[PublicState]]] = {
    "failed": frozenset((PublicState.FAILED, PublicState.EXPIRED)),
    "running": frozenset((PublicState.ACTIVE,)),
    "blocking": frozenset(
        each
        for each in PublicState
        if not each.is_terminal and each is not PublicState.WAITING_CHILDREN
    ),
}
ZOOMS: Final = (25, 50, 75, 100, 125, 150, 200)
FIT: Final = 0  # as wide as there is room
_NUMBER_MAX: Final = 6  # digits of a level


class Asked(Record, frozen=True, kw_only=True):
    """The choices in an address. What makes no sense there is not chosen.

    `node`: the id of a member, as addresses have it. `fold`: the members of a level and task that
    are listed; `state`: only those of them in it. `is_folded`: like nodes are folded, however few
    they are. `zoom`: in percent, or `FIT`.
    """

    path: str
    tab: str = "graph"
    only: str = ""
    node: str = ""
    fold: GroupPlace | None = None
    state: str = ""
    is_folded: bool = False
    cursor: str = ""
    zoom: int = 100

    def address(self, **changes: object) -> str:
        """The same with other choices. Another choice begins its list anew."""
        return _address(replace_in(self, **{"cursor": "", **changes}))


def replace_in(asked: Asked, **changes: object) -> Asked:
    """Other choices, those that are not named as they are."""
    values = {name: getattr(asked, name) for name in asked.__struct_fields__}
    return Asked(**{**values, **changes})


def asked_of(path: str, query: Mapping[str, str]) -> Asked:
    """The choices of an address."""
    tab, only, state = query.get("tab", ""), query.get("only", ""), query.get("state", "")
    return Asked(
        path=path,
        tab=tab if tab in TABS else "graph",
        only=only if only in ONLY else "",
        node=query.get("node", "")[:100],
        fold=place_of(query.get("fold", "")),
        state=state if state in {each.value for each in PublicState} else "",
        is_folded=query.get("alike") == "1",
        cursor=query.get("cursor", ""),
        zoom=_zoom(query.get("zoom", "")),
    )


def _zoom(text: str) -> int:
    if text == "fit":
        return FIT
    return int(text) if text in {str(each) for each in ZOOMS} else 100


def fold_text(place: GroupPlace) -> str:
    """A level and task as one word of an address.

    >>> fold_text(GroupPlace(2, "fetch", False))
    '2.fetch'
    """
    return f"{place.level}{'c' if place.are_children else ''}.{place.execution_kind}"


def place_of(text: str) -> GroupPlace | None:
    """The level and task that a word stands for; None if it stands for none.

    >>> place_of("2c.part")
    GroupPlace(level=2, execution_kind='part', are_children=True)
    """
    head, dot, kind = text.partition(".")
    are_children = head.endswith("c")
    digits = head.removesuffix("c")
    if not dot or not digits.isdecimal() or not digits.isascii() or len(digits) > _NUMBER_MAX:
        return None
    return GroupPlace(int(digits), kind, are_children)


def _address(asked: Asked) -> str:
    pairs = {
        "tab": "" if asked.tab == "graph" else asked.tab,
        "only": asked.only,
        "alike": "1" if asked.is_folded else "",
        "fold": "" if asked.fold is None else fold_text(asked.fold),
        "state": asked.state,
        "node": asked.node,
        "zoom": "" if asked.zoom == 100 else "fit" if asked.zoom == FIT else str(asked.zoom),
        "cursor": asked.cursor,
    }
    query = urlencode({name: value for name, value in pairs.items() if value}, quote_via=quote)
    return f"{asked.path}?{query}" if query else asked.path
