"""Writes docs/reference/api.md from the signatures and docstrings of the public names,
docs/reference/operations.md from the register of operations, and docs/reference/http.md from the
table of routes.

python tools/api_reference.py            write the pages
python tools/api_reference.py --check    fail when a page is not what the code says
"""

from __future__ import annotations

import enum
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Callable, Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

import flowfabric
from flowfabric.api.methods import Methods
from flowfabric.api.operation import COMMON_ERRORS, OPERATIONS, Operation
from flowfabric.model.record import Record
from flowfabric.sdk.decorator import TaskDecorator
from flowfabric.server.openapi.markdown import markdown
from flowfabric.server.routes.all import DESCRIPTION

PAGES = Path(__file__).resolve().parents[1] / "docs" / "reference"
WIDTH = 100

# Every public name stands in exactly one chapter; `chapters` refuses a name that is left out.
CHAPTERS: dict[str, tuple[str, ...]] = {
    "Programs": ("Fabric", "@ff.task", "Task", "Call", "Run", "RunFilter", "EngineConfig"),
    "Handlers": (
        "Context",
        "Spend",
        "Child",
        "Waitpoint",
        "ReceivedSignal",
        "Message",
        "Retry",
        "Fatal",
    ),
    "Workers": ("Worker",),
    "Retries": ("RetryPolicy", "FixedBackoff", "ExponentialBackoff"),
    "Flows": (
        "Flow",
        "FlowRun",
        "Node",
        "Join",
        "NodeChange",
        "all_of",
        "any_of",
        "quorum",
        "all_done",
        "CancellationPolicy",
    ),
    "Waits": ("Wait", "signal", "approval", "count"),
    "Without asyncio": (
        "SyncFabric",
        "SyncRun",
        "SyncContext",
        "SyncMessage",
        "SyncSpend",
        "SyncFlow",
        "SyncFlowRun",
    ),
}
NOT_IMPORTED: dict[str, Any] = {"@ff.task": TaskDecorator}  # reached through another name
ANSWERS = "Answers"  # what calls return: values to read, not to make
ERRORS = "Errors"

INTRODUCTION = """\
# Python API

Everything `from flowfabric import …` gives, from the signatures and docstrings of the code.
`tools/api_reference.py` writes this page and a test keeps it current; do not edit it by hand.
"""

OPERATIONS_INTRODUCTION = """\
# Operations

Everything an engine can be asked for, from the register in `flowfabric.api`: `await backend.ping()`
and `await backend.call(Ping())` are the same. `tools/api_reference.py` writes this page and a test
keeps it current; do not edit it by hand.

* **Kind**: *read* changes nothing, *write* is one commit or nothing, *wait* answers when something
  has happened or when `wait_ms` is over, *admin* is about the installation.
* **Scope**: what a key must allow before the operation may be asked for over a wire.
* **`wait_ms`**: how long the operation may wait, in milliseconds; 0 is not at all. `None`, where it
  is taken, is as long as it lasts.
* **`cursor`, `limit`**: a listing answers a [page](#page) of at most `limit` items. Hand its
  `next_cursor` back as `cursor` for those that follow; without one it was the last page. A `limit`
  of 0 is answered with none.
* **Errors**: those of the operation itself; see [errors](errors.md). Each may also raise
"""

HTTP_INTRODUCTION = """\
# HTTP API

Every path of a server, from its table of routes. `GET /openapi.json` and `ff openapi` give the same
for programs, `GET /docs` shows it as a page. The [guide](../guides/server.md) tells how to begin.
`tools/api_reference.py` writes this page and a test keeps it current; do not edit it by hand.
"""


def chapters() -> Iterator[tuple[str, list[str]]]:
    """Every public name in its chapter."""
    named = {name for names in CHAPTERS.values() for name in names}
    public = set(flowfabric.__all__)
    if strangers := named - public - NOT_IMPORTED.keys():
        raise SystemExit(f"CHAPTERS names what is not public: {', '.join(sorted(strangers))}")
    rest = sorted(public - named)
    errors = [name for name in rest if _is_error(getattr(flowfabric, name))]
    for title, names in CHAPTERS.items():
        yield title, list(names)
    yield ANSWERS, [name for name in rest if name not in errors]
    yield ERRORS, errors


def _is_error(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, BaseException)


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for title, names in chapters():
        parts.append(f"## {title}\n")
        if title == ERRORS:
            parts.append("With codes and advice: [errors](errors.md).\n")
            parts += [_line(name, getattr(flowfabric, name)) for name in names]
            parts.append("")
        else:
            parts += [_entry(name, _thing(name)) for name in names]
    return "\n".join(parts).rstrip() + "\n"


def _thing(name: str) -> Any:
    return NOT_IMPORTED[name] if name in NOT_IMPORTED else getattr(flowfabric, name)


def _line(name: str, thing: Any) -> str:
    return f"* `{name}`: {_first_sentence(thing)}"


def _first_sentence(thing: Any) -> str:
    text = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    return text.split("```")[0].strip()


def _entry(name: str, thing: Any) -> str:
    if not inspect.isclass(thing):
        return f"### {name}\n\n{_signature(name, thing)}\n\n{_doc(thing)}\n"
    parts = [f"### {name}\n"]
    if _has_own_init(thing):
        parts.append(_signature(name, thing.__init__, bound=True) + "\n")
    parts.append(_doc(thing) + "\n")
    if fields := _fields(thing):
        parts.append(fields + "\n")
    parts += [_member(name, word, member) for word, member in _members(thing)]
    return "\n".join(parts)


def _has_own_init(cls: type) -> bool:
    """Whether a program makes one itself: handles and answers are given, not made."""
    return cls.__name__ in ("Fabric", "Worker")


def _fields(cls: type, hints: dict[str, Any] | None = None) -> str:
    """The words of an enumeration, or the fields of a value; as the source says, if not given."""
    if issubclass(cls, enum.Enum):
        return "One of " + ", ".join(f"`{each.value}`" for each in cls) + "."
    names = getattr(cls, "__struct_fields__", None)
    if names is None:
        names = tuple(getattr(cls, "__dataclass_fields__", ()))
    hints = hints or _hints(cls)
    shown = [f"`{name}: {_type(hints.get(name))}`" for name in names if not name.startswith("_")]
    return "Fields: " + ", ".join(shown) + "." if shown else ""


def _hints(cls: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        found.update(inspect.get_annotations(base))
    return found


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties, the class's own before what it inherits."""
    if issubclass(cls, enum.Enum):
        return
    seen: set[str] = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("flowfabric"):
            continue
        for word, member in vars(base).items():
            is_shown = inspect.isfunction(member) or isinstance(member, property | cached_property)
            if is_shown and not word.startswith("_") and word not in seen:
                seen.add(word)
                yield word, member


def _member(owner: str, word: str, member: Any) -> str:
    if isinstance(member, property | cached_property):
        getter = member.fget if isinstance(member, property) else member.func
        kind = _type(inspect.get_annotations(getter).get("return")) if getter else ""
        return f"#### {owner}.{word}\n\n`{kind}`. {_doc(member)}\n"
    return f"#### {owner}.{word}\n\n{_signature(word, member, bound=True)}\n\n{_doc(member)}\n"


def _signature(name: str, function: Callable[..., Any], *, bound: bool = False) -> str:
    """A definition as one would write it, a parameter a line where it is long."""
    form = inspect.signature(function)
    parameters = list(form.parameters.values())[1 if bound else 0 :]
    returns = "" if name[0].isupper() else f" -> {_type(form.return_annotation)}"
    prefix = "await " if inspect.iscoroutinefunction(function) else ""
    return _written(f"{prefix}{name}", parameters, returns)


def _written(name: str, parameters: list[inspect.Parameter], returns: str) -> str:
    shown = _parameters(parameters)
    text = f"{name}({', '.join(shown)}){returns}"
    if len(text) > WIDTH:
        text = f"{name}(\n" + "".join(f"    {each},\n" for each in shown) + f"){returns}"
    return f"```\n{text}\n```"


def _parameters(parameters: list[inspect.Parameter]) -> list[str]:
    shown: list[str] = []
    kinds = [each.kind for each in parameters]
    for index, each in enumerate(parameters):
        is_first_keyword = each.kind is each.KEYWORD_ONLY and each.KEYWORD_ONLY not in kinds[:index]
        if is_first_keyword and each.VAR_POSITIONAL not in kinds[:index]:
            shown.append("*")
        shown.append(_parameter(each))
        is_last_positional = each.kind is each.POSITIONAL_ONLY and (
            kinds[index + 1 : index + 2] != [each.POSITIONAL_ONLY]
        )
        if is_last_positional:
            shown.append("/")
    return shown


def _parameter(parameter: inspect.Parameter) -> str:
    text = parameter.name
    if parameter.kind is parameter.VAR_POSITIONAL:
        text = f"*{text}"
    elif parameter.kind is parameter.VAR_KEYWORD:
        text = f"**{text}"
    if parameter.annotation is not parameter.empty:
        text += f": {_type(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        text += f" = {_default(parameter.default)}"
    return text


def _default(value: Any) -> str:
    text = repr(value)
    return "…" if " object at 0x" in text else text  # an address would differ from run to run


def _type(annotation: Any) -> str:
    """An annotation as the source says it, without module names."""
    if isinstance(annotation, str):
        text = annotation
    elif annotation is None or annotation is inspect.Signature.empty:
        return "None"
    elif inspect.isclass(annotation) and not typing.get_args(annotation):
        text = annotation.__name__
    else:
        text = str(annotation)
    text = re.sub(r"\b(?:[a-z_]\w*\.)+|~", "", text).replace("NoneType", "None")
    text = re.sub(r"Optional\[([^\[\]]+)\]", r"\1 | None", text)
    return re.sub(r"\bInstant\b", "int", text)  # a caller need not know what a column holds


def _doc(thing: Any) -> str:
    text = inspect.getdoc(thing) or ""
    return textwrap.dedent(text).strip()


# --- operations ----------------------------------------------------------------------------------


def operations_page() -> str:
    """The register, subject by subject, and the values that requests and replies are made of."""
    common = ", ".join(f"`{kind.__name__}`" for kind in COMMON_ERRORS)
    parts = [
        OPERATIONS_INTRODUCTION + textwrap.indent(textwrap.fill(f"{common}.", WIDTH - 2), "  ")
    ]
    for subject, operations in _subjects().items():
        about = _doc(import_module(f"flowfabric.api.{subject}"))
        parts.append(f"\n## {subject.capitalize()}\n\n{about}\n")
        parts += [_operation(each) for each in operations]
    parts.append("## Values\n\nWhat requests hold and what is answered.\n")
    parts += [_value(kind) for kind in sorted(_values(), key=lambda each: each.__name__)]
    return "\n".join(parts).rstrip() + "\n"


def _subjects() -> dict[str, list[Operation]]:
    """The operations of each module of requests, in the order of the methods."""
    found: dict[str, list[Operation]] = {}
    for name in vars(Methods):
        if name in OPERATIONS:
            subject = OPERATIONS[name].request.__module__.rpartition(".")[2]
            found.setdefault(subject, []).append(OPERATIONS[name])
    return found


def _operation(operation: Operation) -> str:
    facts = [f"*{operation.kind.value}*", f"scope *{operation.scope.value}*"]
    if operation.is_local:
        facts.append("only in the engine's own process")
    if operation.errors:
        facts.append("errors " + ", ".join(f"`{kind.__name__}`" for kind in operation.errors))
    doc = _doc(operation.request).replace("  # doctest: +SKIP", "")
    doc = re.sub(r"^(>>> .*(?:\n.+)*)", r"```\n\1\n```", doc, flags=re.MULTILINE)
    return f"### {operation.name}\n\n{_call(operation)}\n\n{doc}\n\n{' · '.join(facts)}\n"


def _call(operation: Operation) -> str:
    """The method as one would call it: types are those of the wire."""
    hints = typing.get_type_hints(operation.request)
    keyword, either = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        inspect.Parameter(
            field.name,
            either if field.name in operation.positional else keyword,
            default=_left_out(field),
            annotation=hints[field.name],
        )
        for field in msgspec.structs.fields(operation.request)
    ]
    return _written(operation.name, parameters, f" -> {_type(operation.reply)}")


def _left_out(field: msgspec.structs.FieldInfo) -> Any:
    """What a field is when it is not given; nothing for one that must be."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    if field.default is msgspec.NODEFAULT:
        return inspect.Parameter.empty
    return field.default.value if isinstance(field.default, enum.Enum) else field.default


def _values() -> set[type]:
    """Every record and enumeration that requests and replies are made of."""
    found: set[type] = set()
    for operation in OPERATIONS.values():
        for hint in (operation.reply, *typing.get_type_hints(operation.request).values()):
            _collect(hint, found)
    return found


def _collect(hint: Any, found: set[type]) -> None:
    for part in typing.get_args(hint):
        _collect(part, found)
    kind = typing.get_origin(hint) or hint
    if not inspect.isclass(kind) or kind in found or not issubclass(kind, enum.Enum | Record):
        return
    found.add(kind)
    for each in typing.get_type_hints(kind).values() if issubclass(kind, Record) else ():
        _collect(each, found)


def _value(kind: type) -> str:
    doc = _doc(kind).split(">>>")[0].rstrip()
    shown = _fields(kind, None if issubclass(kind, enum.Enum) else typing.get_type_hints(kind))
    return f"### {kind.__name__}\n\n{doc}\n\n{shown or 'No fields.'}\n"


def http_page() -> str:
    """The paths of a server."""
    return f"{HTTP_INTRODUCTION}\n{markdown(DESCRIPTION.document(''))}"


# --- the pages -----------------------------------------------------------------------------------


def main(words: list[str]) -> int:
    """Write the pages, or compare them."""
    stale = 0
    pages = {"api.md": page, "operations.md": operations_page, "http.md": http_page}
    for name, write in pages.items():
        text = write()
        path = PAGES / name
        if words != ["--check"]:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{name} is not what the code says: run tools/api_reference.py\n")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
