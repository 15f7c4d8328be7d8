"""Idempotency keys: each creates one execution or one whole flow, once."""

from __future__ import annotations

from flowfabric.errors import IdempotencyConflict
from flowfabric.kernel.decision import Moment, Refused
from flowfabric.model.execution import IdempotencyRecord


def created_before(
    known: IdempotencyRecord | None, fingerprint: bytes, at: Moment
) -> str | Refused | None:
    """The id that was created under a key; None when the key was never used, or its window is over.
    The same key with other content is refused."""
    if known is None or at.now >= known.expires_at:
        return None
    if known.fingerprint != fingerprint:
        key, first = known.idempotency_key, known.execution_id
        detail = f"idempotency_key: {key!r} was used for other content by {first}"
        fields = {"field": "idempotency_key", "execution_id": first}
        return Refused(IdempotencyConflict, detail, fields)
    return known.execution_id
