"""Words that policies and suspensions share."""

from __future__ import annotations

from enum import StrEnum


class TimeoutBehavior(StrEnum):
    """What a suspension's timeout does."""

    FAIL = "fail"
    CANCEL = "cancel"
    EXPIRE = "expire"
    AUTO_RESUME = "auto_resume"
    AUTO_RESUME_WITH_TIMEOUT_SIGNAL = "auto_resume_with_timeout_signal"
    ESCALATE = "escalate"
