"""A repair as the audit trail keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowfabric.kernel.decision import Moment
from flowfabric.model.event import OperatorEvent, OperatorEventType
from flowfabric.model.repair import Correction

CORRECTIONS_KEPT = 100  # in one event; the reply has all


def differs(subject: str, counter: str, before: int, after: int) -> tuple[Correction, ...]:
    """The correction of a counter, unless it is right."""
    return () if before == after else (Correction(subject, counter, before, after),)


def told(correction: Correction) -> str:
    """What is wrong, as doctor says it."""
    return f"{correction.counter} is {correction.before}, the rows say {correction.after}"


def repair_events(
    subject: str,
    corrections: Sequence[Correction],
    at: Moment,
    *,
    namespace: str = "",
    tags: Mapping[str, str] | None = None,
) -> tuple[OperatorEvent, ...]:
    """One event with before and after of each value; none when nothing was wrong."""
    if not corrections:
        return ()
    kept = [
        {"subject": each.subject, "counter": each.counter, "was": each.before, "is": each.after}
        for each in corrections[:CORRECTIONS_KEPT]
    ]
    details = {"count": len(corrections), "corrections": kept}
    kind = OperatorEventType.COUNTERS_REPAIRED
    return (OperatorEvent(subject, kind, details, namespace, tags or {}, at.now),)
