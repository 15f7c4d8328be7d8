"""Which work the loop of an engine moves: everything, or only that of some tenants or of a tag."""

from __future__ import annotations

from flowfabric.model.execution import Execution
from flowfabric.model.flow import FlowRow
from flowfabric.model.record import Record


class LoopFilter(Record, frozen=True):
    """The loop filter of an engine. Without anything it takes everything."""

    namespaces: tuple[str, ...] = ()
    tag: tuple[str, str] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it takes everything."""
        return not self.namespaces and self.tag is None

    def takes(self, thing: Execution | FlowRow) -> bool:
        """Whether an execution or a flow is among it; all parts must agree."""
        if self.namespaces and thing.namespace not in self.namespaces:
            return False
        return self.tag is None or thing.tags.get(self.tag[0]) == self.tag[1]
