"""The store's time as a function of the machine's boot clock, and its corrections: pure rules.

All processes of one machine read the same boot clock, whatever their wall clocks say. So the file
records once which time it was at which reading of it, and every process computes the same time.
"""

from __future__ import annotations

from typing import Final

from flowfabric.model.record import Record, replace

TOLERANCE_MS: Final = 1_000  # wall clocks this close agree
STANDS_MS: Final = 60_000  # how long a wish must stand without an objection
REFUSED_MS: Final = 600_000  # pause after an objection in which no wish is made
LEAD_MS: Final = 10_000  # before a correction begins, every process has read it
JUMP_MS: Final = 3_600_000  # a larger gap is closed by a jump instead of a long correction
BACK_MS_MAX: Final = 86_400_000  # further ahead than this is for an operator to judge
NOTED_EVERY_MS: Final = 60_000


class Timeline(Record, frozen=True):
    """A line through one point, with at most one correction from that point on.

    A correction runs at half or one and a half times the speed, so that no lease and no wait is cut
    short by much and the time never goes back. Only a store that is far behind jumps.
    """

    boot_ms: int  # at this reading of the boot clock
    time_ms: int  # it was this time
    gain_ms: int = 0  # to be gained from then on; negative: to be lost
    reached_ms: int = 0  # a time that was surely reached: the next boot starts no earlier
    wish_ms: int | None = None  # the correction a process wishes, so far without an objection
    wished_at: int | None = None  # since when, on the boot clock
    refused_at: int | None = None  # when a process last objected, on the boot clock

    def time_at(self, boot_ms: int) -> int:
        """The store's time at a reading of the boot clock."""
        passed = boot_ms - self.boot_ms
        time = self.time_ms + passed
        if self.gain_ms == 0 or passed <= 0:
            return time
        if self.gain_ms > JUMP_MS:
            return time + self.gain_ms
        bent = min(passed // 2, abs(self.gain_ms))
        return time + bent if self.gain_ms > 0 else time - bent

    def is_steady(self, boot_ms: int) -> bool:
        """Whether the correction, if there is one, is over."""
        passed = boot_ms - self.boot_ms
        if passed < 0:
            return False
        return self.gain_ms > JUMP_MS or passed // 2 >= abs(self.gain_ms)


def judged(line: Timeline, boot_ms: int, wall_ms: int) -> Timeline:
    """The line as a process with this wall clock wants it; unchanged if there is nothing to change.

    A process with a clock that disagrees with the store wishes a correction. One with a clock that
    disagrees with the wish objects, and the wish is void. A wish that stood long enough has the
    agreement of all processes of the machine, and any of them carries it out.
    """
    offset = wall_ms - line.time_at(boot_ms)
    if not line.is_steady(boot_ms):
        return line
    if line.wish_ms is None or line.wished_at is None:
        return _wished(line, boot_ms, offset)
    if abs(offset - line.wish_ms) > TOLERANCE_MS:
        return replace(line, wish_ms=None, wished_at=None, refused_at=boot_ms)
    if boot_ms - line.wished_at < STANDS_MS:
        return line
    begins = boot_ms + LEAD_MS
    return Timeline(begins, line.time_at(begins), line.wish_ms, line.reached_ms)


def _wished(line: Timeline, boot_ms: int, offset: int) -> Timeline:
    is_content = abs(offset) <= TOLERANCE_MS or offset < -BACK_MS_MAX
    is_hushed = line.refused_at is not None and boot_ms - line.refused_at < REFUSED_MS
    if is_content or is_hushed:
        return line
    return replace(line, wish_ms=offset, wished_at=boot_ms)


def noted(line: Timeline, boot_ms: int) -> Timeline:
    """The line with the time reached by now, recorded once a minute."""
    time = line.time_at(boot_ms)
    return replace(line, reached_ms=time) if time - line.reached_ms >= NOTED_EVERY_MS else line
