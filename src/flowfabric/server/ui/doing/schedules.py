"""Pausing, resuming, triggering, backfilling and removing schedules."""

from __future__ import annotations

from flowfabric.api.schedules import (
    BackfillSchedule,
    DeleteSchedule,
    PauseSchedule,
    ResumeSchedule,
    TriggerSchedule,
)
from flowfabric.errors import InvalidInput
from flowfabric.model.schedule import Backfilled
from flowfabric.model.times import count
from flowfabric.server.exchange import Call
from flowfabric.server.instants import instant
from flowfabric.server.routes.asking import ask
from flowfabric.server.service import Service
from flowfabric.server.ui.forms import Done, Form
from flowfabric.server.ui.views.schedules import PATH, run_href


def _name(call: Call) -> str:
    return call.params["schedule_id"]


def _space(form: Form) -> str | None:
    return form.text("namespace") or None


async def pause(service: Service, call: Call, form: Form) -> Done:
    """Its ticks are missed from now on."""
    name, reason = _name(call), form.text("reason")
    request = PauseSchedule(schedule_id=name, reason=reason, namespace=_space(form))
    await ask(service, call, request)
    return Done(text=f"Schedule {name} is paused: its ticks are missed until it is resumed.")


async def resume(service: Service, call: Call, form: Form) -> Done:
    """It goes on with the next tick."""
    name = _name(call)
    await ask(service, call, ResumeSchedule(schedule_id=name, namespace=_space(form)))
    return Done(text=f"Schedule {name} goes on with its next tick.")


async def trigger(service: Service, call: Call, form: Form) -> Done:
    """One run beside the calendar."""
    name = _name(call)
    made = await ask(service, call, TriggerSchedule(schedule_id=name, namespace=_space(form)))
    text = f"Schedule {name} has started run {made.number}. No tick was used up."
    return Done(text=text, to=run_href(made.run_id))


async def backfill(service: Service, call: Call, form: Form) -> Done:
    """Count the ticks of a range that have no run; with the number typed back, start them."""
    name = _name(call)
    request = BackfillSchedule(
        schedule_id=name,
        begin=instant(form.text("begin"), field="begin"),
        end=instant(form.text("end"), field="end"),
        dry_run=not form.text("number"),
        namespace=_space(form),
    )
    if request.dry_run:
        wanted = _missing(await ask(service, call, request))
        return Done(
            text=f"{count(wanted, 'tick')} of this range would run. To start them, send the range "
            "again with this number."
        )
    typed = form.number("number", least=0, most=10_000)
    counted = BackfillSchedule(
        schedule_id=name,
        begin=request.begin,
        end=request.end,
        dry_run=True,
        namespace=request.namespace,
    )
    wanted = _missing(await ask(service, call, counted))
    if typed != wanted:
        raise InvalidInput(
            f"number: {count(wanted, 'tick')} would run, not {typed}", field="number"
        )
    started = await _all(service, call, request)
    return Done(text=f"{count(started, 'run')} of schedule {name} started.", to=f"{PATH}/{name}")


def _missing(counted: Backfilled) -> int:
    return counted.total - counted.have_run


async def _all(service: Service, call: Call, request: BackfillSchedule) -> int:
    """Transaction after transaction; what one of them has started stays started."""
    started, begin = 0, request.begin
    while True:
        part = BackfillSchedule(
            schedule_id=request.schedule_id,
            begin=begin,
            end=request.end,
            namespace=request.namespace,
        )
        reply = await ask(service, call, part)
        started += len(reply.started)
        if reply.next_begin is None:
            return started
        begin = reply.next_begin


async def delete(service: Service, call: Call, form: Form) -> Done:
    """Its runs go on."""
    name = _name(call)
    await ask(service, call, DeleteSchedule(schedule_id=name, namespace=_space(form)))
    return Done(text=f"Schedule {name} is gone. Its runs go on.", to=PATH)
