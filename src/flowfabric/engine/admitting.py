"""Operations on quotas: policies, admissions for external schedulers, what is used."""

from __future__ import annotations

from flowfabric import ids, limits
from flowfabric.engine.bounds import present_windows
from flowfabric.engine.core import EngineCore
from flowfabric.errors import NotFound
from flowfabric.kernel.quota import CheckAdmission, CreateQuota, ReleaseAdmission, UpdateQuota
from flowfabric.model.bounds import DEFAULT_DIMENSION
from flowfabric.model.checks import check_integer, check_name, check_text
from flowfabric.model.limit_checks import check_quota_limit, check_window
from flowfabric.model.quota import (
    AdmissionOutcome,
    QuotaCreated,
    QuotaPolicy,
    QuotaStatus,
    QuotaUpdated,
    Released,
)
from flowfabric.model.results import AlreadySatisfied
from flowfabric.stores.base import Reader
from flowfabric.stores.tables import GATES, QUOTAS


class Admitting(EngineCore):
    """Quotas limit how many executions start and run at once; see docs/guides/limits.md."""

    async def create_quota_policy(
        self,
        *,
        quota_policy_id: str,
        window_seconds: int = 60,
        max_requests_per_window: int = 0,
        max_concurrent: int = 0,
        jitter_ms: int = 0,
    ) -> QuotaCreated | AlreadySatisfied:
        """Put a policy in force; 0 is no limit. Each concurrency key is counted by itself."""
        command = CreateQuota(
            check_name(quota_policy_id, field="quota_policy_id"),
            check_window(window_seconds),
            check_quota_limit(max_requests_per_window, field="max_requests_per_window"),
            check_quota_limit(max_concurrent, field="max_concurrent"),
            _jitter(jitter_ms),
        )
        reply: QuotaCreated | AlreadySatisfied = await self.execute(command)
        return reply

    async def update_quota_policy(
        self,
        *,
        quota_policy_id: str,
        window_seconds: int | None = None,
        max_requests_per_window: int | None = None,
        max_concurrent: int | None = None,
        jitter_ms: int | None = None,
    ) -> QuotaUpdated:
        """Change limits; what is not named stays. Whoever waits for room learns of it at once."""
        starts, places = max_requests_per_window, max_concurrent
        if starts is not None:
            starts = check_quota_limit(starts, field="max_requests_per_window")
        if places is not None:
            places = check_quota_limit(places, field="max_concurrent")
        command = UpdateQuota(
            check_name(quota_policy_id, field="quota_policy_id"),
            None if window_seconds is None else check_window(window_seconds),
            starts,
            places,
            None if jitter_ms is None else _jitter(jitter_ms),
        )
        reply: QuotaUpdated = await self.execute(command)
        return reply

    async def check_admission(
        self,
        *,
        quota_policy_id: str,
        execution_id: str,
        dimension: str = "",
        reservation_ms: int | None = None,
    ) -> AdmissionOutcome:
        """Ask for a place for an execution, as an external scheduler does before it grants.

        The place is reserved until the execution runs, is released, or `reservation_ms` are over
        (default: the policy's window). Once it runs, its end frees the place.
        """
        name = check_name(quota_policy_id, field="quota_policy_id")
        if reservation_ms is None:
            policy = await self.read_quota_policy_limits(quota_policy_id=name)
            if policy is None:
                raise NotFound(f"quota policy {name}", entity="quota_policy")
            reservation_ms = policy.window_ms
        check_integer(reservation_ms, field="reservation_ms", least=1, most=limits.DURATION_MS_MAX)
        command = CheckAdmission(
            name,
            _dimension(dimension),
            self.check_id(execution_id),
            reservation_ms,
            ids.jitter(),
        )
        reply: AdmissionOutcome = await self.execute(command)
        return reply

    async def release_admission(
        self, *, quota_policy_id: str, execution_id: str, dimension: str = ""
    ) -> Released:
        """Give back the place reserved for an execution; its start stays counted in the window.

        Twice is harmless. PlaceInUse when the execution runs: its lease's end frees the place.
        """
        command = ReleaseAdmission(
            check_name(quota_policy_id, field="quota_policy_id"),
            _dimension(dimension),
            self.check_id(execution_id),
        )
        reply: Released = await self.execute(command)
        return reply

    async def read_quota_policy_limits(self, *, quota_policy_id: str) -> QuotaPolicy | None:
        """The policy, or none."""
        key = (check_name(quota_policy_id, field="quota_policy_id"),)
        found = await self.read(lambda reader: reader.peek_rows(QUOTAS, [key]))
        return found.get(key)

    async def get_quota_status(self, *, quota_policy_id: str) -> QuotaStatus:
        """The policy and how much of it each key uses."""
        key = (check_name(quota_policy_id, field="quota_policy_id"),)

        async def work(reader: Reader) -> QuotaStatus:
            policy = (await reader.peek_rows(QUOTAS, [key])).get(key)
            if policy is None:
                raise NotFound(f"quota policy {key[0]}", entity="quota_policy")
            gates = await reader.peek_rows(GATES, [key])
            ordered = [gates[each] for each in sorted(gates)]
            return QuotaStatus(policy, tuple(await present_windows(policy, ordered, reader)))

        return await self.read(work)

    async def list_quota_policies(
        self, *, after: str | None = None, limit: int = limits.PAGE_DEFAULT
    ) -> list[QuotaPolicy]:
        """Policies by id, those after `after`; one that cannot be read is left out."""
        check_integer(limit, field="limit", least=1, most=limits.PAGE_MAX)
        start = None if after is None else (check_text(after, field="after", max_bytes=1024),)
        return await self.read(
            lambda reader: reader.page_rows(QUOTAS, {}, start, limit, newest_first=False)
        )


def _dimension(value: str) -> str:
    return DEFAULT_DIMENSION if value == "" else check_name(value, field="dimension")


def _jitter(value: int) -> int:
    return check_integer(value, field="jitter_ms", least=0, most=limits.QUOTA_JITTER_MS_MAX)
