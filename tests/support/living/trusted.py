"""Access tokens and sessions: some that are shown again, and some that are over."""

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


class SignedIn(Living):
    """A session opens what it did; those that were ended, or whose token was, open nothing."""

    async def begin(self, lab: Lab) -> Notes:
        made = await lab.engine.create_access_token(
            name=self.lane, scopes=("read",), expires_in_ms=10**11
        )
        times = {"idle_ms": 3 * 10**10, "life_ms": 3 * 10**10}
        person: Notes = {"way": "oidc", "subject": self.lane, "roles": ("ops", "readers"), **times}
        pasted: Notes = {"way": "token", "token": made.token, **times}
        kept, ended, orphan = [
            (await lab.engine.open_session(**fields)).text for fields in (person, person, pasted)
        ]
        await lab.engine.end_session(text=ended)
        await lab.engine.revoke_access_token(token_id=made.id, actor="olga")
        return {"kept": kept.reveal(), "over": [ended.reveal(), orphan.reveal()]}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        kept = Token(notes["kept"])
        found = await lab.engine.read_session(text=kept)
        assert (found.subject, found.roles) == (self.lane, ("ops", "readers"))
        for text in notes["over"]:
            with pytest.raises(Unauthorized):
                await lab.engine.read_session(text=Token(text))
        assert (await lab.engine.end_session(text=kept)).is_new
