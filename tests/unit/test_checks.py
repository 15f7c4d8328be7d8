"""The structure checkers find each kind of violation in small made-up trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import check_imports, check_size

Tree = dict[str, str]
KNOT = check_imports.KNOT_MAX


def write(src: Path, tree: Tree) -> Path:
    for name, text in tree.items():
        file = src / "flowfabric" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return src


def refused_imports(src: Path, tree: Tree) -> list[str]:
    """Violations without their location: `a -> b not allowed`."""
    return [text.split(" ", 1)[1] for text in check_imports.violations(write(src, tree))]


@pytest.mark.parametrize(
    ("file", "statement"),
    [
        ("model/lease.py", "from flowfabric.kernel.fence import check"),
        ("model/lease.py", "from flowfabric.ids import mint"),
        ("model/lease.py", "import asyncpg"),
        ("kernel/fence.py", "from flowfabric.stores.base import Store"),
        ("kernel/fence.py", "from flowfabric.clock import now"),
        ("kernel/fence.py", "import msgspec"),
        ("stores/sqlite/store.py", "from flowfabric.kernel.fence import check"),
        ("stores/sqlite/store.py", "from flowfabric.engine.batch import Batch"),
        ("stores/base.py", "from flowfabric.engine.machine import Machine"),
        ("engine/batch.py", "from flowfabric.loops.leases import Leases"),
        ("engine/batch.py", "from flowfabric.stores.codec import STATE_COLUMNS"),
        ("engine/batch.py", "import flowfabric.stores.sqlite.store"),
        ("loops/leases.py", "from flowfabric.sdk.worker import Worker"),
        ("loops/leases.py", "from flowfabric.stores import memory"),
        ("sdk/fabric.py", "from flowfabric.stores.memory import MemoryStore"),
        ("sdk/fabric.py", "from flowfabric.stores import MemoryStore"),
        ("sdk/fabric.py", "from flowfabric.cli.main import main"),
        ("sdk/suspending.py", "from flowfabric.kernel.wait.signal import deliver"),
        ("cli/commands/waits.py", "from flowfabric.kernel.explain.waits import in_words"),
        ("bench/cycle.py", "from flowfabric.engine.engine import Engine"),
        ("sdk/fabric.py", "from flowfabric import Fabric"),
        ("cli/__init__.py", "from flowfabric.stores.postgres.store import PostgresStore"),
        ("assemble.py", "from flowfabric.sdk.fabric import Fabric"),
        ("errors.py", "from flowfabric.model.lease import Lease"),
        ("__init__.py", "from flowfabric.stores.sqlite.store import SqliteStore"),
        ("__init__.py", "from flowfabric.cli import main"),
    ],
)
def test_an_import_against_the_arrows_is_found(tmp_path: Path, file: str, statement: str) -> None:
    tree = {"stores/memory.py": "", file: statement}
    assert len(refused_imports(tmp_path, tree)) == 1


@pytest.mark.parametrize(
    ("file", "statement"),
    [
        ("model/lease.py", "import msgspec, enum\nfrom flowfabric import errors, limits"),
        ("kernel/fence.py", "from flowfabric.model.lease import Lease\nfrom . import retry"),
        ("stores/sqlite/store.py", "from flowfabric import ids, clock\nfrom ..base import Store"),
        ("stores/postgres/store.py", "import asyncpg"),
        ("engine/batch.py", "from flowfabric.stores.base import Store\nimport flowfabric.config"),
        ("loops/leases.py", "from flowfabric.engine.engine import Engine\nimport asyncio"),
        ("assemble.py", "from flowfabric.stores.sqlite.store import SqliteStore"),
        ("sdk/fabric.py", "from flowfabric.assemble import open_engine"),
        ("cli/__init__.py", "from flowfabric.sdk import Fabric\nfrom flowfabric import Fabric"),
        ("__init__.py", "from flowfabric.sdk import Fabric\nfrom .errors import NotFound"),
    ],
)
def test_an_import_along_the_arrows_passes(tmp_path: Path, file: str, statement: str) -> None:
    tree = dict.fromkeys(("errors.py", "limits.py", "ids.py", "clock.py"), "")
    assert refused_imports(tmp_path, tree | {file: statement}) == []


def test_a_violation_names_the_file_the_line_and_both_modules(tmp_path: Path) -> None:
    src = write(tmp_path, {"kernel/fence.py": "import enum\nimport flowfabric.ids\n"})
    assert list(check_imports.violations(src)) == [
        f"{src}/flowfabric/kernel/fence.py:2 flowfabric.kernel.fence -> flowfabric.ids not allowed"
    ]


def test_an_import_for_type_checking_or_inside_a_function_counts(tmp_path: Path) -> None:
    hidden = (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from flowfabric.engine import Engine\n"
        "def late():\n    from flowfabric.clock import now\n"
    )
    assert refused_imports(tmp_path, {"kernel/fence.py": hidden}) == [
        "flowfabric.kernel.fence -> flowfabric.engine not allowed",
        "flowfabric.kernel.fence -> flowfabric.clock not allowed",
    ]


def circle(size: int) -> Tree:
    """Modules of the SDK, each of which imports the next."""
    return {
        f"sdk/m{at}.py": (
            "from typing import TYPE_CHECKING\n"
            f"if TYPE_CHECKING:\n    from flowfabric.sdk.m{(at + 1) % size} import Thing\n"
        )
        for at in range(size)
    }


def test_a_knot_of_imports_may_be_small(tmp_path: Path) -> None:
    straight = {"sdk/begin.py": "from flowfabric.sdk import m0"}  # leads in, is no part of it
    assert refused_imports(tmp_path, circle(KNOT) | straight) == []


def test_a_large_knot_of_imports_is_found_once(tmp_path: Path) -> None:
    size = KNOT + 1
    names = ", ".join(f"flowfabric.sdk.m{at}" for at in range(size))
    assert refused_imports(tmp_path, circle(size)) == [
        f"{size} modules import each other in a circle: {names}"
    ]


def test_circles_that_touch_are_one_knot(tmp_path: Path) -> None:
    shared = {"sdk/m0.py": "from flowfabric.sdk import m1, other"}
    tree = circle(KNOT) | shared | {"sdk/other.py": "from flowfabric.sdk import m0"}
    (found,) = refused_imports(tmp_path, tree)
    assert found.startswith(f"{KNOT + 1} modules")


def test_a_relative_import_is_resolved_before_it_is_judged(tmp_path: Path) -> None:
    tree = {"kernel/fence.py": "from ..stores.sqlite import store", "kernel/__init__.py": ""}
    assert refused_imports(tmp_path, tree) == [
        "flowfabric.kernel.fence -> flowfabric.stores.sqlite not allowed"
    ]


def test_a_component_without_a_place_in_the_arrows_is_found(tmp_path: Path) -> None:
    (text,) = refused_imports(tmp_path, {"helpers/text.py": ""})
    assert text.startswith("helpers has no place in the arrows")


def test_the_import_check_exits_1_on_a_violation_and_0_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_imports.main(write(tmp_path, {"model/lease.py": ""})) == 0
    assert check_imports.main(write(tmp_path, {"model/lease.py": "import flowfabric.sdk"})) == 1
    assert "flowfabric.model.lease -> flowfabric.sdk not allowed" in capsys.readouterr().out


def sizes(src: Path, text: str) -> list[tuple[bool, str]]:
    """Findings as (fails, what is said), without the location."""
    found = check_size.findings(write(src, {"module.py": text}))
    return [(fails, said.split(" ", 1)[1]) for fails, said in found]


def function_of(lines: int) -> str:
    return "def work():\n" + "    pass\n" * (lines - 1)


def class_with(public_methods: int, name: str = "Thing") -> str:
    methods = "".join(f"    def m{n}(self): ...\n" for n in range(public_methods))
    return f"class {name}:\n    def _private(self): ...\n{methods}"


def test_a_module_above_400_lines_is_reviewed_and_above_600_fails(tmp_path: Path) -> None:
    assert sizes(tmp_path, "\n" * 400) == []
    assert sizes(tmp_path, "\n" * 401) == [(False, "module has 401 lines (aim for 400 or fewer)")]
    assert sizes(tmp_path, "\n" * 600) == [(False, "module has 600 lines (aim for 400 or fewer)")]
    assert sizes(tmp_path, "\n" * 601) == [(True, "module has 601 lines (at most 600)")]


def test_a_function_above_40_lines_is_reviewed_and_above_60_fails(tmp_path: Path) -> None:
    assert sizes(tmp_path, function_of(40)) == []
    assert [fails for fails, _ in sizes(tmp_path, function_of(41))] == [False]
    assert [fails for fails, _ in sizes(tmp_path, function_of(60))] == [False]
    assert sizes(tmp_path, function_of(61)) == [
        (True, "function work has 61 lines (at most 60)"),
    ]


def test_a_long_async_method_is_a_long_function(tmp_path: Path) -> None:
    body = "        pass\n" * 60
    text = f"class Thing:\n    async def work(self):\n{body}"
    assert sizes(tmp_path, text) == [(True, "function work has 61 lines (at most 60)")]


def test_a_class_with_more_than_12_public_methods_is_reviewed(tmp_path: Path) -> None:
    assert sizes(tmp_path, class_with(12)) == []
    assert sizes(tmp_path, class_with(13)) == [
        (False, "class Thing has 13 public methods (aim for 12 or fewer)")
    ]


def test_a_facade_may_have_many_methods(tmp_path: Path) -> None:
    assert sizes(tmp_path, class_with(40, name="Engine")) == []


def test_code_exempt_by_name_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(check_size.EXEMPT_MODULES, "flowfabric/module.py", "a table")
    monkeypatch.setitem(check_size.EXEMPT_FUNCTIONS, "work", "a table")
    assert sizes(tmp_path, function_of(700)) == []


def test_a_class_counts_with_its_bases(tmp_path: Path) -> None:
    def class_of(head: str, lines: int) -> str:
        return f"class {head}:\n" + "    x = 1\n" * (lines - 1)

    half = check_size.OBJECT_LINES_WARN // 2
    text = class_of("Below", half) + class_of("Above(Below)", half + 1)
    found = [said for _, said in sizes(tmp_path, text) if "bases" in said]
    total = check_size.OBJECT_LINES_WARN + 1
    assert found == [f"class Above has {total} lines with its bases Below"]
    text = class_of("Below", half) + class_of("Above(Below)", half)
    assert not [said for _, said in sizes(tmp_path, text) if "bases" in said]


def test_the_size_check_exits_1_only_on_failures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_size.main(write(tmp_path, {"module.py": "\n" * 401})) == 0
    assert check_size.main(write(tmp_path, {"module.py": "\n" * 601})) == 1
    assert "sizes: 1 too large, 0 to review" in capsys.readouterr().out
