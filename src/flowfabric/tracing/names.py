"""The names of attributes, in one place: these conventions are still in development."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SYSTEM: Final = "messaging.system"
THIS_SYSTEM: Final = "flowfabric"
LANE: Final = "messaging.destination.name"
OPERATION: Final = "messaging.operation.type"
SEND: Final = "send"
PROCESS: Final = "process"
EXECUTION: Final = "messaging.message.id"
COUNT: Final = "messaging.batch.message_count"

KIND: Final = "flowfabric.kind"
ATTEMPT: Final = "flowfabric.attempt"  # counted from 1, as people see it
EPOCH: Final = "flowfabric.epoch"
FLOW: Final = "flowfabric.flow"
RETRY: Final = "flowfabric.retry"
OUTCOME: Final = "flowfabric.outcome"
ERROR: Final = "error.type"

# Usage of a model, by the dimension of the budget that it is spent from.
USAGE: Final[Mapping[str, str]] = {
    "tokens": "gen_ai.usage.total_tokens",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
}
