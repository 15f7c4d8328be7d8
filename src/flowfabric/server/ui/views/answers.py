"""What a person filled in: the form as it is shown, and the payload that it stands for.

A blank is no answer: an optional part is left out then, or null where only that is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from flowfabric.errors import InvalidInput
from flowfabric.model.record import Record, from_json, replace, to_json
from flowfabric.server.ui.views.forms import ROOT, Choice, Field, FieldKind, input_name
from flowfabric.server.ui.views.typed import Wrong, instant_of, value_of

ROWS_MAX: Final = 100  # of a list
_YES: Final = "yes"


class Entry(Record, frozen=True, kw_only=True):
    """A field with what stands in it. `members`: of a group; of a list its rows."""

    field: Field
    name: str
    text: str = ""
    is_on: bool = False
    chosen: tuple[str, ...] = ()
    members: tuple[Entry, ...] = ()
    problem: str | None = None

    @property
    def anchor(self) -> str:
        """Its id on the page."""
        return f"i-{self.name}"

    @property
    def choices(self) -> tuple[tuple[Choice, bool], ...]:
        """Each choice, and whether it is taken."""
        return tuple((each, each.token in self.chosen) for each in self.field.choices)

    @property
    def kind(self) -> str:
        """The kind of its field, for templates."""
        return self.field.kind.value

    @property
    def is_needed(self) -> bool:
        """Whether a browser may insist on it: in an optional group nothing is needed."""
        return self.field.is_required and not self.field.is_nullable

    def problems(self) -> tuple[tuple[str, str], ...]:
        """What is wrong, each with the id of its place."""
        own = (
            () if self.problem is None else ((self.anchor, f"{self.field.label}: {self.problem}"),)
        )
        return (*own, *(each for member in self.members for each in member.problems()))


class Filled(Record, frozen=True, kw_only=True):
    """A form that was posted: as it is shown again, and the payload if nothing is wrong."""

    entry: Entry
    payload: bytes | None

    def checked(self) -> bytes:
        """The payload; the first thing that is wrong is refused by the name of its field."""
        if self.payload is not None:
            return self.payload
        field, problem = _first(self.entry, "payload") or ("payload", "is not complete")
        raise InvalidInput(f"{field}: {problem}", field=field)


def blank(field: Field) -> Entry:
    """The form as it is shown first."""
    return _shown(field, ROOT, _default(field))


def filled(field: Field, posted: Sequence[tuple[str, str]], more: str = "") -> Filled:
    """What was posted. `more`: the name of a list that is to have another row."""
    given: dict[str, list[str]] = {}
    for name, value in posted:
        if name == ROOT or name.startswith(f"{ROOT}."):
            given.setdefault(name, []).append(value)
    reading = _Reading(given, more)
    entry, value = reading.read(field, ROOT)
    if unknown := set(given) - reading.known:
        entry = replace(entry, problem=f"there is no field {min(unknown)!s:.80}")
        value = _MISSING
    if value is _MISSING or entry.problems():
        return Filled(entry=entry, payload=None)
    return Filled(entry=entry, payload=to_json(value))


def with_problem(entry: Entry, detail: str) -> Entry:
    """The form with what the engine says of its payload, at its place if there is one."""
    path, _, text = detail.partition(": ")
    return _marked(entry, path, "payload", text or detail) or replace(entry, problem=detail)


def _marked(entry: Entry, path: str, own: str, text: str) -> Entry | None:
    if path == own:
        return replace(entry, problem=text)
    for at, member in enumerate(entry.members):
        inner = (
            f"{own}[{at}]" if entry.field.kind is FieldKind.LIST else f"{own}.{member.field.key}"
        )
        if path == inner or path.startswith((f"{inner}.", f"{inner}[")):
            found = _marked(member, path, inner, text) or replace(member, problem=text)
            return replace(entry, members=_with(entry.members, at, found))
    return None


def _with(members: tuple[Entry, ...], at: int, member: Entry) -> tuple[Entry, ...]:
    return (*members[:at], member, *members[at + 1 :])


def _first(entry: Entry, path: str) -> tuple[str, str] | None:
    if entry.problem is not None:
        return path, entry.problem
    for at, member in enumerate(entry.members):
        inner = f"[{at}]" if entry.field.kind is FieldKind.LIST else f".{member.field.key}"
        if found := _first(member, path + inner):
            return found
    return None


# --- showing -------------------------------------------------------------------------------------


class _Missing:
    """There is no value."""


_MISSING: Final[Any] = _Missing()


def _shown(field: Field, name: str, value: Any) -> Entry:
    """A field with a value in it, or none."""
    entry = Entry(field=field, name=name)
    match field.kind:
        case FieldKind.GROUP:
            inner = value if isinstance(value, Mapping) else {}
            return replace(entry, is_on=bool(inner), members=tuple(_of_group(field, name, inner)))
        case FieldKind.LIST:
            rows = value[:ROWS_MAX] if isinstance(value, list) else []
            rows = [
                *rows,
                *[_MISSING] * max(1 if not rows else 0, (field.shortest or 0) - len(rows)),
            ]
            return replace(entry, members=_rows(field, name, rows))
        case FieldKind.SWITCH:
            return replace(entry, is_on=value is True)
        case FieldKind.CHOICES:
            several = value if isinstance(value, list) else []
            return replace(entry, chosen=tuple(to_json(each).decode() for each in several))
        case FieldKind.CHOICE | FieldKind.FIXED:
            chosen = () if value is _MISSING or value is None else (to_json(value).decode(),)
            return replace(entry, chosen=chosen)
        case FieldKind.JSON:
            return replace(entry, text="" if value is _MISSING else to_json(value).decode())
        case _:
            return replace(entry, text=_as_text(field, value))


def _of_group(field: Field, name: str, values: Mapping[str, Any]) -> list[Entry]:
    found = []
    for each in field.members:
        value = values[each.key] if each.key in values else _default(each)
        found.append(_shown(each, input_name(name, each.key), value))
    return found


def _default(field: Field) -> Any:
    return _MISSING if field.default is None else from_json(field.default, object, field="form")


def _rows(field: Field, name: str, values: Sequence[Any]) -> tuple[Entry, ...]:
    (item,) = field.members
    return tuple(_shown(item, input_name(name, at), value) for at, value in enumerate(values))


def _as_text(field: Field, value: Any) -> str:
    if isinstance(value, str):
        if field.kind is FieldKind.DATE_TIME:
            read = instant_of(value)
            return value if read is None else read.strftime("%Y-%m-%dT%H:%M:%S")
        return value
    return "" if value is _MISSING or value is None else to_json(value).decode()


# --- reading -------------------------------------------------------------------------------------


class _Reading:
    """Reads one posted form."""

    def __init__(self, given: Mapping[str, Sequence[str]], more: str) -> None:
        self._given = given
        self._more = more
        self.known: set[str] = set()

    def read(self, field: Field, name: str) -> tuple[Entry, Any]:
        """A field as it was filled in, and its value; the value is missing if it is wrong, or if it
        was left out."""
        match field.kind:
            case FieldKind.GROUP:
                return self._group(field, name)
            case FieldKind.LIST:
                return self._list(field, name)
            case FieldKind.FIXED:
                entry = Entry(field=field, name=name)
                return entry, from_json(field.choices[0].token, object, field=name)
            case FieldKind.SWITCH:
                is_on = self._one(name) == _YES
                return Entry(field=field, name=name, is_on=is_on), is_on
            case FieldKind.CHOICES:
                return self._choices(field, name)
            case _:
                return self._text(field, name)

    def is_blank(self, field: Field, name: str) -> bool:
        """Whether nothing was filled in there: all is empty, or as it stood there at first."""
        if field.kind is FieldKind.GROUP:
            inner = ((each, input_name(name, each.key)) for each in field.members)
            return all(self.is_blank(*each) for each in inner)
        if field.kind is FieldKind.LIST:
            rows = range(self._rows_shown(name))
            return all(self.is_blank(field.members[0], input_name(name, at)) for at in rows)
        if field.kind is FieldKind.FIXED:
            return True
        given = [each.strip() for each in self._given.get(name, ())]
        first = _shown(field, name, _default(field))
        if field.kind is FieldKind.SWITCH:
            return (_YES in given) is first.is_on
        return not any(given) or given in ([first.text], list(first.chosen))

    def _one(self, name: str) -> str:
        self.known.add(name)
        values = self._given.get(name, ())
        return values[-1] if values else ""

    def _group(self, field: Field, name: str) -> tuple[Entry, Any]:
        read = [self.read(each, input_name(name, each.key)) for each in field.members]
        members = tuple(entry for entry, _ in read)
        entry = Entry(field=field, name=name, members=members)
        if not _is_needed(field) and self.is_blank(field, name):
            plain = replace(entry, members=tuple(_without_problems(each) for each in members))
            return plain, _left_out(field)
        found = {
            each.key: value
            for each, (_, value) in zip(field.members, read, strict=True)
            if value is not _MISSING
        }
        return replace(entry, is_on=True), found

    def _rows_shown(self, name: str) -> int:
        row = re.compile(re.escape(name) + r"\.([0-9]{1,3})(\..*)?")
        numbers = [int(found[1]) + 1 for each in self._given if (found := row.fullmatch(each))]
        return min(max(numbers, default=0), ROWS_MAX)

    def _list(self, field: Field, name: str) -> tuple[Entry, Any]:
        (item,) = field.members
        rows: list[Entry] = []
        values: list[Any] = []
        for at in range(self._rows_shown(name)):
            place = input_name(name, at)
            entry, value = self.read(item, place)
            if self.is_blank(item, place):
                continue
            rows.append(_renamed(entry, input_name(name, len(rows))))
            values.append(value)
        problem = _wrong_size(len(values), field) if values or _is_needed(field) else None
        if not values and not _is_needed(field):
            found = _left_out(field)
        else:
            found = _MISSING if any(each is _MISSING for each in values) else values
        blanks = 1 if self._more == name or not rows else 0
        blanks = max(blanks, (field.shortest or 0) - len(rows))
        shown = (*rows, *_blank_rows(item, name, len(rows), blanks))
        return Entry(field=field, name=name, members=shown[:ROWS_MAX], problem=problem), found

    def _choices(self, field: Field, name: str) -> tuple[Entry, Any]:
        self.known.add(name)
        given = self._given.get(name, ())
        taken = [each for each in field.choices if each.token in given]
        entry = Entry(field=field, name=name, chosen=tuple(each.token for each in taken))
        if set(given) - {each.token for each in taken}:
            return replace(entry, problem="is none of the choices"), _MISSING
        if not taken and not _is_needed(field):
            return entry, _left_out(field)
        values = [from_json(each.token, object, field=name) for each in taken]
        return replace(entry, problem=_wrong_size(len(values), field)), values

    def _text(self, field: Field, name: str) -> tuple[Entry, Any]:
        text = self._one(name).replace("\r\n", "\n")
        entry = Entry(field=field, name=name, text=text, chosen=(text,))
        if len(self._given.get(name, ())) > 1:
            return replace(entry, problem="was sent twice"), _MISSING
        if not text.strip():
            if _is_needed(field):
                return replace(entry, problem="is required"), _MISSING
            return entry, _left_out(field)
        try:
            return entry, value_of(field, text)
        except Wrong as wrong:
            return replace(entry, problem=str(wrong)), _MISSING


def _is_needed(field: Field) -> bool:
    return field.is_required and not field.is_nullable


def _left_out(field: Field) -> Any:
    """What a blank stands for: nothing at all, unless that would be something else than null."""
    if field.is_nullable and (field.is_required or field.default not in (None, b"null")):
        return None
    is_text = field.kind in (FieldKind.TEXT, FieldKind.LONG_TEXT) and not field.format
    has_said = not field.is_required and (field.default or b"")[:1] == b'"'
    if is_text and has_said and not field.shortest:
        return ""  # what stood there was taken away
    if field.kind in (FieldKind.LIST, FieldKind.CHOICES) and field.default not in (None, b"[]"):
        return []
    return _MISSING


def _without_problems(entry: Entry) -> Entry:
    members = tuple(_without_problems(each) for each in entry.members)
    return replace(entry, problem=None, members=members)


def _renamed(entry: Entry, name: str) -> Entry:
    """A row at another place: those before it were blank."""
    members = tuple(
        _renamed(
            each, input_name(name, at if entry.field.kind is FieldKind.LIST else each.field.key)
        )
        for at, each in enumerate(entry.members)
    )
    return replace(entry, name=name, members=members)


def _blank_rows(item: Field, name: str, first: int, several: int) -> list[Entry]:
    return [_shown(item, input_name(name, first + at), _MISSING) for at in range(max(0, several))]


def _wrong_size(size: int, field: Field) -> str | None:
    if field.shortest is not None and size < field.shortest:
        return f"wants at least {field.shortest}"
    if field.longest is not None and size > field.longest:
        return f"takes at most {field.longest}"
    return None
