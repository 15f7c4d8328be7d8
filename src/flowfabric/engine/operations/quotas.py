"""Quotas: policies, admissions for external schedulers, usage."""

from __future__ import annotations

from flowfabric import ids, limits
from flowfabric.api import quotas as api
from flowfabric.api.page import Page, at_name
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.limit_looks import present_windows
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers, commands
from flowfabric.errors import NotFound
from flowfabric.kernel.limit.quota import CheckAdmission, ReleaseAdmission
from flowfabric.kernel.limit.quota_policy import CreateQuota, UpdateQuota
from flowfabric.model.bounds import DEFAULT_DIMENSION
from flowfabric.model.checks import check_integer, check_name
from flowfabric.model.limit_checks import (
    check_owner,
    check_quota_limit,
    check_revision,
    check_window,
)
from flowfabric.model.quota import AdmissionOutcome, QuotaPolicy, QuotaStatus
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import GATES, QUOTAS

_QUOTAS = Listing("list_quota_policies", at_name)

# --- policies ------------------------------------------------------------------------------------


@commands(api.CreateQuotaPolicy)
def create_quota_policy(machine: Machine, request: api.CreateQuotaPolicy) -> CreateQuota:
    """Put a policy in force."""
    return CreateQuota(
        quota_policy_id=check_name(request.quota_policy_id, field="quota_policy_id"),
        window_seconds=check_window(request.window_seconds),
        max_requests_per_window=check_quota_limit(
            request.max_requests_per_window, field="max_requests_per_window"
        ),
        max_concurrent=check_quota_limit(request.max_concurrent, field="max_concurrent"),
        jitter_ms=_jitter(request.jitter_ms),
        namespace=check_owner(request.namespace),
    )


@commands(api.UpdateQuotaPolicy)
def update_quota_policy(machine: Machine, request: api.UpdateQuotaPolicy) -> UpdateQuota:
    """Change the named fields."""
    starts, places = request.max_requests_per_window, request.max_concurrent
    if starts is not None:
        starts = check_quota_limit(starts, field="max_requests_per_window")
    if places is not None:
        places = check_quota_limit(places, field="max_concurrent")
    window, jitter = request.window_seconds, request.jitter_ms
    return UpdateQuota(
        quota_policy_id=check_name(request.quota_policy_id, field="quota_policy_id"),
        window_seconds=None if window is None else check_window(window),
        max_requests_per_window=starts,
        max_concurrent=places,
        jitter_ms=None if jitter is None else _jitter(jitter),
        expected_revision=check_revision(request.expected_revision),
    )


# --- admissions ----------------------------------------------------------------------------------


@answers(api.CheckAdmission)
async def check_admission(machine: Machine, request: api.CheckAdmission) -> AdmissionOutcome:
    """Reserve a slot; the duration may be the policy's."""
    name = check_name(request.quota_policy_id, field="quota_policy_id")
    reservation_ms = request.reservation_ms
    if reservation_ms is None:
        policy = await _policy(machine, name)
        if policy is None:
            raise NotFound(f"quota policy {name}", entity="quota_policy")
        reservation_ms = policy.window_ms
    check_integer(reservation_ms, field="reservation_ms", least=1, most=limits.DURATION_MS_MAX)
    command = CheckAdmission(
        quota_policy_id=name,
        dimension=_dimension(request.dimension),
        execution_id=machine.check_id(request.execution_id),
        reservation_ms=reservation_ms,
        jitter=ids.jitter(),
    )
    return await machine.execute(command)


@commands(api.ReleaseAdmission)
def release_admission(machine: Machine, request: api.ReleaseAdmission) -> ReleaseAdmission:
    """Give the slot back."""
    return ReleaseAdmission(
        quota_policy_id=check_name(request.quota_policy_id, field="quota_policy_id"),
        dimension=_dimension(request.dimension),
        execution_id=machine.check_id(request.execution_id),
    )


# --- reading -------------------------------------------------------------------------------------


@answers(api.ReadQuotaPolicyLimits)
async def read_quota_policy_limits(
    machine: Machine, request: api.ReadQuotaPolicyLimits
) -> QuotaPolicy | None:
    """The policy, or None."""
    name = check_name(request.quota_policy_id, field="quota_policy_id")
    return await _policy(machine, name)


@answers(api.GetQuotaStatus)
async def get_quota_status(machine: Machine, request: api.GetQuotaStatus) -> QuotaStatus:
    """The policy, and its gates with their current counts."""
    key = (check_name(request.quota_policy_id, field="quota_policy_id"),)

    async def work(reader: Reader) -> QuotaStatus:
        policy = (await reader.peek_rows(QUOTAS, [key])).get(key)
        if policy is None:
            raise NotFound(f"quota policy {key[0]}", entity="quota_policy")
        gates = await reader.peek_rows(GATES, [key])
        ordered = [gates[each] for each in sorted(gates)]
        return QuotaStatus(policy, tuple(await present_windows(policy, ordered, reader)))

    return await machine.read(work)


@answers(api.ListQuotaPolicies)
async def list_quota_policies(
    machine: Machine, request: api.ListQuotaPolicies
) -> Page[QuotaPolicy]:
    """One page, by id."""
    limit, after = check_limit(request.limit), _QUOTAS.place(request.cursor)
    page = Search(by_key(QUOTAS), after=after, limit=limit + 1, skips_corrupt=True)
    rows = await machine.read(lambda reader: reader.search(page))
    return _QUOTAS.page(
        rows, limit, place_of=lambda row: (row.quota_policy_id,), show=lambda row: row
    )


async def _policy(machine: Machine, name: str) -> QuotaPolicy | None:
    """The policy of a checked name, as committed."""
    found = await machine.read(lambda reader: reader.peek_rows(QUOTAS, [(name,)]))
    return found.get((name,))


# --- checks --------------------------------------------------------------------------------------


def _dimension(value: str) -> str:
    return DEFAULT_DIMENSION if value == "" else check_name(value, field="dimension")


def _jitter(value: int) -> int:
    return check_integer(value, field="jitter_ms", least=0, most=limits.QUOTA_JITTER_MS_MAX)
