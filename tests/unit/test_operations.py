"""The register of operations: requests, methods and what performs them agree."""

from __future__ import annotations

import inspect
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from flowfabric import api, model
from flowfabric.api.backend import EngineBackend
from flowfabric.api.operation import OPERATIONS, Kind
from flowfabric.engine.engine import Engine
from flowfabric.engine.operations.performing import ANSWERS, COMMANDS

ROOT = Path(__file__).resolve().parents[2]


def test_every_operation_is_performed_by_one_function() -> None:
    requests = {each.request for each in OPERATIONS.values()}
    assert not ANSWERS.keys() & COMMANDS.keys()
    assert ANSWERS.keys() | COMMANDS.keys() == requests


def test_every_operation_is_a_method_with_the_arguments_of_its_request() -> None:
    for name, operation in OPERATIONS.items():
        method = getattr(EngineBackend, name)
        assert getattr(Engine, name) is method, f"{name} is written a second time"
        parameters = list(inspect.signature(method).parameters)[1:]
        assert parameters == list(operation.request.__struct_fields__), name


def test_methods_are_as_the_requests_say() -> None:
    tool = ROOT / "tools" / "backend_methods.py"
    done = subprocess.run([sys.executable, tool, "--check"], capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode()


def test_what_waits_takes_wait_ms_and_nothing_else_does() -> None:
    for name, operation in OPERATIONS.items():
        fields = operation.request.__struct_fields__
        assert (operation.kind is Kind.WAIT) == ("wait_ms" in fields), name
        assert not {"timeout_ms", "max_wait_ms"} & set(fields), name


def test_a_name_means_one_thing() -> None:
    """Of all that is said and heard: no two classes of the requests, replies and records share a
    name, and so no two things on a wire share a tag."""
    homes: dict[str, str] = {}
    for package in (api, model):
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for name, thing in vars(import_module(found.name)).items():
                if inspect.isclass(thing) and thing.__module__ == found.name:
                    assert homes.setdefault(name, found.name) == found.name, name
