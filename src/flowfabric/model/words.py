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
