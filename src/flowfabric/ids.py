"""The only module that reads randomness: it mints every id.

An execution id is `{fp:N}:<uuid>`. The UUID is version 7, so ids sort by creation and inserts
stay local in an index; N is the partition, a hash of the UUID (of the flow's for its members).
"""

from __future__ import annotations

import binascii
import hashlib
import os
import random
import threading
import uuid

from flowfabric.clock import SystemClock
from flowfabric.limits import FLOW_PARTITIONS_DEFAULT

_clock = SystemClock()
_lock = threading.Lock()
_last_ms = 0
_sequence = 0
_SEQUENCE_MAX = 0xFFF
_NUMBERS = [f"{number:03x}-" for number in range(_SEQUENCE_MAX + 1)]
_WITH_VARIANT = bytes(0x80 | byte & 0x3F for byte in range(256))
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def _renew_lock() -> None:
    """In a forked child: a thread that minted at that moment does not exist here."""
    global _lock  # noqa: PLW0603 - there is one counter, and so one lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def new_uuid7s(count: int) -> list[str]:
    """Time-ordered UUIDs; those minted by one process sort strictly in order of minting."""
    noise = bytearray(os.urandom(8 * count))
    noise[::8] = noise[::8].translate(_WITH_VARIANT)
    tails = noise.hex()
    return [
        f"{head}{tails[at : at + 4]}-{tails[at + 4 : at + 16]}"
        for head, at in zip(_heads(count), range(0, 16 * count, 16), strict=True)
    ]


def _heads(count: int) -> list[str]:
    """The time and the number within it, for so many ids in a row."""
    global _last_ms, _sequence  # noqa: PLW0603 - one counter per process keeps ids ordered
    heads: list[str] = []
    with _lock:
        now = _clock.now_ms()
        if now > _last_ms:
            _last_ms, _sequence = now, -1
        while len(heads) < count:
            if _sequence == _SEQUENCE_MAX:
                _last_ms, _sequence = _last_ms + 1, -1
            first = _sequence + 1
            _sequence = min(_sequence + count - len(heads), _SEQUENCE_MAX)
            time = f"{_last_ms:012x}"
            start = f"{time[:8]}-{time[8:]}-7"
            heads += [start + number for number in _NUMBERS[first : _sequence + 1]]
    return heads


def partition_of(uuid_text: str, partitions: int = FLOW_PARTITIONS_DEFAULT) -> int:
    """The partition a UUID hashes to: CRC-16/XMODEM of its 16 bytes, modulo the count."""
    return binascii.crc_hqx(bytes.fromhex(uuid_text.replace("-", "")), 0) % partitions


def new_execution_ids(count: int, partitions: int = FLOW_PARTITIONS_DEFAULT) -> list[str]:
    """Mint the ids of executions outside any flow."""
    return [f"{{fp:{partition_of(text, partitions)}}}:{text}" for text in new_uuid7s(count)]


def member_ids(flow_id: str, count: int, partitions: int = FLOW_PARTITIONS_DEFAULT) -> list[str]:
    """Mint the ids of executions of a flow: they share its partition."""
    number = partition_of(flow_id, partitions)
    return [f"{{fp:{number}}}:{text}" for text in new_uuid7s(count)]


def new_execution_id(partitions: int = FLOW_PARTITIONS_DEFAULT) -> str:
    """Mint one."""
    return new_execution_ids(1, partitions)[0]


def new_secret_ids(count: int) -> list[str]:
    """Unguessable ids: lease ids are secrets, an epoch alone could be guessed."""
    text = os.urandom(16 * count).hex()
    return [_uuid4(text[start : start + 32]) for start in range(0, 32 * count, 32)]


def new_secret_id() -> str:
    """One unguessable id."""
    return _uuid4(os.urandom(16).hex())


def new_secret_bytes(count: int) -> bytes:
    """Unguessable bytes."""
    return os.urandom(count)


def _uuid4(text: str) -> str:
    """32 random hex digits as a UUID of version 4, spelled out because claims mint thousands."""
    variant = _VARIANT[text[16]]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


def derived_uuid(*parts: object) -> str:
    """The same UUID for the same parts; no secret."""
    text = "\n".join(map(str, parts))
    made = bytearray(hashlib.blake2b(text.encode(), digest_size=16).digest())
    made[6] = made[6] & 0x0F | 0x80  # version 8: made by a rule of our own
    made[8] = made[8] & 0x3F | 0x80
    return str(uuid.UUID(bytes=bytes(made)))


Random = random.Random  # numbers derived from a seed


def new_signing_secret() -> str:
    """A key of 256 bits, in hex."""
    return os.urandom(32).hex()


def new_name(prefix: str) -> str:
    """A short unique name for a process or a connection."""
    return f"{prefix}-{os.urandom(5).hex()}"


def jitter() -> float:
    """A number in [0, 1): passed to the kernel, which reads no randomness itself."""
    return random.random()  # noqa: S311 - spreads load, protects nothing
