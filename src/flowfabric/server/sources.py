"""Where settings come from: flags, the environment, `flowfabric.toml`, defaults, in this order."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from flowfabric.config import VARIABLES
from flowfabric.errors import InvalidInput
from flowfabric.model.record import Record
from flowfabric.server.instants import duration_ms
from flowfabric.server.settings import SETTINGS, Form, ServerSettings, Setting

PREFIX: Final = "FLOWFABRIC_SERVER_"
DEFAULT_FILE: Final = "flowfabric.toml"
_TABLE: Final = "server"
_OIDC: Final = "oidc"
_FLAGS: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Chosen(Record, frozen=True):
    """The settings in force, and where each of them comes from, by its key."""

    settings: ServerSettings
    sources: Mapping[str, str]


def choose(flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None) -> Chosen:
    """The settings in force. `file`: one that must be there; None: the usual one, if it is there.

    >>> choose({"bind": "127.0.0.1:0"}, {}, None).sources["bind"]
    'flag'
    """
    named: dict[str, tuple[Any, str]] = {}
    path = file or Path(DEFAULT_FILE)
    for key, value in _of_file(path, must_exist=file is not None).items():
        named[key] = (_typed(SETTINGS[key], value), str(path))
    for key, setting in SETTINGS.items():
        if (text := environment.get(PREFIX + key.upper())) is not None:
            named[key] = (_read(setting, text), PREFIX + key.upper())
        if flags.get(key) is not None:
            named[key] = (_read(setting, flags[key]), "flag")
    values = {SETTINGS[key].field: value for key, (value, _) in named.items()}
    sources = {key: named[key][1] if key in named else "default" for key in SETTINGS}
    return Chosen(ServerSettings(**values), sources)


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """A warning for each variable that looks like ours and is none."""
    known = [*VARIABLES, *(PREFIX + key.upper() for key in SETTINGS)]
    return [
        f"{name} is no variable of FlowFabric{_nearest(name, known)}"
        for name in sorted(environment)
        if name.startswith("FLOWFABRIC_") and name not in known
    ]


def written(setting: Setting, value: Any) -> str:
    """A value as it would be written in a flag or a variable."""
    if value is None:
        return ""
    match setting.about.form:
        case Form.WORDS:
            return ",".join(value)
        case Form.FLAG:
            return "true" if value else "false"
        case Form.DURATION:
            return _duration(value * _unit(setting))
        case _:
            return str(value)


def _of_file(path: Path, *, must_exist: bool) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not must_exist:
            return {}
        raise InvalidInput(f"config: there is no file {path!s:.300}", field="config") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        what = f"config: {path!s:.300} cannot be read ({error!s:.200})"
        raise InvalidInput(what, field="config") from None
    for name in document:
        if name != _TABLE:
            what = f"config: {path!s:.300}: {name!s:.80} is no table; there is [{_TABLE}]"
            raise InvalidInput(what, field="config")
    table = document.get(_TABLE, {})
    if not isinstance(table, dict):
        raise InvalidInput(f"config: {path!s:.300}: [{_TABLE}] is a table", field="config")
    table = _flat(table)
    for key in table:
        if key not in SETTINGS:
            what = f"config: {path!s:.300}: {key!s:.80} is no setting of [{_TABLE}]"
            raise InvalidInput(what + _nearest(key, SETTINGS), field=key)
    return table


def _flat(table: dict[str, Any]) -> dict[str, Any]:
    """With the keys of `[server.oidc]` as settings `oidc_…`, and its table of groups as words."""
    oidc = table.get(_OIDC)
    if not isinstance(oidc, dict):
        return table
    groups = oidc.get("groups")
    if isinstance(groups, dict):
        oidc = {**oidc, "groups": [_grant(name, value) for name, value in groups.items()]}
    rest = {key: value for key, value in table.items() if key != _OIDC}
    return {**rest, **{f"{_OIDC}_{key}": value for key, value in oidc.items()}}


def _grant(group: str, value: Any) -> str:
    """A row of the table of groups: { scopes = […], namespaces = […] }."""
    field = f"{_OIDC}_groups"
    is_table = isinstance(value, dict) and {"scopes"} <= value.keys() <= {"scopes", "namespaces"}
    lists = list(value.values()) if is_table else [None]
    if not all(isinstance(each, list) and all(map(_is_word, each)) for each in lists):
        what = f"{field}: {group!s:.80}: expected {{ scopes = […], namespaces = […] }}"
        raise InvalidInput(what, field=field)
    spaces = "@" + "+".join(value["namespaces"]) if "namespaces" in value else ""
    return f"{group}={'+'.join(value['scopes'])}{spaces}"


def _is_word(value: object) -> bool:
    return isinstance(value, str) and value != "" and not set("+@") & set(value)


def _nearest(word: str, known: Any) -> str:
    near = difflib.get_close_matches(word, list(known), 1)
    return f", did you mean {near[0]}?" if near else ""


def _typed(setting: Setting, value: Any) -> Any:
    """A value of a file: it has a type already, but a duration is text."""
    key, form = setting.key, setting.about.form
    if form is Form.WORDS and isinstance(value, list):
        return tuple(value)
    if form is Form.DURATION and isinstance(value, str):
        return _read(setting, value)
    fits = {Form.TEXT: str, Form.FLAG: bool, Form.COUNT: int}.get(form)
    if fits is None or type(value) is not fits:
        raise InvalidInput(f"{key}: expected {_expected(setting)}", field=key)
    return value


def _expected(setting: Setting) -> str:
    form = setting.about.form
    return f'{form} such as "20s"' if form is Form.DURATION else str(form.value)


def _read(setting: Setting, given: Any) -> Any:
    """A value of a flag or a variable, which is text; a flag may be read already."""
    if not isinstance(given, str):
        return given
    key, text = setting.key, given.strip()
    match setting.about.form:
        case Form.TEXT:
            return text
        case Form.WORDS:
            return tuple(word.strip() for word in text.split(",") if word.strip())
        case Form.DURATION:
            return duration_ms(text, field=key) // _unit(setting)
        case Form.FLAG if text.lower() in _FLAGS:
            return _FLAGS[text.lower()]
        case Form.COUNT if text.isascii() and text.isdigit() and len(text) < 19:
            return int(text)
    raise InvalidInput(f"{key}: expected {setting.about.form.value}, got {text!r:.80}", field=key)


def _unit(setting: Setting) -> int:
    return 1 if setting.field.endswith("_ms") else 1_000


def _duration(milliseconds: int) -> str:
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms" if milliseconds else "0s"
