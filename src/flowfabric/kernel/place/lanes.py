"""What a lane's switch means: for everything that starts work, and everything that adds some."""

from __future__ import annotations

from flowfabric.errors import Corruption, LaneClosed
from flowfabric.kernel.decision import Refused
from flowfabric.model.route import Catalog


def may_start(lane_id: str, catalog: Catalog) -> bool:
    """Whether a lane hands work out, by any way of starting it."""
    return catalog.lane_state(lane_id).hands_out


def refuse_start(lane_id: str, catalog: Catalog) -> Refused | None:
    """Why a named execution may not be started or promised now. A promise made before the lane was
    shut is not kept: it can be redeemed again once the lane is open, while it lives."""
    if may_start(lane_id, catalog):
        return None
    return _closed(lane_id, catalog, "hands out no work")


def refuse_entry(lane_id: str, catalog: Catalog) -> Refused | None:
    """Why a lane takes no more work in: neither new executions nor those that live again."""
    if catalog.lane_state(lane_id).takes_in:
        return None
    return _closed(lane_id, catalog, "takes no work in")


def _closed(lane_id: str, catalog: Catalog, what: str) -> Refused:
    if (fault := catalog.lane_fault(lane_id)) is not None:
        return Refused(Corruption, fault, {"field": "lane_id", "lane_id": lane_id})
    state = catalog.lane_state(lane_id).value
    fields = {"field": "lane_id", "lane_id": lane_id, "lane_state": state}
    return Refused(LaneClosed, f"lane {lane_id} is {state}: it {what}", fields)
