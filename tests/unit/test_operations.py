"""The register of operations: requests, methods and what performs them agree."""

from __future__ import annotations

import asyncio
import inspect
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import cast

import pytest

from flowfabric import api, errors, model
from flowfabric.api.backend import EngineBackend
from flowfabric.api.operation import COMMON_ERRORS, OPERATIONS, Kind, UnsafeRequest
from flowfabric.engine.engine import Engine
from flowfabric.engine.operations.performing import ANSWERS, COMMANDS, READIED
from flowfabric.errors import FlowFabricError, StaleLease
from tests.support.loopback import Loopback

ROOT = Path(__file__).resolve().parents[2]
DEFINED = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, FlowFabricError)
]
FAMILIES = {kind.__bases__[0] for kind in DEFINED}
# What a server refuses before, or beside, the operation that is asked for.
OF_HTTP = {
    errors.MissingScope,
    errors.MissingNamespace,
    errors.CrossSiteRequest,
    errors.MisdirectedRequest,
    *{kind for kind in DEFINED if kind.__bases__[0] is errors.BusyError},
    errors.MalformedJson,
    errors.MalformedRequest,
    errors.MethodNotAllowed,
    errors.NotAcceptable,
    errors.UnsupportedMediaType,
    errors.UriTooLong,
    errors.HeadersTooLarge,
    errors.RevisionRequired,
    errors.IdempotencyKeyRequired,
    errors.NotRemote,
    errors.CountChanged,
}


def test_every_operation_is_performed_by_one_function() -> None:
    requests = {each.request for each in OPERATIONS.values()}
    assert len(ANSWERS) + len(COMMANDS) + len(READIED) == len(requests)
    assert ANSWERS.keys() | COMMANDS.keys() | READIED.keys() == requests


def test_every_operation_is_a_method_with_the_arguments_of_its_request() -> None:
    for name, operation in OPERATIONS.items():
        method = getattr(EngineBackend, name)
        assert getattr(Engine, name) is method, f"{name} is written a second time"
        parameters = list(inspect.signature(method).parameters)[1:]
        fields = operation.request.__struct_fields__
        is_unsafe = issubclass(operation.request, UnsafeRequest)
        inherited = UnsafeRequest.__struct_fields__ if is_unsafe else ()  # they come last
        expected = [*(each for each in fields if each not in inherited), *inherited]
        assert parameters == expected, name


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


def test_an_operation_declares_each_error_once_and_none_of_the_common_ones() -> None:
    for name, operation in OPERATIONS.items():
        declared = operation.errors
        assert len(set(declared)) == len(declared), name
        assert not set(declared) & set(COMMON_ERRORS), name
        for kind in declared:
            assert kind.__module__ == "flowfabric.errors", name
            assert kind not in FAMILIES, f"{name} declares a family: {kind.__name__}"


def test_every_error_is_declared_by_an_operation() -> None:
    """But for families, for what is raised where an engine is opened, and for what a server says
    without asking one."""
    declared = {kind for each in OPERATIONS.values() for kind in each.errors} | {*COMMON_ERRORS}
    assert not declared & OF_HTTP
    left = {*DEFINED} - {*FAMILIES} - declared - OF_HTTP
    assert left == {errors.ConfigurationMismatch}


def test_the_loopback_refuses_an_error_that_is_not_declared() -> None:
    """So that the register cannot say less than the conformance suite finds."""

    class Silent:
        async def call(self, request: object) -> object:
            raise StaleLease("of another")

    async def ask() -> None:
        backend = Loopback(cast("Engine", Silent()))
        with pytest.raises(StaleLease):
            await backend.cancel_execution(execution_id="x", reason="", source="")
        with pytest.raises(AssertionError, match="ping does not declare StaleLease"):
            await backend.ping()

    asyncio.run(ask())
