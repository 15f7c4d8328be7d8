"""Keys computed from a task's arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from flowfabric.errors import InvalidInput
from flowfabric.model.shown import shown
from flowfabric.sdk.errors import InvalidTask
from flowfabric.sdk.signature import Signature


class KeyOf:
    """A function of some of a task's arguments, found by their names.

    ```
    @ff.task(quota="per-customer", concurrency_key=lambda customer: customer)
    async def crawl(customer: str, url: str, depth: int = 3) -> int: ...
    ```
    """

    def __init__(
        self, function: Callable[..., Any], form: Signature, field: str = "concurrency_key"
    ) -> None:
        self._function = function
        self._field = field
        self._form = form
        offered = [each.name for each in form.parameters]
        taken = _parameters(function, form.task, field)
        self._takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken)
        self._names = [each.name for each in taken if each.name in offered]
        for each in taken:
            is_needed = each.default is inspect.Parameter.empty and each.kind in _NAMED
            if is_needed and each.name not in offered:
                known = ", ".join(offered) or "none"
                detail = f"it takes {each.name!r}; the arguments are {known}"
                raise _invalid(form.task, field, detail)

    def __call__(self, payload: bytes, pending: frozenset[str] = frozenset()) -> str | None:
        """The key of one submission; None counts it with those without a key.

        Arguments that are `pending` come from other nodes of a flow and are not known yet.
        """
        arguments = self._form.named_arguments(payload, pending)
        if not self._takes_all:
            for name in pending.intersection(self._names):
                detail = (
                    f"{self._form.task}: its {self._field} is made of {name!r}, the result of "
                    f"another node; give {self._field}=… here"
                )
                raise InvalidInput(detail, field=self._field)
            arguments = {name: arguments[name] for name in self._names}
        key = self._function(**arguments)
        if isinstance(key, int) and not isinstance(key, bool):
            return str(key)  # customers are often numbered
        if key is None or isinstance(key, str):
            return key
        detail = f"{self._form.task}: {self._field} gave {shown(key)}, not text"
        raise InvalidInput(detail, field=self._field)


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _parameters(function: Callable[..., Any], task: str, field: str) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise _invalid(task, field, "write it as a lambda or a function") from None
    if any(each.kind is inspect.Parameter.POSITIONAL_ONLY for each in parameters):
        detail = "its arguments are found by name: it may have no positional-only ones"
        raise _invalid(task, field, detail)
    return parameters


def _invalid(task: str, field: str, detail: str) -> InvalidTask:
    return InvalidTask(f"{task}: {field}: {detail}", field=field)
