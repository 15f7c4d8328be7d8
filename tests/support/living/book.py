"""Every kind of living work there is. A kind that a stored fixture has stays here for good."""

from __future__ import annotations

from typing import Final

from tests.support.lab import Lab
from tests.support.living import (
    bulky,
    counted,
    flowing,
    followed,
    journaled,
    limited,
    lined,
    lines,
    lost,
    mailed,
    owned,
    placed,
    runnable,
    scheduled,
    streaming,
    suspended,
    trusted,
)
from tests.support.living.kind import PAUSE_MS, Living, Notes

# In the order in which they begin: a promise lasts a minute, so it is made among the last.
_ALL: Final[tuple[type[Living], ...]] = (
    runnable.Waiting,
    runnable.Ranked,
    runnable.Demanding,
    runnable.Delayed,
    runnable.Held,
    runnable.Deadline,
    runnable.Keyed,
    placed.PausedLane,
    scheduled.Scheduled,
    placed.Crew,
    placed.NamedClaim,
    placed.Drained,
    limited.Exhausted,
    limited.Reserved,
    limited.Asking,
    limited.Spending,
    limited.Scoped,
    limited.Windowed,
    limited.Slots,
    suspended.Suspension,
    suspended.HalfMet,
    suspended.Counted,
    suspended.Early,
    suspended.Pending,
    suspended.TimedWait,
    suspended.ResumedWait,
    suspended.RotatedKey,
    suspended.Watching,
    flowing.Diamond,
    flowing.Joins,
    flowing.Deferred,
    flowing.Aftermath,
    flowing.CancelledFlow,
    flowing.Family,
    flowing.EndedFlow,
    flowing.HookedFlow,
    streaming.Streaming,
    streaming.Sharing,
    lined.Logging,
    journaled.Journaled,
    journaled.WaitInLine,
    journaled.LaterChapter,
    journaled.ForkedRun,
    lines.Serial,
    lines.Fair,
    lines.HeldLine,
    lines.Gathering,
    journaled.Publishing,
    followed.Followed,
    journaled.LongStep,
    mailed.Listening,
    mailed.Asked,
    counted.Tallied,
    bulky.BulkHold,
    lost.DeadLetters,
    lost.AnotherInput,
    lost.FailedAlike,
    owned.Leased,
    owned.Lapsed,
    owned.Lost,
    owned.Retried,
    owned.Parked,
    owned.Ended,
    owned.Granted,
    trusted.Trusted,
    trusted.SignedIn,
)
KINDS: Final[dict[str, Living]] = {kind.lane: kind() for kind in _ALL}


async def begin_all(lab: Lab) -> dict[str, Notes]:
    """Living work of every kind in one database, a while after its last change."""
    notes = {name: await kind.begin(lab) for name, kind in KINDS.items()}
    lab.clock.advance(PAUSE_MS)
    return notes
