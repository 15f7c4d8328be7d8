"""What a test leaves open is that test's failure, not that of a later one."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from tests.support.transports import check


def test_a_socket_that_outlives_its_event_loop_is_the_failure_of_its_test() -> None:
    async def leave(end: socket.socket) -> Any:
        return (await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=end))[0]

    ours, theirs = socket.socketpair()
    with theirs:
        transport = asyncio.run(leave(ours))
        with pytest.raises(AssertionError, match="open connections: <_SelectorSocketTransport"):
            check()
        check()  # told once
        ours.close()
        transport._sock = None  # nothing is left for the garbage collector to complain of


def test_a_socket_that_is_closed_in_time_is_no_failure() -> None:
    async def close(end: socket.socket) -> None:
        writer = (await asyncio.open_connection(sock=end))[1]
        writer.close()
        await writer.wait_closed()

    ours, theirs = socket.socketpair()
    with theirs:
        asyncio.run(close(ours))
    check()
