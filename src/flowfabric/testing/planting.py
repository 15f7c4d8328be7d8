"""The calls by which a test plants faults."""

from __future__ import annotations

from abc import abstractmethod

from flowfabric.sdk.durations import Duration, to_ms
from flowfabric.sdk.waits import HasId, execution_of
from flowfabric.testing.faults import Crash, Place
from flowfabric.testing.stage import Stage


class FaultMethods:
    """The part of a test fabric that breaks things."""

    _copies = 0

    @abstractmethod
    def _stage_here(self) -> Stage:
        """Where the test takes place."""

    def crash(
        self,
        crash: Crash | None = None,
        *,
        before: str | None = None,
        after: str | None = None,
        nth: int = 1,
        at: Place = "body",
    ) -> None:
        """Let the worker die at a step, the nth time it comes there: before its function is called,
        after it returned (`at="body"`), when its result is sent (`checkpoint`), or when it is
        durable and the worker has not heard of it (`commit`). Another worker takes over when the
        lease has lapsed: `await fabric.settle(skip=True)`, or `advance("30s")`."""
        planted = Crash(before=before, after=after, nth=nth, at=at) if crash is None else crash
        self._stage_here().faults.plant(planted)

    def unknown_outcome(self, nth: int = 1) -> None:
        """The nth checkpoint or report from now on is done, and the worker does not hear of it."""
        self._stage_here().faults.lose_reply(nth)

    def store_down(self, by: Duration) -> None:
        """The workers and the timekeeper cannot reach the store for a while."""
        stage = self._stage_here()
        stage.faults.down_until = stage.loop.time() + to_ms(by, field="by") / 1000

    def pause_worker(self, by: Duration) -> None:
        """The worker stands still for a while, as a stopped process; another one may take over."""
        stage = self._stage_here()
        stage.hand.pause(stage.loop.time() + to_ms(by, field="by") / 1000)

    async def lose_lease(self, run: HasId | str) -> None:
        """Take the lease of a running execution away; the work is run again."""
        front = self._stage_here().front
        await front.revoke_lease(execution_id=execution_of(run), reason="the test took it away")

    def duplicate(self, times: int = 2) -> None:
        """The next signal, approval or rejection arrives several times."""
        self._copies = times

    def _take_copies(self) -> int:
        copies, self._copies = self._copies or 1, 0
        return copies

    def clock_jump(self, by: str) -> None:
        """Set the store's clock forward or back: `"-5m"`. No time passes."""
        sign, text = (-1, by[1:]) if by.startswith("-") else (1, by.removeprefix("+"))
        self._stage_here().clock.jump(sign * to_ms(text, field="by"))
