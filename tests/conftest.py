"""Fixtures every test may use: a real PostgreSQL, and an engine on each store."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from flowfabric.engine.engine import Engine
from tests.support.databases import PostgresServer, migrate, postgres_server
from tests.support.lab import DURABLE_STORES, STORES, Lab
from tests.support.socketed import IS_LOSSY, THROUGH_HTTP
from tests.support.transports import check, watch

# A fixture is shared by the examples of one test on purpose; how fast one runs depends on a store.
# Every push tries the same examples, so that only a change turns it red; `bin/soak` tries others.
settings.register_profile(
    "flowfabric",
    deadline=None,
    database=None,
    derandomize="FF_EXPLORE" not in os.environ,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("flowfabric")

# A run in the background of a script is started deaf to SIGINT, and would start its programs so;
# some tests interrupt them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


watch().start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """A test closes what it opens."""
    yield
    check()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server per test process."""
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file with nothing in it: a copy of it is there at once."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    asyncio.run(migrate(f"sqlite:///{path}"))
    return path


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """A migrated, empty database of its own."""
    with postgres.database() as url:
        yield url


def open_lab(store: str, request: pytest.FixtureRequest, stack: ExitStack) -> Lab:
    runner = None
    if store in ("memory", "http"):
        url = "memory://"
    elif store == "sqlite":
        path: Path = request.getfixturevalue("tmp_path") / "lab.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        url = f"sqlite:///{path}"
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        url = stack.enter_context(server.lab_database())
        runner = stack.enter_context(server.keeper.at_work())
    lab = Lab(url, runner=runner, through_http=THROUGH_HTTP or store == "http")
    lab.open()
    stack.callback(lab.close)
    return lab


# What these show, every engine behind a server must show too; the others only where FF_THROUGH=http
# says so, because each test takes a server of its own.
_OVER_HTTP = (
    "conformance/batches/test_batches",
    "conformance/events/test_feed",
    "conformance/leases/test_claim",
    "conformance/leases/test_repeated_calls",
    "conformance/surface/",
    "conformance/waits/test_waiting",
    "conformance/workers/",
)


# What differs behind a server, and is so on purpose.
_CLAIM_ROW = "a claim through a server leaves a row that the next sweep removes"
_SLICED = "the client waits in slices, so no wait is too long"
_APART = "requests of several kinds travel apart, so their order is nobody's"
_ASKED_AGAIN = "the client asks again by itself"
_REPEATED = "the client asks again for a claim whose answer was lost, and has it then"
_BESIDE = "it looks at the engine of the caller's own process"
_NOT_OVER_HTTP = {
    "test_a_cancel_leaves_nothing_open": _CLAIM_ROW,
    "test_a_cancel_closes_every_binding_and_the_episode": _CLAIM_ROW,
    "test_an_escalation_waits_on_for_an_operator_or_its_signals": _CLAIM_ROW,
    "test_invariant_2_ending_is_total": _CLAIM_ROW,
    "test_a_promised_takeover_is_waited_for_and_then_not": _CLAIM_ROW,
    "test_commands_of_one_batch_see_each_other_in_order": _APART,
    "test_a_signal_after_a_cancel_in_one_batch_is_late": _APART,
    "test_a_lost_reply_is_answered_when_asked_again": _ASKED_AGAIN,
    "test_a_wait_has_bounds": _SLICED,
    "test_numbers_out_of_bounds_are_refused": _SLICED,
    "test_a_waiter_in_the_same_process_need_not_look": _BESIDE,
    "test_other_ends_are_looked_at": _BESIDE,
}
if IS_LOSSY:
    _NOT_OVER_HTTP["test_what_nobody_was_told_of_is_given_back"] = _REPEATED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it loudly, once, if the dashboard was not tested in a browser."""
    skipped = [str(each.longrepr) for each in terminalreporter.stats.get("skipped", ())]
    if told := [each for each in skipped if "NO BROWSER" in each]:
        text = "NO BROWSER" + told[0].partition("NO BROWSER")[2].rstrip("')")
        terminalreporter.write_line(f"{len(told)} tests skipped. {text}", red=True, bold=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what cannot hold behind a server."""
    for item in items:
        reason = _NOT_OVER_HTTP.get(getattr(item, "originalname", ""))
        called = getattr(item, "callspec", None)
        over_http = THROUGH_HTTP or (called is not None and called.params.get("lab") == "http")
        if over_http and reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Some modules are run over HTTP as well."""
    if "lab" not in metafunc.fixturenames or THROUGH_HTTP:
        return
    path = metafunc.definition.path.as_posix()
    if any(each in path for each in _OVER_HTTP):
        stores = (*STORES, "http")
        metafunc.definition.add_marker(pytest.mark.parametrize("lab", stores, indirect=True))


@pytest.fixture(params=STORES)
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """An engine with its loops off and a clock that stands still, on every store."""
    with ExitStack() as stack:
        yield open_lab(request.param, request, stack)


@pytest.fixture
def engine(lab: Lab) -> Engine:
    """The lab's engine."""
    return lab.engine


@pytest.fixture(params=DURABLE_STORES)
def durable_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The same where rows can be spoiled behind the engine's back."""
    with ExitStack() as stack:
        yield open_lab(request.param, request, stack)


@pytest.fixture(params=DURABLE_STORES)
def fresh_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The same on a database that no other test uses afterwards: its schema may be changed."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield open_lab(request.param, request, stack)
            return
        server: PostgresServer = request.getfixturevalue("postgres")
        lab = Lab(stack.enter_context(server.empty_database()))
        lab.open()
        stack.callback(lab.close)
        yield lab
