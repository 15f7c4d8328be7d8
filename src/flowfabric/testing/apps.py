"""Programs named as `module:name`."""

from __future__ import annotations

import importlib
from typing import Any

from flowfabric.errors import InvalidInput
from flowfabric.sdk.fabric import Fabric


def load_app(name: str) -> Fabric:
    """The fabric that a name stands for."""
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise InvalidInput(f"app: write module:name, not {name!r:.80}", field="app")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise InvalidInput(f"app: {error}", field="app") from error
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Fabric):
        raise InvalidInput(f"app: {name} is no Fabric", field="app")
    return found
