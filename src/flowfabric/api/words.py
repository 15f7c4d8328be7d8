"""Words and values that callers in this process may also give in another form.

A type checker sees both forms; on a wire there is one. Each operation checks what it was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flowfabric.model.ask import LimitKind
from flowfabric.model.attempt import FailureClass
from flowfabric.model.budget import EnforcementMode, HardAction, ScopeType, SoftAction
from flowfabric.model.bulk import BulkAction, BulkState
from flowfabric.model.dead import Letter
from flowfabric.model.feed import EventKind
from flowfabric.model.flow import CancellationPolicy, FlowStatus
from flowfabric.model.policy import ExecutionPolicy
from flowfabric.model.route import LaneState
from flowfabric.model.state import BlockingReason
from flowfabric.model.statistic import Step
from flowfabric.model.stream import Visibility
from flowfabric.model.suspension import ReasonCode, RequestedBy, Token
from flowfabric.model.words import HeadFailure, OnConflict, TimeoutBehavior, UniqueWhile

if TYPE_CHECKING:
    BlockingReasonGiven = BlockingReason | str
    BulkActionGiven = BulkAction | str
    BulkStateGiven = BulkState | str
    CancellationPolicyGiven = CancellationPolicy | str
    EnforcementModeGiven = EnforcementMode | str
    EventKindGiven = EventKind | str
    FailureClassGiven = FailureClass | str
    FlowStatusGiven = FlowStatus | str
    HardActionGiven = HardAction | str
    HeadFailureGiven = HeadFailure | str
    LaneStateGiven = LaneState | str
    LetterGiven = Letter | str
    OnConflictGiven = OnConflict | str
    LimitKindGiven = LimitKind | str
    PolicyGiven = ExecutionPolicy | Mapping[str, Any]
    ReasonCodeGiven = ReasonCode | str
    RequestedByGiven = RequestedBy | str
    ScopeTypeGiven = ScopeType | str
    SoftActionGiven = SoftAction | str
    StepGiven = Step | str
    TimeoutBehaviorGiven = TimeoutBehavior | str
    TokenGiven = Token | str
    UniqueWhileGiven = UniqueWhile | str
    VisibilityGiven = Visibility | str
else:
    BlockingReasonGiven = str  # a word that is no reason has an error of its own
    BulkActionGiven = BulkAction
    BulkStateGiven = BulkState
    CancellationPolicyGiven = CancellationPolicy
    EnforcementModeGiven = EnforcementMode
    EventKindGiven = EventKind
    FailureClassGiven = FailureClass
    FlowStatusGiven = FlowStatus
    HardActionGiven = HardAction
    HeadFailureGiven = HeadFailure
    LaneStateGiven = LaneState
    LetterGiven = Letter
    OnConflictGiven = OnConflict
    LimitKindGiven = LimitKind
    PolicyGiven = ExecutionPolicy
    ReasonCodeGiven = ReasonCode
    RequestedByGiven = RequestedBy
    ScopeTypeGiven = ScopeType
    SoftActionGiven = SoftAction
    StepGiven = Step
    TimeoutBehaviorGiven = TimeoutBehavior
    TokenGiven = Token
    UniqueWhileGiven = UniqueWhile
    VisibilityGiven = Visibility
