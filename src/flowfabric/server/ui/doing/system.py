"""Checking the store, and revoking tokens."""

from __future__ import annotations

from flowfabric.api.access import RevokeAccessToken
from flowfabric.api.admin import Doctor
from flowfabric.model.times import count
from flowfabric.server.exchange import Call
from flowfabric.server.routes.asking import ask
from flowfabric.server.service import Service
from flowfabric.server.ui.forms import Done, Form

_SAID = 5  # of the problems; the command line tells all


async def examine(service: Service, call: Call, form: Form) -> Done:
    """What can be checked without reading every row."""
    report = await ask(service, call, Doctor(quick=True))
    if report.healthy:
        notices = "; ".join(each.detail for each in report.notices[:_SAID])
        return Done(text=f"Nothing is wrong. {notices}".strip())
    told = "; ".join(f"{each.subject}: {each.detail}" for each in report.problems[:_SAID])
    return Done(text=f"{count(len(report.problems), 'problem')}: {told}. ff doctor tells all.")


async def revoke(service: Service, call: Call, form: Form) -> Done:
    """It opens nothing any more, on any server."""
    token_id = call.params["token_id"]
    await ask(service, call, RevokeAccessToken(token_id=token_id))
    return Done(text=f"Token {token_id} is revoked: it opens nothing any more.")
