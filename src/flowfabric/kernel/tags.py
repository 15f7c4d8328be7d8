"""Labels of executions and flows."""

from __future__ import annotations

from collections.abc import Mapping

from flowfabric.kernel.decision import Refused
from flowfabric.model.checks import too_many_tags


def with_tags(known: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str] | Refused:
    """All of them, sorted so that equal tags are stored equally; too many are refused."""
    tags = dict(sorted({**known, **new}.items()))
    if excess := too_many_tags(len(tags)):
        return Refused(type(excess), excess.detail, excess.fields)
    return tags
