"""How much work stands where, for metrics. The numbers are of all tenants together."""

from __future__ import annotations

from flowfabric.api.operation import Kind, Request, Scope, operation
from flowfabric.model.gauges import Gauges


@operation("read_gauges", Kind.READ, Scope.READ)
class ReadGauges(Request[Gauges], frozen=True, kw_only=True):
    """Ready, running and suspended work by lane, live workers, and what no worker can run.

    It costs a bounded look into indexes, however much has ended. A server shows the same
    numbers as metrics, which it reads once in ten seconds.
    """
