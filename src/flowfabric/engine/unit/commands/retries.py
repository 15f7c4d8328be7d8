"""Commands about retries with another input."""

from __future__ import annotations

from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.another_input import RetryWithInput, refuse_unless_ended
from flowfabric.kernel.execution.fence import not_found
from flowfabric.kernel.execution.transition import operator_event
from flowfabric.model.event import OperatorEventType
from flowfabric.model.record import replace
from flowfabric.model.results import Created
from flowfabric.model.retry import Retried, RetryRow
from flowfabric.stores.tables import RETRIES


@handles(RetryWithInput)
async def retry_with_input(unit: Unit, command: RetryWithInput) -> Retried | Refused:
    """The new execution, and where it is found from the old one. A key that was used before is
    answered as it was then, whatever became of the old one since."""
    view, source = unit.view, unit.view.execution(command.execution_id)
    if source is None:
        return not_found(command.execution_id)
    known = view.execution(command.create.execution_id)  # an earlier try has committed
    if known is not None:
        return Retried(known.execution_id, source.execution_id)
    foreseen = view.preview(command.create).reply
    if isinstance(foreseen, Refused):
        return foreseen
    if not isinstance(foreseen, Created):
        return Retried(foreseen.execution_id, source.execution_id, is_new=False)
    if (refusal := refuse_unless_ended(source)) is not None:
        return refusal
    created = view.decide(command.create)
    if isinstance(created, Refused):
        return created
    new_id = command.create.execution_id
    view.rows.add(RETRIES, (RetryRow(source.execution_id, view.at.now, new_id),))
    event = operator_event(
        source, OperatorEventType.RETRIED, view.at.now, retry=new_id, reason=command.reason
    )
    view.note_event(replace(event, actor=command.actor) if command.actor else event)
    return Retried(new_id, source.execution_id)
