"""What a member is handed by the members it waited for: their results become its input."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from flowfabric import limits
from flowfabric.engine.unit.flows.graph import Graph
from flowfabric.kernel.flow.inputs import (
    Passed,
    Unfit,
    compose,
    handing_on,
    named_alike,
    refuse_sizes,
)
from flowfabric.model.attempt import Attempt
from flowfabric.model.execution import Execution
from flowfabric.model.flow import EdgeRow


class Inputs:
    """Composes the inputs of members whose joins are met."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._tx, self._view = graph.tx, graph.view

    async def hand_on(
        self, children: Sequence[Execution], late: Collection[str] = ()
    ) -> dict[str, Unfit]:
        """Give children the results that their edges pass on, without those of late edges. Children
        whose input would be too large or too deep keep the one they have, and are returned."""
        if not children:
            return {}
        ids = [each.execution_id for each in children]
        passing: defaultdict[str, list[EdgeRow]] = defaultdict(list)
        for edge in await self._graph.edges.leading_to(ids):
            if edge.data_passing_ref:
                passing[edge.downstream_execution_id].append(edge)
        chosen = {key: handing_on(passing[key], late) for key in ids}
        met = [edge for edges in chosen.values() for edge in edges]
        await self._graph.load_members((e.flow_id, e.upstream_execution_id) for e in met)
        excess = await self._oversized(chosen)
        wanted = (e.upstream_execution_id for e in met if e.downstream_execution_id not in excess)
        results = await self._results(sorted(set(wanted)))
        bodies = await self._graph.overlay.bodies(ids)
        for key in [each for each in ids if each not in excess]:
            passed = [
                self._passed(edge, results.get(edge.upstream_execution_id)) for edge in chosen[key]
            ]
            body = bodies[key]
            limit = self._view.at.payload_bytes_max
            named = named_alike(passed, len(passing[key]))
            composed = compose(body.payload, body.payload_encoding, named, limit)
            if isinstance(composed, Unfit):
                excess[key] = composed
            elif composed is not None:
                self._view.changes.payloads[key] = composed
        return excess

    async def _oversized(self, chosen: Mapping[str, Sequence[EdgeRow]]) -> dict[str, Unfit]:
        """Children whose combined input exceeds the limit, judged by stored sizes so that large
        results are not loaded. Where there are few results, their sizes are not asked for."""
        here = {each.execution_id for each in self._view.changes.attempts}
        edges = [edge for its_edges in chosen.values() for edge in its_edges]
        stored = sorted({edge.upstream_execution_id for edge in edges} - here)
        if len(stored) <= limits.RESULTS_UNSIZED_MAX:
            return {}
        sizes = await self._tx.result_sizes(stored)
        found: dict[str, Unfit] = {}
        for key, its_edges in chosen.items():
            named = {self._passed(e, None).key: e.upstream_execution_id for e in its_edges}
            of_key = (sizes.get(each, 0) for each in named.values())
            if excess := refuse_sizes(of_key, self._view.at.payload_bytes_max):
                found[key] = excess
        return found

    def _passed(self, edge: EdgeRow, attempt: Attempt | None) -> Passed:
        member = self._graph.member(edge.flow_id, edge.upstream_execution_id)
        name = (member.node_name if member else "") or edge.upstream_execution_id
        result = None if attempt is None else attempt.result
        encoding = None if attempt is None else attempt.result_encoding
        return Passed(edge.input_name, name, result, encoding)

    async def _results(self, ids: Sequence[str]) -> dict[str, Attempt]:
        """The attempts by which executions succeeded: in this transaction, or before."""
        here = {each.execution_id: each for each in self._view.changes.attempts}
        missing = [key for key in ids if key not in here]
        found = await self._tx.results(missing) if missing else {}
        return {**found, **{key: here[key] for key in ids if key in here}}
