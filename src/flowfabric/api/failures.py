"""Failures in groups of those that are alike: what is broken, since when, and how much of it.

Alike are failures of one category, one class of exception and one innermost function of the user's
own code; where no worker tells these, of one category and one shape of the message. The background
loop counts them every few seconds, as it counts minute statistics.
"""

from __future__ import annotations

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, UnsafeRequest, operation
from flowfabric.api.page import Page
from flowfabric.api.words import StepGiven
from flowfabric.errors import InvalidCursor, NotFound
from flowfabric.model.failure import FailureGroup, FailureMarked, FailureTold
from flowfabric.model.statistic import Step


@operation("list_failure_groups", Kind.READ, Scope.READ, errors=(InvalidCursor,))
class ListFailureGroups(Request[Page[FailureGroup]], frozen=True, kw_only=True):
    """Groups of a tenant with a failure in the last `last_ms`, a day at most, the latest first.

    `by`: how their counts are told, by hour or in one; by minute for two hours at most.
    `execution_kind`: those that were seen with it; a page of them may be short although another
    follows. `with_known`: also those that a person has marked as known. `limit`: 500 at most.
    """

    namespace: str | None = None
    last_ms: int = limits.FAILURE_WINDOW_MS
    by: StepGiven = Step.HOUR
    execution_kind: str | None = None
    with_known: bool = False
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("describe_failure_group", Kind.READ, Scope.READ)
class DescribeFailureGroup(Request[FailureGroup | None], frozen=True, kw_only=True):
    """One group, with what happened in the last `last_ms`; None after 30 days without any."""

    fingerprint: str
    namespace: str | None = None
    last_ms: int = limits.FAILURE_WINDOW_MS
    by: StepGiven = Step.HOUR


@operation("describe_failure", Kind.READ, Scope.READ, errors=(NotFound,))
class DescribeFailure(Request[FailureTold | None], frozen=True, kw_only=True):
    """The latest failure of an execution, with its group: how many others have failed alike.

    None where it has not failed, or so long ago that nothing tells of it any more.
    """

    execution_id: str


@operation("mark_failure_group", Kind.WRITE, Scope.OPERATE, errors=(NotFound,))
class MarkFailureGroup(UnsafeRequest[FailureMarked], frozen=True, kw_only=True):
    """Say until when a group is known and left out of listings; None: it is not known.

    The instant is 90 days away at most. What fails meanwhile is counted as before.
    """

    fingerprint: str
    known_until: int | None = None
    namespace: str | None = None
    reason: str = ""
