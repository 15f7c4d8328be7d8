"""Links of waitpoints, as programs hand them out and take them."""

from __future__ import annotations

from flowfabric.model.links import PREFIX as PREFIX
from flowfabric.model.links import Address as Address
from flowfabric.model.links import address_of
from flowfabric.model.links import is_link as is_link
from flowfabric.model.links import make_link as make_link
from flowfabric.sdk.errors import InvalidLink


def read_link(text: object) -> Address:
    """The address behind a link; every defect of a link gives the same error."""
    address = address_of(text)
    if address is None:  # raised out here, so that no traceback carries the text
        raise InvalidLink("link: not a complete FlowFabric link", field="link")
    return address
