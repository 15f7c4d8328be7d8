"""A network that loses answers: of what may be asked again, as a proxy that cuts or truncates does.

FF_THROUGH=lossy puts every engine of the suites behind a server, a real socket and this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random

from flowfabric.api import wire
from flowfabric.api.operation import OPERATIONS, Kind
from flowfabric.client.engine import _READ_AGAIN
from flowfabric.client.transport import AiohttpTransport, NoAnswer, NotSent, Reply
from flowfabric.errors import FlowFabricError

_LOST = 0.15  # of the answers
_UNSENT = 0.05  # of the requests
_DELAY_S = 0.002  # at most, each way


class LossyTransport(AiohttpTransport):
    """Every request of its own reaches the server, and some answers do not come back."""

    def __init__(self, url: str, seed: int = 1) -> None:
        super().__init__(url)
        self._random = Random(seed)
        self.lost = 0

    async def send(
        self, method: str, path: str, *, body: bytes, headers: Mapping[str, str], timeout_s: float
    ) -> Reply:
        await asyncio.sleep(self._random.random() * _DELAY_S)
        if path == "/v1/commands" and b"renew" not in body and self._random.random() < _UNSENT:
            raise NotSent("the network is down")
        reply = await super().send(method, path, body=body, headers=headers, timeout_s=timeout_s)
        await asyncio.sleep(self._random.random() * _DELAY_S)
        if _may_be_lost(path, body) and self._random.random() < _LOST:
            self.lost += 1
            raise NoAnswer("the answer was cut off")
        return reply


def _may_be_lost(path: str, body: bytes) -> bool:
    """Whether the client asks again and is answered the same: others raise `OutcomeUnknown`."""
    if path != "/v1/commands":
        return False
    sent = wire.decode_requests(body)
    if len(sent) != 1:
        return False
    ((name, each),) = sent
    operation = OPERATIONS[name]
    if name == "renew":  # a worker tries again by itself
        return False
    if operation.kind is Kind.READ or name in _READ_AGAIN:
        return True
    if operation.kind is not Kind.WRITE:
        return False
    try:  # the repetition of a submit is answered as one, which these suites do not expect
        return getattr(wire.decode_request(name, each), "handle", None) is not None
    except FlowFabricError:
        return False
