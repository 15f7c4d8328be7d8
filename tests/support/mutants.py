"""Plant a fault: words of a function rewritten, wherever the function is known."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from flowfabric.engine.unit.handlers import HANDLERS
from flowfabric.kernel.registry import RULES

if TYPE_CHECKING:
    import pytest


class Mutant(NamedTuple):
    """Which function, what it says, and what it says instead."""

    function: Callable[..., Any]
    says: str
    instead: str


def plant(mutants: Sequence[Mutant], patch: pytest.MonkeyPatch) -> None:
    """Replace each function by its mutant until the patch is undone."""
    for function in dict.fromkeys(mutant.function for mutant in mutants):
        changes = [(each.says, each.instead) for each in mutants if each.function is function]
        _put(cast("FunctionType", function), _rewritten(function, changes), patch)


def _rewritten(function: Callable[..., Any], changes: list[tuple[str, str]]) -> FunctionType:
    source = textwrap.dedent(inspect.getsource(function))
    source = re.sub(r"\A(@.*\n)+", "", source)  # a decorator would enter the mutant for good
    for says, instead in changes:
        assert source.count(says) == 1, f"{function.__name__} does not say once: {says}"
        source = source.replace(says, instead)
    home = vars(sys.modules[function.__module__])
    scope = dict(home)
    exec(source, scope)  # noqa: S102 - the kernel's own source, one line changed
    twin = cast("FunctionType", scope[function.__name__])
    # The mutant lives among its module's own names, so that two mutants see each other.
    mutant = FunctionType(twin.__code__, home, twin.__name__, twin.__defaults__)
    mutant.__kwdefaults__ = twin.__kwdefaults__
    return mutant


def _put(original: FunctionType, mutant: FunctionType, patch: pytest.MonkeyPatch) -> None:
    if "." in original.__qualname__:
        owner = original.__qualname__.split(".", maxsplit=1)[0]
        patch.setattr(vars(sys.modules[original.__module__])[owner], original.__name__, mutant)
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("flowfabric."):
            for name, value in list(vars(module).items()):
                if value is original:
                    patch.setattr(module, name, mutant)
    registers: tuple[dict[Any, Any], ...] = (RULES, HANDLERS)
    for register in registers:
        for command, known in list(register.items()):
            if known is original:
                patch.setitem(register, command, mutant)
