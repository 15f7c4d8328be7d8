"""The testing kit: the tasks of a program on a fresh store, with time that a test moves."""

from flowfabric.testing.doubles import Spy, StepRun
from flowfabric.testing.errors import ReplayMismatch, Stuck
from flowfabric.testing.fabric import TestFabric
from flowfabric.testing.faults import Crash
from flowfabric.testing.histories import read_history, write_history
from flowfabric.testing.history import DamagedHistory, History, redacted
from flowfabric.testing.loop import VirtualLoop, run
from flowfabric.testing.replay import check

__all__ = [
    "Crash",
    "DamagedHistory",
    "History",
    "ReplayMismatch",
    "Spy",
    "StepRun",
    "Stuck",
    "TestFabric",
    "VirtualLoop",
    "check",
    "read_history",
    "redacted",
    "run",
    "write_history",
]
