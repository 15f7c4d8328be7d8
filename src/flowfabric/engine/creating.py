"""Operations that record new work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowfabric import limits
from flowfabric.engine.core import EngineCore
from flowfabric.engine.requests import NewExecution, to_create
from flowfabric.engine.view import Effects
from flowfabric.errors import FlowFabricError, InvalidInput
from flowfabric.ids import member_ids, new_execution_id, new_execution_ids
from flowfabric.kernel.create import CreateExecution
from flowfabric.kernel.decision import Refused
from flowfabric.model.checks import check_list, check_uuid
from flowfabric.model.results import CreateResult
from flowfabric.stores.base import Transaction


class Creating(EngineCore):
    """create_execution and its bulk and transactional forms."""

    async def create_execution(self, *, execution_kind: str, **fields: Any) -> CreateResult:
        """Record one execution; the fields are those of `NewExecution`.

        >>> await engine.create_execution(execution_kind="brief")  # doctest: +SKIP
        Created(execution_id='{fp:7}:…', public_state=<PublicState.WAITING: 'waiting'>)

        A repeated idempotency key answers `Duplicate` with the first execution's id; other content
        under the key is an `IdempotencyConflict`.
        """
        request = _request({"execution_kind": execution_kind, **fields})
        command = to_create(request, self.config, self._new_id(request))
        await self.ensure_known((command,))
        result: CreateResult = await self.execute(command)
        return result

    async def create_executions(self, requests: Sequence[NewExecution]) -> list[CreateResult]:
        """Record thousands in one transaction: all of them or, if one is refused, none."""
        commands = self._checked(requests)
        await self.ensure_known(commands)

        async def work(tx: Transaction) -> tuple[list[Any], Effects]:
            replies, effects = await self.fold(tx, commands)
            _raise_first_refusal(replies)
            return replies, effects

        replies, effects = await self.transact(work)
        self.publish(effects)
        return replies

    async def create_executions_in(
        self, connection: Any, requests: Sequence[NewExecution]
    ) -> list[CreateResult]:
        """Record executions inside the caller's own open Postgres transaction.

        They exist when, and only if, the caller commits, and waiting workers are told then. The
        connection is one of asyncpg, psycopg 3, SQLAlchemy 2 or Django. A refusal leaves the
        transaction as it was.
        """
        commands = self._checked(requests)
        return await self.execute_in(connection, commands, commands, _raise_first_refusal)

    def _new_id(self, request: NewExecution) -> str:
        flow_id, partitions = request.colocate_with, self.store.partitions
        if flow_id is None:
            return new_execution_id(partitions)
        return member_ids(check_uuid(flow_id, field="colocate_with"), 1, partitions)[0]

    def _checked(self, requests: Sequence[NewExecution]) -> list[CreateExecution]:
        requests = check_list(requests, field="requests")
        if len(requests) > limits.CREATE_MAX:
            raise InvalidInput(
                f"requests: {len(requests)} is over the limit {limits.CREATE_MAX}",
                field="requests",
            )
        commands = []
        ids = new_execution_ids(len(requests), self.store.partitions)
        for index, (given, execution_id) in enumerate(zip(requests, ids, strict=True)):
            try:
                request = _request(given)
                if request.colocate_with is not None:
                    execution_id = self._new_id(request)  # noqa: PLW2901 - the other is not used
                commands.append(to_create(request, self.config, execution_id))
            except FlowFabricError as error:
                error.detail = f"requests[{index}]: {error.detail}"
                error.fields["index"] = index
                raise
        return commands


def _request(given: NewExecution | dict[str, Any]) -> NewExecution:
    if isinstance(given, NewExecution):
        return given
    if not isinstance(given, dict):
        raise InvalidInput("expected a NewExecution or a dict of its fields", field="requests")
    unknown = set(given) - set(NewExecution.__struct_fields__)
    if unknown:
        name = min(unknown)
        raise InvalidInput(f"{name}: unknown field", field=name)
    if given.get("execution_kind") is None:
        raise InvalidInput("execution_kind: is required", field="execution_kind")
    present = {name: value for name, value in given.items() if value is not None}
    return NewExecution(**present)


def _raise_first_refusal(replies: Sequence[Any]) -> None:
    for index, reply in enumerate(replies):
        if isinstance(reply, Refused):
            error = reply.to_error()
            error.detail = f"requests[{index}]: {error.detail}"
            error.fields["index"] = index
            raise error
