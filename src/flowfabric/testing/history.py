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
from flowfabric.model.journal import (
    CodeMark,
    EntryError,
    EntryKind,
    EntryState,
    JournalEntry,
    copied_outcome,
    outcome_value,
)
from flowfabric.model.record import Record, replace
from flowfabric.model.state import PublicState
from flowfabric.model.suspension import ResumeInfo
from flowfabric.testing.faults import name_of
from flowfabric.testing.tape import End

FORMAT: Final = 2  # 1: without the outcomes of waits and the results of other executions
_EARLIER: Final = 2  # the format of a journal whose file does not tell it
REDACTED: Final = "redacted"
_EMPTY: Final[dict[type, Any]] = {bool: False, int: 0, float: 0.0, list: [], dict: {}}
_WHAT: Final = "flowfabric history"
_AT_ONCE: Final = 1_000  # executions of one read


class History(Record, frozen=True, kw_only=True):
    """One run, as far as its handler can tell.

    `chapter`: which part of it, with the entries of that part. `state`: how it ended; none while it
    has not. `is_redacted`: values were removed, so the end and the arguments of steps are not
    compared. `outcomes`: how waits ended, by their suspensions. `ends`: the results of other
    executions that the handler waited for.
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
    outcomes: Mapping[str, ResumeInfo] = {}
    ends: Mapping[str, End] = {}

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
    outcomes: dict[str, ResumeInfo] = {}
    while True:
        page = await engine.read_journal(
            execution_id=execution_id,
            chapter_index=chapter_index,
            after=entries[-1].position if entries else None,
            limit=PAGE_MAX,
            values=True,
        )
        entries += (each for each in page.entries if each.kind is not EntryKind.UNUSED)
        outcomes.update(page.outcomes)
        if not page.has_more:
            break
    others = dict.fromkeys(each for entry in entries for each in _others(entry))
    ends = await _ends(engine, [execution_id, *others])
    own = ends.pop(execution_id, None)
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
        result=None if own is None else own.result,
        category=found.failure_category,
        outcomes=outcomes,
        ends=ends,
    )


async def _ends(engine: EngineBackend, ids: Sequence[str]) -> dict[str, End]:
    """The results of those that ended with one; how others ended stands in the journal."""
    found: dict[str, End] = {}
    for start in range(0, len(ids), _AT_ONCE):
        part = ids[start : start + _AT_ONCE]
        outcomes = await engine.read_outcomes(execution_ids=part)
        for key, outcome in outcomes.items():
            if outcome.ended.public_state is PublicState.COMPLETED:
                found[key] = End(outcome.result, outcome.ended.completed_at or 0)
    return found


def _others(entry: JournalEntry) -> list[str]:
    """The executions that an entry names: children, and others that were waited for."""
    if entry.kind not in (EntryKind.SPAWN, EntryKind.UNDONE, EntryKind.ENDED) or not entry.value:
        return []
    try:
        named = json.loads(entry.value)
    except ValueError:
        return []
    return (
        [each for each in named if isinstance(each, str)] if isinstance(named, list | dict) else []
    )


def is_told(history: History, entry: JournalEntry) -> bool:
    """Whether the history tells how a call ended that is recorded."""
    if entry.kind is not EntryKind.WAIT:
        return entry.value is not None or not entry.is_secret
    if entry.refers_to is not None:
        return entry.refers_to in history.outcomes
    # A sleep beside other branches ends without a value.
    is_over = entry.value is None and name_of(entry.key) == "sleep"
    return is_over or copied_outcome(entry) is not None


# --- as text --------------------------------------------------------------------------------------


def written(history: History) -> str:
    """The history as lines of JSON."""
    head = {
        "what": _WHAT,
        "format": FORMAT,
        "execution_id": history.execution_id,
        "kind": history.kind,
        "code": history.code_version,
        "journal": _journal_format(history),
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
    lines = [head, *(_entry(history, each) for each in history.entries)]
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
    if entries:
        code = CodeMark(_integer(head.get("journal", _EARLIER), name), head.get("code"))
        entries[0] = replace(entries[0], code=code)
    outcomes: dict[str, ResumeInfo] = {}
    ends: dict[str, End] = {}
    for at, line in enumerate(lines[1:], start=2):
        _take_others(line, outcomes, ends, f"{name}:{at}")
    return History(entries=tuple(entries), outcomes=outcomes, ends=ends, **known)


def _journal_format(history: History) -> int:
    """Which calls are entries of it: replays of an older journal ask for no others."""
    code = history.entries[0].code if history.entries else None
    return _EARLIER if code is None else code.format


def _integer(value: object, name: str) -> int:
    if not isinstance(value, int):
        raise DamagedHistory(f"{name}:1: journal: a number was expected")
    return value


def _take_others(
    line: Mapping[str, Any], outcomes: dict[str, ResumeInfo], ends: dict[str, End], where: str
) -> None:
    """How a wait ended, and the results of other executions."""
    try:
        if (told := line.get("outcome")) is not None:
            signals = [{**each, "payload": _hidden(each["payload"])} for each in told["signals"]]
            given = {**told, "signals": signals}
            outcomes[line["refers_to"]] = msgspec.convert(given, ResumeInfo)
        for key, end in (line.get("ends") or {}).items():
            ends[key] = End(_hidden(end["result"]), end["at"])
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.MsgspecError) as error:
        raise DamagedHistory(f"{where}: {error!r}") from None


def _object(line: str, at: int, name: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise DamagedHistory(f"{name}:{at}: {error}") from None
    if not isinstance(found, dict):
        raise DamagedHistory(f"{name}:{at}: a JSON object was expected")
    return found


def _entry(history: History, entry: JournalEntry) -> dict[str, Any]:
    ends = {each: history.ends[each] for each in _others(entry) if each in history.ends}
    outcome = history.outcomes.get(entry.refers_to or "")
    more: dict[str, Any] = {}
    if entry.refers_to is not None:
        more["refers_to"] = entry.refers_to
    if outcome is not None:
        more["outcome"] = _outcome(outcome)
    if ends:
        more["ends"] = {
            key: {"result": _shown(each.result), "at": each.at} for key, each in ends.items()
        }
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
        **more,
    }


def _outcome(outcome: ResumeInfo) -> dict[str, Any]:
    """How a wait ended, its payloads as they stand."""
    told: dict[str, Any] = msgspec.to_builtins(outcome, builtin_types=(bytes,))
    signals = [{**each, "payload": _shown(each["payload"])} for each in told["signals"]]
    return {**told, "signals": signals}


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
            refers_to=line.get("refers_to"),
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

    A path begins with `input`, `result` or the name of a step, a wait or a child, as `ff journal`
    shows it, and goes on with names and numbers: `input.card.number`, `charge.receipt`,
    `wait:reply.text`, `spawn:pay.card`, `result`. `*` stands for all of them.
    """
    parts = [tuple(path.split(".")) for path in paths]
    if not parts:
        return history
    outcomes, ends = dict(history.outcomes), dict(history.ends)
    for entry in history.entries:
        name = name_of(entry.key)
        if (outcome := outcomes.get(entry.refers_to or "")) is not None:
            outcomes[entry.refers_to or ""] = _quiet(outcome, name, parts)
        for key in _others(entry):
            if (end := ends.get(key)) is not None:
                ends[key] = replace(end, result=_without(end.result, name, parts))
    return replace(
        history,
        payload=_without(history.payload, "input", parts) or b"",
        result=_without(history.result, "result", parts),
        entries=tuple(_redacted(entry, parts) for entry in history.entries),
        outcomes=outcomes,
        ends=ends,
        is_redacted=True,
    )


def _redacted(entry: JournalEntry, parts: Sequence[tuple[str, ...]]) -> JournalEntry:
    name = name_of(entry.key)
    if entry.kind in (EntryKind.SPAWN, EntryKind.SUBMIT, EntryKind.UNDONE):  # ids tell nothing
        return replace(entry, digest=None)
    if entry.kind is EntryKind.UNDO:  # no run of the handler reads what is kept of it
        return replace(entry, value=None, digest=None)
    if (outcome := copied_outcome(entry)) is not None:
        return replace(entry, value=outcome_value(_quiet(outcome, name, parts)), digest=None)
    if entry.kind is EntryKind.CHAPTER:  # its arguments are the input of this part of the run
        name = "input"
    value = _without(entry.value, name, parts)
    return replace(entry, value=value, digest=None)


def _quiet(outcome: ResumeInfo, name: str, parts: Sequence[tuple[str, ...]]) -> ResumeInfo:
    """How a wait ended, without what its signals brought."""
    signals = (
        replace(each, payload=_without(each.payload, name, parts)) for each in outcome.signals
    )
    return replace(outcome, signals=tuple(signals))


def _without(data: bytes | None, root: str, parts: Sequence[tuple[str, ...]]) -> bytes | None:
    roots = (tuple(root.split(".")), ("*",))
    mine = [path[len(each) :] for path in parts for each in roots if path[: len(each)] == each]
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
