"""Words that policies share with suspensions and streams."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class TimeoutBehavior(StrEnum):
    """The effect of a suspension's timeout."""

    FAIL = "fail"
    CANCEL = "cancel"
    EXPIRE = "expire"
    AUTO_RESUME = "auto_resume"
    AUTO_RESUME_WITH_TIMEOUT_SIGNAL = "auto_resume_with_timeout_signal"
    ESCALATE = "escalate"


class HeadFailure(StrEnum):
    """What the failure of an execution means to those behind it in the line of its serial key."""

    NEXT = "next"  # the next one has its turn
    HOLD = "hold"  # they wait until it is replayed, or an operator lets the line go on


class UniqueWhile(StrEnum):
    """How long an execution has its unique key."""

    UNFINISHED = "unfinished"  # until its end
    WAITING = "waiting"  # until its start


class OnConflict(StrEnum):
    """What becomes of a submit under a unique key that an execution has."""

    EXISTING = "existing"  # it is answered with that one
    REFUSE = "refuse"
    REPLACE = "replace"  # that one is cancelled


class StreamMode(StrEnum):
    """How long a frame is kept."""

    DURABLE = "durable"
    SUMMARY = "summary"  # a change of a rolling document, which is kept whole
    BEST_EFFORT = "best_effort"  # for readers that look now


AT_TIMEOUT: Final = {
    TimeoutBehavior.FAIL: "it fails",
    TimeoutBehavior.CANCEL: "it is cancelled",
    TimeoutBehavior.EXPIRE: "it expires",
    TimeoutBehavior.AUTO_RESUME: "it goes on",
    TimeoutBehavior.AUTO_RESUME_WITH_TIMEOUT_SIGNAL: "it goes on, with a timeout signal",
    TimeoutBehavior.ESCALATE: "an operator must look",
}
