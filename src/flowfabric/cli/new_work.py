"""The options of new executions: how they are placed, labelled and limited."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterable
from typing import Any, Final

from flowfabric.cli import values
from flowfabric.cli.exits import usage
from flowfabric.cli.grammar import FfParser
from flowfabric.model.policy import DEFAULT_POLICY, ExecutionPolicy, RetryPolicy
from flowfabric.model.record import replace

LANE: Final = "default"
_FIELDS: Final = {
    "lane": "lane_id",
    "priority": "priority",
    "delay": "delay_ms",
    "quota": "quota_policy_id",
    "concurrency_key": "concurrency_key",
}


def add_work_options(parser: FfParser) -> None:
    """The same for an execution and for those that a schedule starts."""
    parser.add_argument("--priority", type=values.integer, metavar="N", help="higher runs sooner")
    parser.add_argument("--lane", metavar="LANE", help=f"default: {LANE}")
    parser.add_argument(
        "--tag", action="append", type=values.tag, default=[], metavar="K=V", help="repeat"
    )
    parser.add_argument(
        "--needs", action="append", default=[], metavar="WORD", help="needed capability (repeat)"
    )
    parser.add_argument(
        "--budget", action="append", default=[], metavar="NAME", help="spends from it (repeat)"
    )
    parser.add_argument(
        "--mailbox", action="append", default=[], metavar="NAME", help="takes messages (repeat)"
    )
    parser.add_argument("--quota", metavar="NAME", help="admitted under this quota")
    parser.add_argument(
        "--concurrency-key", metavar="KEY", help="the quota's limits hold for each key by itself"
    )
    parser.add_argument(
        "--retries", type=values.number, metavar="N", help="tries after the first fails"
    )
    parser.add_argument(
        "--start-within", type=values.duration_ms, metavar="TIME", help="else it expires"
    )
    parser.add_argument(
        "--deadline",
        type=values.duration_ms,
        metavar="TIME",
        help="expires so long after its submit, wherever it is",
    )


def payload_of(arguments: Iterable[tuple[str, Any]]) -> bytes:
    """Named arguments as JSON."""
    named: dict[str, Any] = {}
    for name, value in arguments:
        if name in named:
            raise usage(f"argument {name} is given twice", advice="give each argument once")
        named[name] = value
    return json.dumps(named, ensure_ascii=False, separators=(",", ":")).encode()


def fields_of_work(given: Namespace) -> dict[str, Any]:
    """The fields of a request that these options name; the others stay as they are."""
    named = {field: getattr(given, name, None) for name, field in _FIELDS.items()}
    found = {field: value for field, value in named.items() if value is not None}
    if given.tag:
        found["tags"] = dict(given.tag)
    if given.budget:
        found["budget_ids"] = tuple(given.budget)
    if given.mailbox:
        found["mailboxes"] = dict.fromkeys(given.mailbox)  # of any JSON: types are the task's
    return found


def policy_of_work(given: Namespace, known: ExecutionPolicy = DEFAULT_POLICY) -> ExecutionPolicy:
    """The policy that these options say, and the other one for the rest."""
    policy = known
    if given.retries is not None:
        retries = RetryPolicy(max_retries=given.retries) if given.retries else None
        policy = replace(policy, retry_policy=retries)
    times = {
        "start_within_ms": given.start_within,
        "execution_deadline_ms": given.deadline,
    }
    named = {name: value for name, value in times.items() if value is not None}
    if named:
        policy = replace(policy, timeout_policy=replace(policy.timeout_policy, **named))
    if given.needs:
        needs = tuple(given.needs)
        routing = replace(policy.routing_requirements, required_capabilities=needs)
        policy = replace(policy, routing_requirements=routing)
    return policy
