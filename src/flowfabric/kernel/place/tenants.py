"""Which work the loop of an engine moves: everything, or only that of some tenants or of a tag."""

from __future__ import annotations

from flowfabric.model.bulk import OperationRow
from flowfabric.model.execution import Execution
from flowfabric.model.flow import FlowRow
from flowfabric.model.record import Record
from flowfabric.model.schedule import ScheduleRow


class LoopFilter(Record, frozen=True):
    """The loop filter of an engine. Without anything it takes everything."""

    namespaces: tuple[str, ...] = ()
    tag: tuple[str, str] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it takes everything."""
        return not self.namespaces and self.tag is None

    def takes(self, thing: Execution | FlowRow | OperationRow) -> bool:
        """Whether an execution, a flow or a bulk operation is among it; all parts must agree."""
        if self.namespaces and thing.namespace not in self.namespaces:
            return False
        return self.tag is None or thing.tags.get(self.tag[0]) == self.tag[1]

    def takes_schedule(self, row: ScheduleRow) -> bool:
        """Whether a schedule is among it. One has no tags: it is for engines without a tag."""
        return self.tag is None and (not self.namespaces or row.namespace in self.namespaces)
