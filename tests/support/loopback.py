"""An engine behind a wire of zero length: every request, answer and error crosses it as bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from flowfabric.api import wire
from flowfabric.api.backend import EngineBackend, LocalWorker
from flowfabric.api.hints import Bell
from flowfabric.api.operation import Operation, Request
from flowfabric.assemble import open_engine
from flowfabric.engine.engine import Engine
from flowfabric.errors import FlowFabricError
from flowfabric.metrics.registry import Registry
from flowfabric.model.checks import check_list
from flowfabric.model.results import BackendCapabilities

R = TypeVar("R")


class Loopback(EngineBackend):
    """What is no operation (`tick`, `dump` …) goes straight to the engine behind it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    async def call(self, request: Request[R]) -> R:
        """There and back."""
        operation = wire.operation_of(request)
        if operation.is_local:
            return await self.engine.call(request)
        sent = wire.decode_request(operation.name, wire.encode_request(request))
        try:
            reply = await self.engine.call(sent)
        except FlowFabricError as error:
            raise _told(operation, error) from None
        received: R = _back(operation, reply)
        return received

    async def call_many(self, requests: Sequence[Request[R]]) -> list[R | FlowFabricError]:
        """There and back, together."""
        answers: list[Any] = []
        sent: list[Request[Any]] = []
        for request in check_list(requests, field="requests"):
            try:
                operation = wire.operation_of(request)
                sent.append(wire.decode_request(operation.name, wire.encode_request(request)))
                answers.append(operation)
            except FlowFabricError as error:
                answers.append(error)
        replies = iter(await self.engine.call_many(sent))
        return [
            each if isinstance(each, FlowFabricError) else _back(each, next(replies))
            for each in answers
        ]

    def listen(self, topics: Iterable[str]) -> AbstractContextManager[Bell]:
        """As the engine."""
        return self.engine.listen(topics)

    def follow(self, told: Callable[[Mapping[str, int]], None]) -> Callable[[], None]:
        """As the engine."""
        return self.engine.follow(told)

    def present(self, worker: LocalWorker) -> AbstractContextManager[None]:
        """As the engine."""
        return self.engine.present(worker)

    def measure(self, registry: Registry) -> None:
        """As the engine."""
        self.engine.measure(registry)

    def again(self) -> EngineBackend:
        """Its twin, behind a wire as well."""
        return Loopback(self.engine.again())

    @property
    def home_namespace(self) -> str:
        """As the engine."""
        return self.engine.home_namespace

    def at_home_in(self, namespace: str) -> EngineBackend:
        """Behind a wire as well."""
        return Loopback(self.engine.at_home_in(namespace))

    def backend_label(self) -> str:
        """As the engine."""
        return self.engine.backend_label()

    def capabilities(self) -> BackendCapabilities:
        """As the engine."""
        return self.engine.capabilities()

    async def start(self, *, migrate: bool = True) -> None:
        """Start the engine."""
        await self.engine.start(migrate=migrate)

    async def close(self) -> None:
        """Close the engine."""
        await self.engine.close()


def open_loopback(url: str, **options: Any) -> EngineBackend:
    """As `assemble.open_engine`, behind a wire."""
    return Loopback(open_engine(url, **options))


def open_memory_behind_a_wire(url: str, **options: Any) -> EngineBackend:
    """As `assemble.open_engine`, and behind a wire if it is in memory: one store is enough to show
    what cannot cross one."""
    is_memory = isinstance(url, str) and url.startswith("memory:")
    return (open_loopback if is_memory else open_engine)(url, **options)


def _back(operation: Operation, reply: Any) -> Any:
    if isinstance(reply, FlowFabricError):
        return _told(operation, reply)
    for each in reply if isinstance(reply, list) else ():
        if isinstance(each, FlowFabricError):
            _told(operation, each)
    return wire.decode_reply(operation, wire.encode_reply(reply))


def _told(operation: Operation, error: FlowFabricError) -> FlowFabricError:
    """The error behind the wire; one that the register does not announce is a fault."""
    if not operation.may_raise(error):
        raise AssertionError(f"{operation.name} does not declare {type(error).__name__}") from error
    return wire.decode_error(wire.encode_error(error))
