"""Writes src/flowfabric/api/methods.py: one typed method per operation, from the requests.

    python tools/backend_methods.py            write it
    python tools/backend_methods.py --check    say whether it is up to date

A request and its method never differ, because only the request is written by hand.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
API = ROOT / "src" / "flowfabric" / "api"
TARGET = API / "methods.py"
# In the order of an execution's life, then what is around it.
SUBJECTS = (
    *(
        "executions",
        "control",
        "retries",
        "bulk",
        "dead",
        "failures",
        "leases",
        "journal",
        "code",
        "streams",
        "logs",
        "grants",
        "waits",
        "approvals",
        "mail",
        "flows",
        "flow_graphs",
    ),
    *("schedules", "budgets", "asks", "quotas", "lines", "lanes", "workers", "keys", "access"),
    *("sessions", "audit"),
    *("events", "groups", "statistics", "gauges"),
    *("repairs", "admin"),
)
HEAD = '''"""One typed method per operation, written by tools/backend_methods.py from requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

{imports}

R = TypeVar("R")


class Methods(ABC):
    """Every operation under its name: each method makes a request and asks for it."""

    @abstractmethod
    async def call(self, request: Request[R]) -> R:
        """The answer to one request; a refusal is raised."""
'''


class Subject:
    """One module of requests."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tree = ast.parse((API / f"{name}.py").read_text(encoding="utf-8"))
        self.origins = dict(self._origins())

    def _origins(self) -> Iterator[tuple[str, str]]:
        """Where each name of the module comes from."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                yield from ((alias.asname or alias.name, node.module or "") for alias in node.names)
        here = f"flowfabric.api.{self.name}"
        for top in self.tree.body:
            if isinstance(top, ast.ClassDef):
                yield top.name, here
            elif isinstance(top, ast.Assign):
                yield from ((each.id, here) for each in top.targets if isinstance(each, ast.Name))
            elif isinstance(top, ast.AnnAssign) and isinstance(top.target, ast.Name):
                yield top.target.id, here

    def requests(self) -> Iterator[tuple[ast.ClassDef, ast.Call]]:
        """Each request with its entry into the register."""
        for top in self.tree.body:
            for decorator in getattr(top, "decorator_list", ()):
                if isinstance(top, ast.ClassDef) and _is_entry(decorator):
                    yield top, decorator


def _inherited(base: ast.expr) -> Iterator[ast.AnnAssign]:
    """The fields that a request has from its base."""
    name = ast.unparse(base).partition("[")[0]
    for node in ast.parse((API / "operation.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            yield from (each for each in node.body if isinstance(each, ast.AnnAssign))


def _is_entry(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "operation"


class Writer:
    """The text of the module."""

    def __init__(self) -> None:
        self.imports: set[tuple[str, str]] = {("flowfabric.api.operation", "Request")}
        self.methods: list[str] = []

    def add(self, subject: Subject) -> None:
        """The methods of one subject."""
        rule = "-" * (87 - len(subject.name))
        self.methods.append(f"    # --- {subject.name} {rule}\n")
        self.methods += [self._method(subject, *each) for each in subject.requests()]

    def _method(self, subject: Subject, request: ast.ClassDef, entry: ast.Call) -> str:
        name = ast.literal_eval(entry.args[0])
        options = {each.arg: each.value for each in entry.keywords}
        fields = [each for each in request.body if isinstance(each, ast.AnnAssign)]
        fields += [field for base in request.bases for field in _inherited(base)]
        names = [ast.unparse(each.target) for each in fields]
        given = ast.literal_eval(options["positional"]) if "positional" in options else ()
        positional = given or (("handle",) if names[:1] == ["handle"] else ())
        reply = next(base.slice for base in request.bases if isinstance(base, ast.Subscript))
        parts: list[ast.expr] = [reply]
        arguments = ["self"]
        for at, (field, label) in enumerate(zip(fields, names, strict=True)):
            if at == len(positional):
                arguments.append("*")
            parts += [field.annotation, *([field.value] if field.value else [])]
            default = f" = {ast.unparse(field.value)}" if field.value else ""
            arguments.append(f"{label}: {ast.unparse(field.annotation)}{default}")
        for part in parts:
            self._import(subject, part)
        self.imports.add((f"flowfabric.api.{subject.name}", request.name))
        made = ", ".join(f"{label}={label}" for label in names)
        doc = ast.get_docstring(request) or ""
        text = "\n        ".join(line for line in doc.split("\n")).replace("\n        \n", "\n\n")
        end = "\n        " if "\n" in doc else ""
        return (
            f"    async def {name}({', '.join(arguments)}) -> {ast.unparse(reply)}:\n"
            f'        """{text}{end}"""\n'
            f"        return await self.call({request.name}({made}))\n"
        )

    def _import(self, subject: Subject, node: ast.expr) -> None:
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and each.id in subject.origins:
                self.imports.add((subject.origins[each.id], each.id))

    def text(self) -> str:
        """The module, before it is formatted."""
        lines = [f"from {module} import {name}" for module, name in sorted(self.imports)]
        return HEAD.format(imports="\n".join(lines)) + "\n" + "\n".join(self.methods)


def written() -> str:
    """The module as it should be."""
    writer = Writer()
    for name in SUBJECTS:
        if (API / f"{name}.py").exists():
            writer.add(Subject(name))
    return _formatted(writer.text())


def _formatted(text: str) -> str:
    """As the linter wants it."""
    ruff = Path(sys.executable).with_name("ruff")
    name = f"--stdin-filename={TARGET}"
    for command in (["check", "--fix", "--select=I", "--quiet"], ["format", "--quiet"]):
        run = [str(ruff), *command, name, "-"]
        text = subprocess.run(run, input=text, capture_output=True, text=True, check=True).stdout  # noqa: S603
    return text


def main(arguments: list[str]) -> int:
    """Write or check."""
    text = written()
    if arguments == ["--check"]:
        is_same = TARGET.exists() and TARGET.read_text(encoding="utf-8") == text
        print("api/methods.py is up to date" if is_same else "run tools/backend_methods.py")
        return 0 if is_same else 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
