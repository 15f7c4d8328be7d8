"""Imports follow the arrows of the architecture. Every arrow reads "is imported by".

    errors, limits, trouble ── everywhere

    model ──► kernel ──► engine ──► loops ──► assemble ──► sdk ──► testing ──► cli
      ├─────► stores ────────────────────────────┘          │
      └─────► api, the waist ──► engine, sdk, cli, client, server
    stores.base (protocol), stores.indexes, stores.logs, stores.tables ──► engine, loops

The SDK and the CLI know an engine only by the waist.

Only assemble.py, the composition root, knows which concrete stores exist. Imports that happen only
for type checking count: a name in an annotation is knowledge too. Modules that import each other in
a circle form a knot, which can only be understood as a whole; so it must be small.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGE = "flowfabric"
EVERYWHERE = {"errors", "limits", "trouble"}
OUTSIDE = {"clock", "ids", "config", "forks", "callers"}

BELOW_SDK = (
    {
        "model",
        "api",
        "metrics",
        "tracing",
        "kernel",
        "engine",
        "loops",
        "stores",
        "assemble",
        "calendar",
    }
    | EVERYWHERE
    | OUTSIDE
)

# A component is the first name below the package. An allowed name covers everything below it.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "limits": set(),
    "trouble": {"errors"},
    "clock": EVERYWHERE,
    "calendar": {"model"} | EVERYWHERE,
    "ids": {"model", "clock"} | EVERYWHERE,
    "config": {"model"} | EVERYWHERE,
    "forks": EVERYWHERE,
    "callers": EVERYWHERE,
    "model": EVERYWHERE,
    # Numbers of a process: whoever measures is handed a registry.
    "metrics": {"clock"} | EVERYWHERE,
    "api": {"model", "metrics"} | EVERYWHERE,
    # Spans: only of requests and claims, and only by what the program has imported itself.
    "tracing": {"model", "api"} | EVERYWHERE,
    "kernel": {"model"} | EVERYWHERE,
    "stores": {"model"} | EVERYWHERE | OUTSIDE,
    "engine": {
        "calendar",
        "metrics",
        "model",
        "api",
        "kernel",
        "stores.base",
        "stores.indexes",
        "stores.logs",
        "stores.tables",
    }
    | EVERYWHERE
    | OUTSIDE,
    "loops": {"engine", "model", "api", "kernel", "stores.base", "clock", "ids"} | EVERYWHERE,
    # An engine that is elsewhere, and the HTTP in front of one that is here: both know the waist.
    # What the store knows of itself, read for a registry every few seconds.
    "figures": {"model", "api", "metrics"} | EVERYWHERE | OUTSIDE,
    "client": {"model", "api", "metrics", "tracing"} | EVERYWHERE | OUTSIDE,
    "server": {"model", "api", "metrics", "figures"} | EVERYWHERE | OUTSIDE,
    "assemble": BELOW_SDK | {"client"},
    # What people touch knows the waist, and the composition root that opens an engine behind it.
    # A worker retries steps and reads journals by the same rules as an engine.
    # Steps in transactions use databases of their callers, which are no stores of an engine.
    "sdk": {
        "model",
        "api",
        "metrics",
        "figures",
        "tracing",
        "assemble",
        "kernel.journal.lookup",
        "kernel.wait.condition",
        "kernel.execution.retry",
        "stores.callers",
    }
    | EVERYWHERE
    | OUTSIDE,
    # What the tests of a program touch: it runs real workers by hand.
    "testing": {"model", "api", "assemble", "sdk"} | EVERYWHERE | OUTSIDE,
    # Measures through the public calls, the kit's too; knows stores only by their URLs.
    # What a route costs is measured beside an application that has none.
    "bench": {"model", "api", "assemble", "sdk", "testing", "server"} | EVERYWHERE | OUTSIDE,
    "cli": {
        "metrics",
        "model",
        "api",
        "assemble",
        "sdk",
        "testing",
        "bench",
        "server",
        "stores.callers",
        PACKAGE,
    }
    | EVERYWHERE
    | OUTSIDE,
    PACKAGE: BELOW_SDK | {"sdk"},  # the public names in __init__.py
    "__main__": {"cli"},
}
# The bare package counts as concrete because it could re-export any of them.
CONCRETE_STORES = {"stores.memory", "stores.sqlite", "stores.postgres", "stores.valkey"}
KNOWS_CONCRETE_STORES = {"stores", "assemble"}
# Pure components and the only libraries they may see besides the standard one.
LIBRARIES = {"model": {"msgspec"}, "kernel": set[str]()}


KNOT_MAX = 5  # modules


def imported(tree: ast.AST, package: list[str], modules: set[str]) -> Iterator[tuple[int, str]]:
    """Every imported module as (line, dotted name), relative ones resolved against `package`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                # `from flowfabric.stores import sqlite` names a module, not something inside one.
                full = f"{base}.{alias.name}"
                yield node.lineno, full if full in modules else base


def is_below(name: str, roots: set[str]) -> bool:
    return any(name == root or name.startswith(f"{root}.") for root in roots)


def is_allowed(source: str, target: str) -> bool:
    library = target.split(".")[0]
    if library != PACKAGE:
        allowed = LIBRARIES.get(source)
        return allowed is None or library in allowed or library in sys.stdlib_module_names
    inner = target.removeprefix(PACKAGE).removeprefix(".") or PACKAGE
    concrete = inner == "stores" or is_below(inner, CONCRETE_STORES)
    if concrete and source not in KNOWS_CONCRETE_STORES:
        return False
    return is_below(inner, ALLOWED.get(source, set()) | {source})


def violations(src: Path) -> Iterator[str]:
    """Imports against the arrows, then knots that are too large."""
    files = sorted((src / PACKAGE).rglob("*.py"))
    names = {file: list(file.relative_to(src).with_suffix("").parts) for file in files}
    modules = {".".join(name).removesuffix(".__init__") for name in names.values()}
    graph: dict[str, list[str]] = {}
    for file, name in names.items():
        component = PACKAGE if name[1:] == ["__init__"] else name[1]
        if component not in ALLOWED:
            yield f"{file}:1 {component} has no place in the arrows; give it one in {__file__}"
            continue
        source = ".".join(name).removesuffix(".__init__")
        tree = ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
        found = list(imported(tree, name[:-1], modules))
        graph[source] = [target for _, target in found]
        for line, target in found:
            if not is_allowed(component, target):
                yield f"{file}:{line} {source} -> {target} not allowed"
    for knot in knots(graph):
        if len(knot) > KNOT_MAX:
            yield f"{src} {len(knot)} modules import each other in a circle: {', '.join(knot)}"


def knots(graph: Mapping[str, list[str]]) -> Iterator[list[str]]:
    """Modules that reach each other by their imports, each knot once."""
    reached = {module: _reached(graph, module) for module in graph}
    left = set(graph)
    for module in sorted(graph):
        if module in left:
            knot = sorted(other for other in reached[module] if module in reached.get(other, ()))
            left.difference_update(knot)
            if len(knot) > 1:
                yield knot


def _reached(graph: Mapping[str, list[str]], start: str) -> set[str]:
    """Everything that a module imports, directly or not."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for target in graph.get(waiting.pop(), ()):
            if target not in found:
                found.add(target)
                waiting.append(target)
    return found


def main(src: Path) -> int:
    found = list(violations(src))
    print("\n".join(found) or "imports follow the arrows")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent.parent / "src"))
