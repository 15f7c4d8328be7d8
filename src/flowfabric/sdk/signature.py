"""The arguments and the result of a task's function: bound by name, checked and sent as JSON.

The payload of an execution is the object of its named arguments. Arguments that are not given are
not sent: their defaults are the ones of the code that runs.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

import msgspec

from flowfabric.errors import InvalidInput
from flowfabric.sdk import codec
from flowfabric.sdk.errors import InvalidTask
from flowfabric.sdk.options import OPTION_NAMES
from flowfabric.sdk.pieces import assembled

_NAMED: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Signature:
    """The arguments and the result of one function; its context, if it takes one, is not among
    them."""

    def __init__(
        self, function: Callable[..., Any], *, task: str, takes_context: bool = False
    ) -> None:
        self.task = task
        self.takes_context = takes_context
        self._function = function
        parameters = list(inspect.signature(function).parameters.values())
        self.parameters = parameters[1:] if takes_context else parameters
        for parameter in self.parameters:
            _check(parameter, task)
        self._positional = [each.name for each in self.parameters if each.kind in _NAMED]
        self._names = {each.name for each in self.parameters}
        self._required = [
            each.name for each in self.parameters if each.default is inspect.Parameter.empty
        ]
        self._partial: dict[frozenset[str], msgspec.json.Decoder[Any]] = {}

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The given arguments by name; a missing, unknown or doubled one is named."""
        if len(args) > len(self._positional):
            takes = f"{len(self._positional)} positional arguments, {len(args)} were given"
            raise self._wrong("", f"takes {takes}")
        bound: dict[str, Any] = {}
        for at, value in enumerate(args):
            bound[self._positional[at]] = value
        for name, value in kwargs.items():
            if name not in self._names and name in OPTION_NAMES:
                detail = f"{name}= is an option, no argument; write {self.task}.options({name}=…)"
                raise self._wrong(name, f"{detail}, or ff.submit({self.task}, …, {name}=…)")
            if name not in self._names:
                raise self._wrong(name, f"has no argument {name!r}; {self._offer()}")
            if name in bound:
                raise self._wrong(name, f"got the argument {name!r} twice")
            bound[name] = value
        for name in self._required:
            if name not in bound:
                raise self._wrong(name, f"needs the argument {name!r}")
        return bound

    def encode(self, arguments: Mapping[str, Any]) -> bytes:
        """The payload, checked by reading it back as the worker will."""
        payload = self._encoded(arguments)
        self.check(payload)
        return payload

    def encode_own(self, arguments: Mapping[str, Any], pending: frozenset[str]) -> bytes:
        """The payload of a node, checked; arguments from other nodes are not there yet."""
        known = {
            name: value
            for name, value in arguments.items()
            if name in self._names and name not in pending
        }
        self._read(self._decoder_without(pending), self._encoded(known))
        return self._encoded(arguments)

    def _encoded(self, arguments: Mapping[str, Any]) -> bytes:
        try:
            return codec.encode(arguments)
        except codec.EncodeErrors as error:
            name = _first_unsendable(arguments)
            raise self._wrong(name, f"cannot send the argument {name!r}: {error}") from None

    def may_lack(self, name: str) -> bool:
        """Whether the function can be called without an argument."""
        return name not in self._required

    def takes_null(self, name: str) -> bool:
        """Whether an argument may be None."""
        kind = self._hints.get(name, Any)
        try:
            codec.decoder_of(kind, field=name).decode(b"null")
        except codec.DecodeErrors:
            return False
        return True

    def check(self, payload: bytes) -> None:
        """Refuse a payload the function could not be called with."""
        self._read(self._decoder, payload)

    def _read(self, decoder: msgspec.json.Decoder[Any], payload: bytes) -> Any:
        try:
            return decoder.decode(payload)
        except codec.DecodeErrors as error:
            name, detail = codec.where(error)
            raise self._wrong(name, detail) from None

    def arguments(self, payload: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments to call the function with. Raises `codec.DecodeErrors`."""
        values = msgspec.structs.astuple(self._decode(payload or b"{}"))
        if self._is_plain:
            return values, {}
        return self._apply_defaults(values)

    def _decode(self, payload: bytes) -> Any:
        try:
            return self._decoder.decode(payload)
        except codec.DecodeErrors:
            whole = assembled(payload)  # results of several nodes arrive in pieces
            if whole is None:
                raise
            return self._decoder.decode(whole)

    def named_arguments(
        self, payload: bytes, pending: frozenset[str] = frozenset()
    ) -> dict[str, Any]:
        """The arguments by name, defaults included, as far as they are known before it runs."""
        if pending:
            known = self._read(self._decoder_without(pending), _only(payload, self._names, pending))
            values = msgspec.structs.asdict(known)
            defaults = {each.name: each.default for each in self.parameters}
            return {
                name: defaults[name] if value is msgspec.UNSET else value
                for name, value in values.items()
            }
        args, kwargs = self.arguments(payload)
        return dict(zip(self._positional, args, strict=True)) | kwargs

    @cached_property
    def result_decoder(self) -> msgspec.json.Decoder[Any]:
        """Reads results as the annotated type."""
        hint = self._hints.get("return", Any)
        return codec.decoder_of(hint, field=f"result of {self.task}")

    def _apply_defaults(self, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter, value in zip(self.parameters, values, strict=True):
            given = parameter.default if value is msgspec.UNSET else value
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                kwargs[parameter.name] = given
            else:
                args.append(given)
        return tuple(args), kwargs

    def resolve(self) -> None:
        """Read every annotation now; one that names something undefined waits for first use."""
        try:
            self._hints  # noqa: B018 - evaluated for its check
        except InvalidTask:
            return
        self._decoder, self.result_decoder  # noqa: B018 - evaluated for their check

    @cached_property
    def _is_plain(self) -> bool:
        return len(self._required) == len(self._positional) == len(self.parameters)

    @cached_property
    def _hints(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(self._function, include_extras=True)
        except NameError as error:
            detail = f"{self.task}: {error}; the types of a task must be defined in its module"
            raise InvalidTask(detail, field=str(error.name)) from None

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        return self._make_decoder(frozenset())

    def _decoder_without(self, pending: frozenset[str]) -> msgspec.json.Decoder[Any]:
        found = self._partial.get(pending)
        if found is None:
            found = self._partial[pending] = self._make_decoder(pending)
        return found

    def _make_decoder(self, pending: frozenset[str]) -> msgspec.json.Decoder[Any]:
        fields: list[Any] = []
        for parameter in self.parameters:
            if parameter.name in pending:
                continue
            kind = self._hints.get(parameter.name, Any)
            codec.decoder_of(kind, field=f"{self.task}.{parameter.name}")
            if parameter.default is inspect.Parameter.empty:
                fields.append((parameter.name, kind))
            else:
                fields.append((parameter.name, kind, msgspec.UNSET))
        shape = msgspec.defstruct(
            "Arguments", fields, kw_only=True, forbid_unknown_fields=True, gc=False
        )
        return codec.decoder_of(shape, field=self.task)

    def _offer(self) -> str:
        takes = ", ".join(each.name for each in self.parameters) or "no arguments"
        return f"it takes {takes}; submit options are {', '.join(sorted(OPTION_NAMES))}"

    def _wrong(self, name: str, detail: str) -> InvalidInput:
        return InvalidInput(f"{self.task}: {detail}", field=name, task=self.task)


def _check(parameter: inspect.Parameter, task: str) -> None:
    name = parameter.name
    if parameter.kind in _VARIADIC:
        raise InvalidTask(f"{task}: *{name}: the arguments of a task have names", field=name)
    if name in OPTION_NAMES:
        detail = f"{task}: the argument {name!r} is also a submit option; give it another name"
        raise InvalidTask(detail, field=name)


def _only(payload: bytes, names: set[str], pending: frozenset[str]) -> bytes:
    """The part of a payload that is known already."""
    given = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({n: v for n, v in given.items() if n in names and n not in pending})


def _first_unsendable(arguments: Mapping[str, Any]) -> str:
    for name, value in arguments.items():
        try:
            codec.encode(value)
        except codec.EncodeErrors:
            return name
    return ""
