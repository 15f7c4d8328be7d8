"""Keeps modules, functions and classes of src/ at a size that one person reads in one go."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

MODULE_WARN, MODULE_FAIL = 400, 600
FUNCTION_WARN, FUNCTION_FAIL = 40, 60
PUBLIC_METHODS_WARN = 12
OBJECT_LINES_WARN = 800  # of a class with all its bases in the package: one `self` has them all

# Exempt by name, each with its reason. Modules by path below src/, functions and classes by name.
EXEMPT_MODULES: dict[str, str] = {
    "flowfabric/api/methods.py": "is written from the requests, a method for each",
    "flowfabric/errors.py": "is a table: a class for each error, and no code",
}
EXEMPT_FUNCTIONS: dict[str, str] = {
    "create_execution": "is written from the request, an argument and a line for each field",
    "start_operation": "likewise",
}
FACADES = {
    "Methods": "has a method for each request, written by a tool",
    "EngineBackend": "names every operation of the engine; the list is the specification's",
    "Engine": "offers one method per operation; the work is in the operation modules",
    "Fabric": "is the one object a user holds",
}

Finding = tuple[bool, str]  # (fails, text)


def judge(subject: str, size: int, warn: int, fail: int) -> Iterator[Finding]:
    if size > fail:
        yield True, f"{subject} has {size} lines (at most {fail})"
    elif size > warn:
        yield False, f"{subject} has {size} lines (aim for {warn} or fewer)"


def judge_class(where: str, node: ast.ClassDef) -> Iterator[Finding]:
    methods = {
        item.name
        for item in node.body
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and item.name[0] != "_"
    }
    if len(methods) > PUBLIC_METHODS_WARN and node.name not in FACADES:
        count = f"{len(methods)} public methods (aim for {PUBLIC_METHODS_WARN} or fewer)"
        yield False, f"{where}:{node.lineno} class {node.name} has {count}"


def judge_objects(src: Path) -> Iterator[Finding]:
    """A large object cut into a chain of bases is as large as before."""
    classes: dict[str, list[tuple[Path, ast.ClassDef]]] = {}
    for file in sorted(src.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append((file, node))

    def chain(name: str) -> dict[str, int]:
        """The class and its bases, each with its lines; a name that two classes share is left."""
        found = classes.get(name, [])
        if len(found) != 1 or name in FACADES:
            return {}
        node = found[0][1]
        sizes = {name: (node.end_lineno or node.lineno) - node.lineno + 1}
        for base in node.bases:
            sizes |= chain(ast.unparse(base).partition("[")[0].rpartition(".")[2])
        return sizes

    for name, found in classes.items():
        sizes = chain(name)
        if len(sizes) > 1 and sum(sizes.values()) > OBJECT_LINES_WARN:
            file, node = found[0]
            text = f"has {sum(sizes.values())} lines with its bases {', '.join(list(sizes)[1:])}"
            yield False, f"{file}:{node.lineno} class {name} {text}"


def findings(src: Path) -> Iterator[Finding]:
    yield from judge_objects(src)
    for file in sorted(src.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if file.relative_to(src).as_posix() not in EXEMPT_MODULES:
            yield from judge(f"{file}:1 module", len(text.splitlines()), MODULE_WARN, MODULE_FAIL)
        for node in ast.walk(ast.parse(text, filename=str(file))):
            if isinstance(node, ast.ClassDef):
                yield from judge_class(str(file), node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if node.name in EXEMPT_FUNCTIONS:
                    continue
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                subject = f"{file}:{node.lineno} function {node.name}"
                yield from judge(subject, size, FUNCTION_WARN, FUNCTION_FAIL)


def main(src: Path) -> int:
    found = list(findings(src))
    for fails, text in found:
        print(f"{'error' if fails else 'warning'}: {text}")
    failures = sum(fails for fails, _ in found)
    print(f"sizes: {failures} too large, {len(found) - failures} to review")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent.parent / "src"))
