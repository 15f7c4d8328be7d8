"""The documentation is true where a machine can tell: code runs, tables match the source."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flowfabric import Worker, errors
from flowfabric.config import URL_VARIABLE, EngineConfig
from flowfabric.errors import FlowFabricError
from flowfabric.sdk import errors as sdk_errors
from flowfabric.sdk.options import TaskOptions

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
NOT_OURS = {".git", "build", "dist", "__pycache__", "node_modules"}
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def our_files() -> list[Path]:
    """Every file of the repository; what tools leave behind is not ours."""
    found = []
    for folder, names, files in os.walk(ROOT):
        names[:] = [
            name
            for name in names
            if name not in NOT_OURS
            and not name.endswith(("_cache", "thesis"))
            and not name.startswith(".venv")
        ]
        found += [Path(folder) / name for name in files]
    return found


def pages() -> list[Path]:
    return sorted(path for path in our_files() if path.suffix == ".md")


def blocks(page: Path) -> list[Any]:
    """The Python programs of a page, each named by its first line: `# name.py`."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [pytest.param(code, id=f"{page.name}-{name_of(code)}") for code in found]


def name_of(code: str) -> str:
    first = code.splitlines()[0]
    assert re.fullmatch(r"# \w+\.py", first), f"the block's first line names its file, not: {first}"
    return first[2:]


# --- code -----------------------------------------------------------------------------------------


def environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    url = f"sqlite:///{folder / 'docs.db'}"
    own = {"TMPDIR": str(folder), "XDG_STATE_HOME": str(folder), URL_VARIABLE: url}
    return {**os.environ, "PYTHONPATH": path, **own}


def run(folder: Path, *words: str) -> str:
    """What a program prints; it must succeed."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ff(folder: Path, *words: str) -> str:
    return run(folder, "-m", "flowfabric.cli", *words)


@contextmanager
def worker(folder: Path, app: str) -> Iterator[None]:
    """`ff worker` beside the program, as the page tells the reader to start it."""
    command = [sys.executable, "-m", "flowfabric.cli", "worker", app, "--drain-timeout", "0s"]
    with (folder / "worker.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment(folder), stdout=log, stderr=log
        )
    try:
        yield
        assert process.poll() is None, (folder / "worker.log").read_text()
        process.terminate()
        process.wait(30)
    finally:
        process.kill()
        process.wait()


def run_block(code: str, folder: Path) -> str:
    """Run a block as the file it names, with a worker unless it brings its own."""
    name = name_of(code)
    (folder / name).write_text(code, encoding="utf-8")
    if "Worker(" in code:
        return run(folder, name)
    with worker(folder, f"{name.removesuffix('.py')}:ff"):
        return run(folder, name)


PRINTED = {
    "app.py": "hello, Ada\n",
    "rates.py": "1.08 after 3 attempts\n",
    "check.py": "[2, 4, 6]\n",
}


@pytest.mark.parametrize("code", blocks(DOCS / "start.md"))
def test_the_code_of_the_start_page_runs(code: str, tmp_path: Path) -> None:
    printed = run_block(code, tmp_path)
    assert printed == PRINTED.get(name_of(code), printed)
    assert printed


@pytest.mark.parametrize("code", blocks(DOCS / "guides" / "limits.md"))
def test_the_code_of_the_limits_guide_runs(code: str, tmp_path: Path) -> None:
    assert run_block(code, tmp_path) == "200 200\n"


@pytest.mark.parametrize("code", blocks(DOCS / "guides" / "suspension.md"))
def test_the_code_of_the_suspension_guide_runs(code: str, tmp_path: Path) -> None:
    assert run_block(code, tmp_path) == "solar: approved by 2 people\n"


@pytest.mark.parametrize("code", blocks(DOCS / "guides" / "flows.md"))
def test_the_code_of_the_flows_guide_runs(code: str, tmp_path: Path) -> None:
    told = (DOCS / "guides" / "flows.md").read_text(encoding="utf-8")
    printed = run_block(code, tmp_path)
    assert printed == "{'square': 1, 'square-2': 4, 'square-3': 9, 'total': 'sum 14'}\n"
    assert f"It prints `{printed.strip()}`" in told


def test_the_code_of_the_testing_guide_passes(tmp_path: Path) -> None:
    for param in blocks(DOCS / "guides" / "testing.md"):
        code = param.values[0]
        (tmp_path / name_of(code)).write_text(code, encoding="utf-8")
    assert "4 passed" in run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider")


# What the programs of the page about web frameworks are asked, each by its framework's own client.
FASTAPI_CLIENT = """
from fastapi.testclient import TestClient
import api
with TestClient(api.app) as client:
    first = client.post("/briefs/solar")
    assert first.status_code == 202
    assert client.post("/briefs/solar").json() == first.json()
    while (seen := client.get(f"/runs/{first.json()['id']}").json())["state"] != "completed":
        pass
    assert client.get("/runs/{fp:0}:01900000-0000-7000-8000-000000000000").status_code == 404
print(seen["result"])
"""
FLASK_CLIENT = """
import shop
client = shop.app.test_client()
first = client.post("/briefs/solar")
assert first.status_code == 202
assert client.post("/briefs/solar").json == first.json
while (seen := client.get(f"/runs/{first.json['id']}").json)["state"] != "completed":
    pass
assert client.get("/runs/{fp:0}:01900000-0000-7000-8000-000000000000").status_code == 404
print(seen["result"])
"""
DJANGO_CLIENT = """
import tasks
print(tasks.ff.sync.submit(tasks.brief, "solar").result(timeout="30s"))
"""
CLIENTS = {"api": FASTAPI_CLIENT, "shop": FLASK_CLIENT, "tasks": DJANGO_CLIENT}


@pytest.mark.parametrize("code", blocks(DOCS / "guides" / "web-frameworks.md"))
def test_the_programs_of_the_page_about_web_frameworks_answer(code: str, tmp_path: Path) -> None:
    module = name_of(code).removesuffix(".py")
    (tmp_path / f"{module}.py").write_text(code, encoding="utf-8")
    (tmp_path / "settings.py").write_text("SECRET_KEY = 'of a test'\n", encoding="utf-8")
    with worker(tmp_path, f"{module}:ff"):
        assert run(tmp_path, "-c", CLIENTS[module]) == "all about solar\n"


def test_the_unit_and_the_manifests_of_the_deployment_guide_leave_time_to_drain() -> None:
    text = (DOCS / "guides" / "deployment.md").read_text(encoding="utf-8")
    drains = {int(seconds) for seconds in re.findall(r'drain-timeout"?,? "?(\d+)s', text)}
    words = "TimeoutStopSec=|--time |stop_grace_period: |terminationGracePeriodSeconds: "
    kills = re.findall(rf"(?:{words})(\d+)", text)
    assert drains == {60}
    assert len(kills) == 4
    assert all(int(seconds) > 60 for seconds in kills)


def test_the_pages_of_the_api_and_the_operations_are_what_the_code_says() -> None:
    run(ROOT, str(ROOT / "tools" / "api_reference.py"), "--check")


def test_the_settings_of_the_server_are_documented_as_they_are_declared() -> None:
    run(ROOT, str(ROOT / "tools" / "configuration_page.py"), "--check")


def test_the_code_of_the_readme_runs_and_can_be_looked_at(tmp_path: Path) -> None:
    (code,) = (param.values[0] for param in blocks(README))
    lines = [line for line in code.splitlines() if line and not line.startswith("#")]
    assert len(lines) <= 10
    assert run_block(code, tmp_path) == "all about solar\n"
    listing = ff(tmp_path, "ps")
    (execution_id,) = re.findall(r"^[0-9a-f]{8}", listing, re.MULTILINE)
    assert "completed" in listing
    assert "ended: completed" in ff(tmp_path, "why", execution_id)


# --- tables ---------------------------------------------------------------------------------------


def rows(page: Path) -> dict[str, list[str]]:
    """Table rows whose first cell is a single code word, by that word."""
    found = re.findall(r"^\| `(\w+)` \|(.*)\|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: [cell.strip() for cell in re.split(r"(?<!\\)\|", rest)] for name, rest in found}


def test_every_setting_is_documented_with_its_default() -> None:
    documented = rows(DOCS / "configuration.md")
    for name, default in zip(
        EngineConfig.__struct_fields__, EngineConfig.__struct_defaults__, strict=True
    ):
        assert name in documented, f"{name} is missing in docs/configuration.md"
        assert documented[name][0] == f"`{default}`", name


def shown_defaults(defaults: dict[str, Any]) -> dict[str, str]:
    """Defaults that a table can show as they are; nothing and empty are told in words."""
    return {name: f"`{value}`" for name, value in defaults.items() if value not in (None, ())}


def test_every_argument_of_a_worker_is_documented_with_its_default() -> None:
    documented = rows(DOCS / "guides" / "workers.md")
    parameters = inspect.signature(Worker).parameters.values()
    defaults = {each.name: each.default for each in parameters if each.name != "fabric"}
    assert set(defaults) <= set(documented)
    for name, default in shown_defaults(defaults).items():
        assert documented[name][1] == default, name


def test_every_option_of_a_task_is_documented_with_its_default() -> None:
    documented = rows(DOCS / "configuration.md")
    defaults = {field.name: field.default for field in dataclasses.fields(TaskOptions)}
    assert set(defaults) <= set(documented)
    for name, default in shown_defaults(defaults).items():
        assert documented[name][0] == default, name


def error_classes() -> list[type[FlowFabricError]]:
    found = {
        value
        for module in (errors, sdk_errors)
        for _, value in inspect.getmembers(module, inspect.isclass)
        if issubclass(value, FlowFabricError)
    }
    return sorted(found, key=lambda kind: kind.__name__)


def test_every_error_is_documented_with_its_code_its_status_and_whether_a_retry_helps() -> None:
    documented = rows(DOCS / "reference" / "errors.md")
    for kind in error_classes():
        assert kind.__name__ in documented, f"{kind.__name__} is missing in the table of errors"
        code, retryable, *status, advice = documented[kind.__name__]
        assert (code, retryable) == (f"`{kind.code}`", "yes" if kind.retryable else "no")
        assert status == ([str(kind.status)] if kind.__module__ == errors.__name__ else [])
        assert advice
    assert set(documented) == {kind.__name__ for kind in error_classes()}


def test_every_design_decision_says_how_we_would_know_it_was_wrong() -> None:
    index = (DOCS / "design" / "README.md").read_text(encoding="utf-8")
    decisions = sorted((DOCS / "design").glob("[0-9]*.md"))
    assert decisions
    numbers = [page.name.partition("-")[0] for page in decisions]
    assert all(len(each) == 3 for each in numbers)
    assert len(set(numbers)) == len(numbers), "two pages have one number"
    for page in decisions:
        text = page.read_text(encoding="utf-8")
        assert f"]({page.name})" in index
        for part in ("Context.", "Decision.", "Consequences.", "How we would know it was wrong."):
            assert f"**{part}**" in text, f"{page.name} lacks: {part}"


# --- links ----------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are commonly derived."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def links(page: Path) -> list[str]:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    return [link for link in LINK.findall(text) if "://" not in link]


@pytest.mark.parametrize("page", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in pages()])
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        if anchor:
            assert anchor in anchors(target), f"{link}: there is no such heading"


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), [README]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        waiting += [(page.parent / link.partition("#")[0]).resolve() for link in links(page)]
    unreached = [page for page in DOCS.rglob("*.md") if page not in reached]
    assert not unreached


# --- where packages come from ---------------------------------------------------------------------

# Which registry to install from is the user's business: pip knows. Put together here so that this
# file does not name them either.
REGISTRIES = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("pypi", "python", "org"),
        ("anaconda", "org"),
        ("registry", "npmjs", "org"),
        ("registry", "yarnpkg", "com"),
        ("docker", "io"),
        ("ghcr", "io"),
        ("quay", "io"),
    )
]
INDEX_OPTION = re.compile(r"(?i)(extra-)?index[-_]url\s*[=:]|--(extra-)?index-url|--find-links")


def test_no_registry_is_named_in_the_repository() -> None:
    named = []
    for path in our_files():
        if path == Path(__file__).resolve():
            continue
        text = path.read_bytes().decode(errors="replace")
        if any(host in text for host in REGISTRIES) or INDEX_OPTION.search(text):
            named.append(str(path.relative_to(ROOT)))
    assert not named
