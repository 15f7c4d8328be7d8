"""Words and values that callers in this process may also give in another form.

A type checker sees both forms; on a wire there is one. Each operation checks what it was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flowfabric.model.attempt import FailureClass
from flowfabric.model.budget import EnforcementMode, HardAction, ScopeType, SoftAction
from flowfabric.model.flow import CancellationPolicy, FlowStatus
from flowfabric.model.policy import ExecutionPolicy
from flowfabric.model.route import LaneState
from flowfabric.model.state import BlockingReason

if TYPE_CHECKING:
    BlockingReasonGiven = BlockingReason | str
    CancellationPolicyGiven = CancellationPolicy | str
    EnforcementModeGiven = EnforcementMode | str
    FailureClassGiven = FailureClass | str
    FlowStatusGiven = FlowStatus | str
    HardActionGiven = HardAction | str
    LaneStateGiven = LaneState | str
    PolicyGiven = ExecutionPolicy | Mapping[str, Any]
    ScopeTypeGiven = ScopeType | str
    SoftActionGiven = SoftAction | str
else:
    BlockingReasonGiven = BlockingReason
    CancellationPolicyGiven = CancellationPolicy
    EnforcementModeGiven = EnforcementMode
    FailureClassGiven = FailureClass
    FlowStatusGiven = FlowStatus
    HardActionGiven = HardAction
    LaneStateGiven = LaneState
    PolicyGiven = ExecutionPolicy
    ScopeTypeGiven = ScopeType
    SoftActionGiven = SoftAction
