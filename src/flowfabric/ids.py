"""The only module that reads randomness: it mints every id.

An execution id is `{fp:N}:<uuid>`. The UUID is version 7, so ids sort by creation and inserts
stay local in an index; N is the partition, a hash of the UUID (of the flow's for its members).
"""

from __future__ import annotations

import binascii
import os
import random
import threading

from flowfabric.clock import SystemClock
from flowfabric.limits import FLOW_PARTITIONS_DEFAULT

_clock = SystemClock()
_lock = threading.Lock()
_last_ms = 0
_sequence = 0


def new_uuid7() -> str:
    """A time-ordered UUID; ids minted by one process sort strictly in order of minting."""
    global _last_ms, _sequence  # noqa: PLW0603 - one counter per process keeps ids ordered
    with _lock:
        now = _clock.now_ms()
        if now > _last_ms:
            _last_ms, _sequence = now, 0
        else:
            _sequence += 1
            if _sequence > 0xFFF:
                _last_ms, _sequence = _last_ms + 1, 0
        milliseconds, sequence = _last_ms, _sequence
    tail = int.from_bytes(os.urandom(8)) & 0x3FFFFFFFFFFFFFFF | 0x8000000000000000
    text = f"{milliseconds:012x}7{sequence:03x}{tail:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def partition_of(uuid_text: str, partitions: int = FLOW_PARTITIONS_DEFAULT) -> int:
    """The partition a UUID hashes to: CRC-16/XMODEM of its 16 bytes, modulo the count."""
    return binascii.crc_hqx(bytes.fromhex(uuid_text.replace("-", "")), 0) % partitions


def new_execution_id(partitions: int = FLOW_PARTITIONS_DEFAULT) -> str:
    """Mint the id of an execution that belongs to no flow."""
    text = new_uuid7()
    return f"{{fp:{partition_of(text, partitions)}}}:{text}"


def new_secret_ids(count: int) -> list[str]:
    """Unguessable ids: lease ids are secrets, an epoch alone could be guessed."""
    text = os.urandom(16 * count).hex()
    return [_uuid4(text[start : start + 32]) for start in range(0, 32 * count, 32)]


def new_secret_id() -> str:
    """One unguessable id."""
    return _uuid4(os.urandom(16).hex())


def _uuid4(text: str) -> str:
    """32 random hex digits as a UUID of version 4, spelled out because claims mint thousands."""
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


def new_name(prefix: str) -> str:
    """A short unique name for a process or a connection."""
    return f"{prefix}-{os.urandom(5).hex()}"


def jitter() -> float:
    """A number in [0, 1): handed to the kernel, which reads no randomness itself."""
    return random.random()  # noqa: S311 - spreads load, protects nothing
