"""Access tokens: one that is shown again, and one that was revoked."""

from __future__ import annotations

import pytest

from flowfabric.errors import Unauthorized
from flowfabric.model.access import Scope
from flowfabric.model.suspension import Token
from tests.support.lab import Lab
from tests.support.living.kind import Living, Notes


class Trusted(Living):
    """A token opens what it did; a revoked one still opens nothing."""

    async def begin(self, lab: Lab) -> Notes:
        good, gone = [
            await lab.engine.create_access_token(
                name=self.lane, scopes=("submit",), namespaces=("a", "b"), expires_in_ms=10**11
            )
            for _ in range(2)
        ]
        await lab.engine.authenticate(token=good.token)
        await lab.engine.revoke_access_token(token_id=gone.id, actor="olga")
        return {"good": good.token.reveal(), "gone": gone.token.reveal(), "id": gone.id}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        good = await lab.engine.authenticate(token=Token(notes["good"]))
        assert (good.name, good.scopes, good.namespaces) == (
            self.lane,
            (Scope.SUBMIT,),
            ("a", "b"),
        )
        with pytest.raises(Unauthorized):
            await lab.engine.authenticate(token=Token(notes["gone"]))
        again = await lab.engine.revoke_access_token(token_id=notes["id"])
        assert not again.is_new
