"""The rolling document of an attempt: one more change."""

from __future__ import annotations

from typing import Any

from flowfabric import limits
from flowfabric.errors import (
    Corruption,
    InvalidInput,
    PatchDepthExceeded,
    RetentionLimitExceeded,
    StaleSummaryVersion,
)
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.stream.merge import CannotAppend, append_all, is_deeper, merge_patch
from flowfabric.model.record import exact_from_json, exact_to_json
from flowfabric.model.stream import NewFrame, PatchKind, SummaryRow

_FIELD = {"field": "payload"}


def change_summary(
    known: SummaryRow | None, frame: NewFrame, key: tuple[str, int], now: int
) -> SummaryRow | Refused:
    """The next version of the document, or why the frame does not fit it."""
    version = 0 if known is None else known.version
    if frame.expected_version is not None and frame.expected_version != version:
        detail = f"version {frame.expected_version} is not {version}"
        return Refused(StaleSummaryVersion, detail, {"version": version})
    try:
        patch = exact_from_json(frame.payload, field="payload")
    except InvalidInput as error:
        return Refused(InvalidInput, error.detail, _FIELD)
    if is_deeper(patch, limits.SUMMARY_DEPTH):
        return _too_deep()
    try:
        document = {} if known is None else exact_from_json(known.document, field="document")
    except InvalidInput as error:
        return Refused(Corruption, f"ff_stream_summary {key[0]}/{key[1]}: {error.detail}")
    changed = _changed(document, patch, frame.patch_kind)
    if isinstance(changed, Refused):
        return changed
    if is_deeper(changed, limits.SUMMARY_DEPTH):
        return _too_deep()  # an append may have put it deeper than it was itself
    data = exact_to_json(changed)
    if len(data) > limits.SUMMARY_BYTES:
        detail = f"payload: the summary would have {len(data)} bytes, over {limits.SUMMARY_BYTES}"
        return Refused(RetentionLimitExceeded, detail, {**_FIELD, "limit": limits.SUMMARY_BYTES})
    first = now if known is None else known.first_applied_at
    return SummaryRow(*key, data, version + 1, frame.patch_kind, first, now)


def _changed(document: Any, patch: Any, kind: PatchKind) -> Any:
    if kind is PatchKind.APPEND:
        try:
            return append_all(document, patch)
        except CannotAppend as error:
            return Refused(InvalidInput, f"payload: {error}", _FIELD)
    if not isinstance(patch, dict):
        return Refused(InvalidInput, "payload: a merge patch must be a JSON object", _FIELD)
    return merge_patch(document, patch)


def _too_deep() -> Refused:
    detail = f"payload: nests deeper than {limits.SUMMARY_DEPTH} levels"
    return Refused(PatchDepthExceeded, detail, _FIELD)
