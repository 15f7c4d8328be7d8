"""Work that has failed."""

from __future__ import annotations

from flowfabric.model.failure import FailureOrigin
from tests.support.lab import Lab
from tests.support.living.kind import HOUR_MS, Living, Notes
from tests.support.statistics import roll_up


class DeadLetters(Living):
    """Two dead letters, one of them dismissed; both can be replayed."""

    async def begin(self, lab: Lab) -> Notes:
        ids = []
        for _ in range(2):
            claimed = await self.start(lab)
            await lab.engine.fail(
                claimed.handle, reason="lost", failure_class="permanent", category="ü"
            )
            ids.append(claimed.execution_id)
        await lab.engine.dismiss_dead(execution_id=ids[1])
        return {"ids": ids}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        engine, (first, second) = lab.engine, notes["ids"]
        page = await engine.list_dead(category="ü")
        assert [each.execution_id for each in page.items] == [first]
        for execution_id in (first, second):
            await engine.replay_execution(execution_id=execution_id)
            await self.finish(lab, execution_id)
        assert (await engine.list_dead(category="ü")).items == ()


class AnotherInput(Living):
    """A dead letter with a retry that has another input, and waits."""

    async def begin(self, lab: Lab) -> Notes:
        claimed = await self.start(lab, input_payload=b"1")
        await lab.engine.fail(claimed.handle, reason="no", failure_class="permanent")
        retried = await lab.engine.retry_with_input(
            execution_id=claimed.execution_id, input_payload=b"2", idempotency_key="another"
        )
        return {"from": claimed.execution_id, "id": retried.execution_id}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        repeated = await lab.engine.retry_with_input(
            execution_id=notes["from"], input_payload=b"2", idempotency_key="another"
        )
        assert (repeated.execution_id, repeated.is_new) == (notes["id"], False)
        (found,) = (await lab.engine.list_retries(execution_id=notes["from"])).items
        assert (found.execution_id, found.retried_from) == (notes["id"], notes["from"])
        claimed = await self.finish(lab, notes["id"])
        assert claimed.payload == b"2"


class FailedAlike(Living):
    """A group of failures that is known, and one of its executions."""

    async def begin(self, lab: Lab) -> Notes:
        claimed = await self.start(lab)
        origin = FailureOrigin(exception="shop.NoCard", frame="shop:charge", line=7, version="1")
        await lab.engine.fail(
            claimed.handle, reason="no card", failure_class="permanent", origin=origin
        )
        told = await lab.engine.describe_failure(execution_id=claimed.execution_id)
        assert told is not None
        await roll_up(lab)
        await lab.engine.mark_failure_group(
            fingerprint=told.fingerprint, known_until=lab.now + HOUR_MS, reason="known"
        )
        return {"id": claimed.execution_id, "fingerprint": told.fingerprint}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        found = await lab.engine.describe_failure_group(fingerprint=notes["fingerprint"])
        assert found is not None
        assert (found.frame, found.known_reason, found.versions) == (
            "shop:charge",
            "known",
            ("1",),
        )
        (letter,) = (await lab.engine.list_dead(fingerprint=notes["fingerprint"])).items
        assert letter.execution_id == notes["id"]
        await lab.engine.replay_execution(execution_id=notes["id"])
        await self.finish(lab, notes["id"])
