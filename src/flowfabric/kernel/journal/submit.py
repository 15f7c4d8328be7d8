"""Submit from a handler: new work, and the entries of the journal that tell of it, together."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric.errors import Corruption
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.kernel.flow.submit import SubmitFlow
from flowfabric.kernel.journal.checkpoint import Checkpoint
from flowfabric.model.journal import EntryRow
from flowfabric.model.record import replace
from flowfabric.model.submitted import SubmitResult, answers_kept

Start = CreateExecution | SubmitFlow


class SubmitRecorded(ExecutionCommand[list[SubmitResult]], frozen=True, kw_only=True):
    """The owner of an execution submits others, which are no children of it. All are recorded with
    the entries, or nothing is.

    `execution_id`: of the owner. Several starts need a transaction of their own, which a refusal of
    one of them undoes.
    """

    starts: tuple[Start, ...]
    entries: Checkpoint

    def needs(self, need: Needs) -> None:
        """What the entries need, and each start."""
        self.entries.needs(need)
        for each in self.starts:
            each.needs(need)


def submitted_before(
    rows: Sequence[EntryRow | None], count: int
) -> list[SubmitResult] | Refused | None:
    """The answers of this very command, sent before; None: nothing of it is recorded.

    `rows`: what stands where its entries about submits are to be. `count`: how many answers these
    have together.
    """
    known = [row for row in rows if row is not None]
    if not known:
        return None
    try:
        answers = [each for row in known for each in answers_kept(row.value or b"")]
    except Corruption:
        answers = []
    if len(answers) == count:
        return answers
    first = known[0]
    detail = (
        f"execution {first.execution_id}: entry {first.position} of its journal, {first.key!r}, "
        "does not tell what was submitted"
    )
    return Refused(Corruption, detail)


def refused_start(refusal: Refused, at: int, count: int) -> Refused:
    """One of several starts is refused; its place is named."""
    detail = refusal.detail if count == 1 else f"requests[{at}]: {refusal.detail}"
    return replace(refusal, detail=detail, fields={**refusal.fields, "index": at})
