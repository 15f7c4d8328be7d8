"""How much work stands where, for metrics. The numbers are of all tenants together."""

from __future__ import annotations

from flowfabric.api.operation import Kind, Request, Scope, operation
from flowfabric.model.gauges import Gauges


@operation("read_gauges", Kind.READ, Scope.METRICS, is_local=True)
class ReadGauges(Request[Gauges], frozen=True, kw_only=True):
    """Ready, running and suspended work by lane, live workers, and what no worker can run.

    It costs a bounded look into indexes, however much has ended. It is asked for beside the
    store; a server shows the same numbers as metrics.
    """
