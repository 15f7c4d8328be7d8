"""Words that policies and suspensions share."""

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


AT_TIMEOUT: Final = {
    TimeoutBehavior.FAIL: "it fails",
    TimeoutBehavior.CANCEL: "it is cancelled",
    TimeoutBehavior.EXPIRE: "it expires",
    TimeoutBehavior.AUTO_RESUME: "it goes on",
    TimeoutBehavior.AUTO_RESUME_WITH_TIMEOUT_SIGNAL: "it goes on, with a timeout signal",
    TimeoutBehavior.ESCALATE: "an operator must look",
}
