"""The worker: claims executions, runs their handlers under renewed leases, reports how they end."""

from flowfabric.sdk.worker.worker import Worker

__all__ = ["Worker"]
