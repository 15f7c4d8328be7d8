"""Work that has failed."""

from __future__ import annotations

from tests.support.lab import Lab
from tests.support.living.kind import Living, Notes


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
