"""Histories: what a run was given, what it recorded and how it ended, to be replayed elsewhere.

A file has one JSON object on each line: first what the run is, then each entry. Bytes are texts as
they stand where they are JSON, else base64. Secret values are left out.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from flowfabric.api.backend import EngineBackend
from flowfabric.errors import FlowFabricError, NotFound
from flowfabric.limits import PAGE_MAX
from flowfabric.model.journal import EntryError, EntryKind, EntryState, JournalEntry
from flowfabric.model.record import Record
from flowfabric.model.state import PublicState

FORMAT: Final = 1
REDACTED: Final = "redacted"
_EMPTY: Final[dict[type, Any]] = {bool: False, int: 0, float: 0.0, list: [], dict: {}}
_WHAT: Final = "flowfabric history"


class History(Record, frozen=True, kw_only=True):
    """One run, as far as its handler can tell.

    `chapter`: which part of it, with the entries of that part. `state`: how it ended; none while it
    has not. `is_redacted`: values were removed, so the end and
    the arguments of steps are not compared.
    """

    execution_id: str
    kind: str
    payload: bytes
    entries: tuple[JournalEntry, ...]
    payload_encoding: str | None = None
    lane: str = "default"
    namespace: str = "default"
    key: str | None = None
    tags: Mapping[str, str] = {}
    created_at: int = 0
    deadline_at: int | None = None
    chapter: int = 0
    state: PublicState | None = None
    result: bytes | None = None
    category: str | None = None
    is_redacted: bool = False

    @property
    def code_version(self) -> str | None:
        """The version of the code that began the journal."""
        code = self.entries[0].code if self.entries else None
        return None if code is None else code.version


class DamagedHistory(FlowFabricError):
    """The file is no history that this version can read. The detail names the line."""

    code, status = "damaged_history", 400


async def history_of(
    engine: EngineBackend, execution_id: str, *, chapter_index: int | None = None
) -> History:
    """The history of one execution, secrets left out; by default of its present chapter."""
    found = await engine.describe_execution(execution_id=execution_id)
    if found is None:
        raise NotFound(f"execution {execution_id}", entity="execution")
    context = await engine.read_execution_context(execution_id=execution_id)
    entries: list[JournalEntry] = []
    while True:
        page = await engine.read_journal(
            execution_id=execution_id,
            chapter_index=chapter_index,
            after=entries[-1].position if entries else None,
            limit=PAGE_MAX,
            values=True,
        )
        entries += page.entries
        if not page.has_more:
            break
    outcomes = await engine.read_outcomes(execution_ids=[execution_id])
    outcome = outcomes.get(execution_id)
    has_ended = found.public_state.is_terminal and chapter_index in (None, found.chapter_index)
    return History(
        execution_id=execution_id,
        kind=found.execution_kind,
        payload=context.input_payload,
        payload_encoding=context.payload_encoding,
        entries=tuple(entries),
        lane=found.lane_id,
        namespace=found.namespace,
        tags=found.tags,
        created_at=found.created_at,
        deadline_at=found.deadline_at,
        chapter=page.chapter_index,
        state=found.public_state if has_ended else None,
        result=None if outcome is None else outcome.result,
        category=found.failure_category,
    )


# --- as text --------------------------------------------------------------------------------------


def written(history: History) -> str:
    """The history as lines of JSON."""
    head = {
        "what": _WHAT,
        "format": FORMAT,
        "execution_id": history.execution_id,
        "kind": history.kind,
        "code": history.code_version,
        "lane": history.lane,
        "namespace": history.namespace,
        "key": history.key,
        "tags": dict(history.tags),
        "created_at": history.created_at,
        "deadline_at": history.deadline_at,
        "chapter": history.chapter,
        "encoding": history.payload_encoding,
        "input": _shown(history.payload),
        "state": None if history.state is None else history.state.value,
        "result": _shown(history.result),
        "category": history.category,
        "is_redacted": history.is_redacted,
        "entries": len(history.entries),
    }
    lines = [head, *map(_entry, history.entries)]
    return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)


def read(text: str, *, name: str = "history") -> History:
    """The inverse of `written`; `name` is said where a line is damaged."""
    lines = [_object(line, at, name) for at, line in enumerate(text.splitlines(), start=1)]
    if not lines or lines[0].get("what") != _WHAT:
        raise DamagedHistory(f"{name}:1: this is no history of FlowFabric")
    head = lines[0]
    if not isinstance(head.get("format"), int) or head["format"] > FORMAT:
        detail = f"{name}:1: format {head.get('format')} is newer than this version ({FORMAT})"
        raise DamagedHistory(detail)
    try:
        wanted = head["entries"]
        known = {
            "execution_id": head["execution_id"],
            "kind": head["kind"],
            "payload": _hidden(head["input"]) or b"",
            "payload_encoding": head.get("encoding"),
            "lane": head.get("lane", "default"),
            "namespace": head.get("namespace", "default"),
            "key": head.get("key"),
            "tags": head.get("tags", {}),
            "created_at": head.get("created_at", 0),
            "deadline_at": head.get("deadline_at"),
            "chapter": head.get("chapter", 0),
            "state": None if head.get("state") is None else PublicState(head["state"]),
            "result": _hidden(head.get("result")),
            "category": head.get("category"),
            "is_redacted": bool(head.get("is_redacted")),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedHistory(f"{name}:1: {error!r}") from None
    if wanted != len(lines) - 1:
        detail = f"{name}:{len(lines)}: {wanted} entries are announced, {len(lines) - 1} are there"
        raise DamagedHistory(detail)
    entries = [_entry_of(line, at, name) for at, line in enumerate(lines[1:], start=2)]
    return History(entries=tuple(entries), **known)


def _object(line: str, at: int, name: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise DamagedHistory(f"{name}:{at}: {error}") from None
    if not isinstance(found, dict):
        raise DamagedHistory(f"{name}:{at}: a JSON object was expected")
    return found


def _entry(entry: JournalEntry) -> dict[str, Any]:
    return {
        "position": entry.position,
        "key": entry.key,
        "kind": entry.kind.value,
        "state": entry.state.value,
        "asked": entry.asked,
        "tries": entry.tries,
        "began_at": entry.began_at,
        "took_ms": entry.took_ms,
        "recorded_at": entry.recorded_at,
        "attempt": entry.attempt_index,
        "value": _shown(entry.value),
        "digest": None if entry.digest is None else entry.digest.hex(),
        "error": None if entry.error is None else msgspec.to_builtins(entry.error),
        "is_secret": entry.is_secret,
    }


def _entry_of(line: Mapping[str, Any], at: int, name: str) -> JournalEntry:
    try:
        value = _hidden(line["value"])
        return JournalEntry(
            position=line["position"],
            key=line["key"],
            kind=EntryKind(line["kind"]),
            state=EntryState(line["state"]),
            asked=line["asked"],
            tries=line["tries"],
            began_at=line["began_at"],
            took_ms=line["took_ms"],
            recorded_at=line["recorded_at"],
            attempt_index=line["attempt"],
            size=len(value or b""),
            value=value,
            digest=None if line["digest"] is None else bytes.fromhex(line["digest"]),
            error=None if line["error"] is None else msgspec.convert(line["error"], EntryError),
            is_secret=line["is_secret"],
        )
    except (KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
        raise DamagedHistory(f"{name}:{at}: {error!r}") from None


def _shown(data: bytes | None) -> Any:
    """JSON as it stands, so that people can read and redact it."""
    if data is None:
        return None
    try:
        value = json.loads(data)
        if json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() == data:
            return {"json": value}
    except (ValueError, RecursionError):
        pass
    return {"base64": b64encode(data).decode()}


def _hidden(shown: Any) -> bytes | None:
    if shown is None:
        return None
    if "json" in shown:
        return json.dumps(shown["json"], separators=(",", ":"), ensure_ascii=False).encode()
    return b64decode(shown["base64"], validate=True)


# --- without what must not leave the house --------------------------------------------------------


def redacted(history: History, paths: Iterable[str]) -> History:
    """The history without the values at these paths: texts become `"redacted"`, others an empty
    value of their kind. The arguments of steps and the end are then not compared.

    A path begins with `input`, `result` or the name of a step, and goes on with names and numbers:
    `input.card.number`, `charge.receipt`, `result`. `*` stands for all of them.
    """
    parts = [tuple(path.split(".")) for path in paths]
    if not parts:
        return history
    return msgspec.structs.replace(
        history,
        payload=_without(history.payload, "input", parts) or b"",
        result=_without(history.result, "result", parts),
        entries=tuple(_redacted(entry, parts) for entry in history.entries),
        is_redacted=True,
    )


def _redacted(entry: JournalEntry, parts: Sequence[tuple[str, ...]]) -> JournalEntry:
    name = entry.key.partition("[")[0].rpartition("/")[2].partition("#")[0]
    if entry.kind is EntryKind.CHAPTER:  # its arguments are the input of this part of the run
        name = "input"
    value = _without(entry.value, name, parts)
    return msgspec.structs.replace(entry, value=value, digest=None)


def _without(data: bytes | None, root: str, parts: Sequence[tuple[str, ...]]) -> bytes | None:
    mine = [path[1:] for path in parts if path[0] in (root, "*")]
    if data is None or not mine:
        return data
    try:
        value = json.loads(data)
    except ValueError:
        return b'"redacted"'
    for path in mine:
        value = _removed(value, path)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _removed(value: Any, path: Sequence[str]) -> Any:
    if not path:
        return REDACTED if isinstance(value, str) else _EMPTY.get(type(value))
    first, rest = path[0], path[1:]
    if isinstance(value, dict):
        if first == "*":
            return {name: _removed(each, rest) for name, each in value.items()}
        return {**value, first: _removed(value[first], rest)} if first in value else value
    if isinstance(value, list):
        return [
            _removed(each, rest) if first in ("*", str(at)) else each
            for at, each in enumerate(value)
        ]
    return value
