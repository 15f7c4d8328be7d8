"""Cases that look at everything the worker has asked."""

from __future__ import annotations

from flowfabric.server.conformance.case import case
from flowfabric.server.conformance.stage import Stage, expect
from flowfabric.server.conformance.watch import CLAIM

_REFUSALS = (400, 404, 405, 411, 413, 415, 422)


@case("record")
async def shows_its_token(stage: Stage) -> None:
    """Each request has the token, as `Authorization: Bearer`."""
    wanted = f"Bearer {stage.token}"
    for each in stage.watch.exchanges:
        found = each.headers.get("authorization")
        expect(found == wanted, f"{each.method} {each.path} has no token")


@case("record")
async def speaks_json(stage: Stage) -> None:
    """Bodies are sent as application/json."""
    for each in stage.watch.exchanges:
        media = each.headers.get("content-type", "")
        is_json = media.startswith("application/json") or each.method in ("GET", "DELETE")
        expect(is_json, f"{each.method} {each.path} has Content-Type {media!r}")


@case("record")
async def is_understood(stage: Stage) -> None:
    """No request was refused for its form."""
    for each in stage.watch.exchanges:
        if each.status in _REFUSALS:
            told = (each.answer or {}).get("detail")
            expect(False, f"{each.method} {each.path}: {each.status} {told}")


@case("record")
async def commands_are_understood(stage: Stage) -> None:
    """No command was refused for its form."""
    for each in stage.watch.of("/v1/commands"):
        for item in (each.answer or {}).get("items", ()):
            if isinstance(item, dict) and item.get("status") in _REFUSALS:
                expect(False, f"a command was refused: {item.get('detail')}")


@case("record")
async def one_name(stage: Stage) -> None:
    """It claims under the name that it registered with."""
    names = {each.body.get("worker_instance_id") for each in stage.watch.of(CLAIM)}
    expect(names == {stage.instance}, f"it claims as {names}, and registered as {stage.instance}")


@case("record")
async def reports_by_its_handles(stage: Stage) -> None:
    """It reports by handles that it was given, and nothing else."""
    given = {item["handle"] for _, item in stage.claimed()}
    for word in ("complete", "fail", "renew", "progress"):
        for each, item in stage.commands(word):
            expect(item.get("handle") in given, f"{each.path}: a {word} with an unknown handle")
