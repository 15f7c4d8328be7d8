"""The checks of journal entries, wherever they come with."""

from __future__ import annotations

from typing import Any, Final, TypeGuard

from flowfabric import limits
from flowfabric.config import EngineConfig
from flowfabric.engine.operations.requests import check_payload
from flowfabric.errors import InvalidInput, PayloadTooLarge
from flowfabric.kernel.journal.checkpoint import Checkpoint, answers_wanted
from flowfabric.model.checks import (
    check_flag,
    check_instant,
    check_integer,
    check_list,
    check_name,
    check_text,
)
from flowfabric.model.handle import Handle
from flowfabric.model.journal import (
    CodeMark,
    EntryError,
    EntryKind,
    EntryState,
    NewEntry,
    Settlement,
)
from flowfabric.model.limit_checks import check_amounts, check_word
from flowfabric.model.nesting import JSON
from flowfabric.model.record import replace

DIGEST_BYTES: Final = 8
_COUNT_MAX: Final = (1 << 30) - 1
_NAMES_MAX: Final = 64  # ancestors of an exception


def checkpoint_command(
    handle: Handle, entries: Any, next_key: Any, config: EngineConfig
) -> Checkpoint:
    """The command that adds these entries."""
    return Checkpoint(
        execution_id=handle.execution_id,
        fence=handle.fence,
        entries=check_entries(entries, config),
        next_key=None if next_key is None else check_key(next_key, field="next_key"),
    )


def check_answers(command: Checkpoint, kind: EntryKind, count: int, what: str) -> None:
    """Everything that is to be recorded belongs to an entry of this kind, in order."""
    told = sum(answers_wanted(each) for each in command.entries if each.kind is kind)
    if told != count:
        detail = (
            f"entries: those of kind {kind.value} are about {told} {what}, and there are {count}"
        )
        raise InvalidInput(detail, field="entries")


def check_entries(entries: Any, config: EngineConfig) -> tuple[NewEntry, ...]:
    """At least one entry, their positions one after the other."""
    several = entries if type(entries) is tuple else check_list(entries, field="entries")
    if not 1 <= len(several) <= limits.ENTRIES_MAX:
        detail = f"entries: {len(several)} is not between 1 and {limits.ENTRIES_MAX}"
        raise InvalidInput(detail, field="entries")
    checked = tuple([_entry(each, config) for each in several])
    first = checked[0].position
    for at, entry in enumerate(checked, first):
        if entry.position != at:
            detail = f"entry.position: {entry.position} does not follow {at - 1}"
            raise InvalidInput(detail, field="entry.position")
    for entry in checked:
        if entry.kind is EntryKind.STATE:
            _check_published(entry, is_last=entry is checked[-1])
    size = sum(len(entry.value) for entry in checked if entry.value is not None)
    if size > limits.CHECKPOINT_BYTES_MAX:
        most = limits.CHECKPOINT_BYTES_MAX
        detail = f"entries: {size} bytes is over the limit {most}"
        raise PayloadTooLarge(detail, field="entries", limit=most)
    return checked


def _check_published(entry: NewEntry, *, is_last: bool) -> None:
    """What a run publishes is one value, behind all entries that it may tell of."""
    if not is_last:
        raise InvalidInput("entries: what is published comes last", field="entries")
    size, most = len(entry.value or b""), limits.PUBLISHED_BYTES
    if size > most:
        detail = f"entry.value: {size} bytes is over the limit {most} of what is published"
        raise PayloadTooLarge(detail, field="entry.value", limit=most)


def check_key(value: object, *, field: str) -> str:
    """The key of an entry."""
    return check_text(value, field=field, max_bytes=limits.ENTRY_KEY_BYTES)


def _entry(entry: object, config: EngineConfig) -> NewEntry:
    """One entry, with its words as words and its numbers as numbers."""
    if _is_plain(entry, config):
        return entry
    if not isinstance(entry, NewEntry):
        detail = f"entries: expected a NewEntry, got {type(entry).__name__}"
        raise InvalidInput(detail, field="entries")
    value: object = entry.value
    if value is not None:
        value = check_payload(value, JSON, config, field="entry.value")
    return replace(
        entry,
        position=_count(entry.position, "entry.position"),
        key=check_key(entry.key, field="entry.key"),
        kind=check_word(entry.kind, EntryKind, field="entry.kind"),
        state=check_word(entry.state, EntryState, field="entry.state"),
        asked=_count(entry.asked, "entry.asked"),
        value=value,
        digest=_digest(entry.digest),
        error=_error(entry.error),
        tries=_count(entry.tries, "entry.tries"),
        began_at=check_instant(entry.began_at, field="entry.began_at"),
        took_ms=check_integer(
            entry.took_ms, field="entry.took_ms", least=0, most=limits.INSTANT_MS_MAX
        ),
        is_secret=check_flag(entry.is_secret, field="entry.is_secret"),
        code=_code(entry.code),
        settles=_settles(entry.settles),
        arguments=_arguments(entry),
    )


def _is_plain(entry: object, config: EngineConfig) -> TypeGuard[NewEntry]:
    """Whether an entry is of the usual form, which needs no copy: many come at once."""
    if type(entry) is not NewEntry or type(entry.key) is not str:
        return False
    value, digest, arguments = entry.value, entry.digest, entry.arguments
    numbers = (entry.position, entry.asked, entry.tries, entry.began_at, entry.took_ms)
    return (
        entry.error is None
        and entry.code is None
        and entry.settles == ()
        and entry.is_secret is False
        and 0 < len(entry.key) <= limits.ENTRY_KEY_BYTES
        and entry.key.isascii()
        and entry.key.isprintable()
        and type(entry.kind) is EntryKind
        and type(entry.state) is EntryState
        and type(value) is bytes
        and len(value) <= min(config.payload_bytes_max, _SHALLOW_BYTES)
        and (digest is None or (type(digest) is bytes and len(digest) <= DIGEST_BYTES))
        and (
            arguments is None
            or (type(arguments) is bytes and len(arguments) <= limits.ENTRY_ARGUMENTS_BYTES)
        )
        and all(type(each) is int for each in numbers)
        and min(numbers) >= 0
        and max(entry.position, entry.asked, entry.tries) <= _COUNT_MAX
        and max(entry.began_at, entry.took_ms) <= limits.INSTANT_MS_MAX
    )


_SHALLOW_BYTES: Final = 2 * limits.JSON_DEPTH_MAX  # too short to nest too deep


def _count(value: object, field: str) -> int:
    return check_integer(value, field=field, least=0, most=_COUNT_MAX)


def _digest(value: object) -> bytes | None:
    if value is None:
        return None
    field = "entry.digest"
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidInput(f"{field}: expected bytes, got {type(value).__name__}", field=field)
    if len(value) > DIGEST_BYTES:
        raise InvalidInput(f"{field}: is longer than {DIGEST_BYTES} bytes", field=field)
    return bytes(value)


def _arguments(entry: NewEntry) -> bytes | None:
    value: object = entry.arguments
    if value is None:
        return None
    field, most = "entry.arguments", limits.ENTRY_ARGUMENTS_BYTES
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidInput(f"{field}: expected bytes, got {type(value).__name__}", field=field)
    if len(value) > most:
        raise InvalidInput(f"{field}: is longer than {most} bytes", field=field)
    if entry.is_secret:
        raise InvalidInput(f"{field}: those of a secret call are not kept", field=field)
    return bytes(value)


def _error(error: object) -> EntryError | None:
    if error is None:
        return None
    field = "entry.error"
    if not isinstance(error, EntryError):
        raise InvalidInput(f"{field}: expected an EntryError", field=field)
    names = check_list(error.names, field=f"{field}.names")
    if len(names) > _NAMES_MAX:
        raise InvalidInput(f"{field}.names: more than {_NAMES_MAX}", field=f"{field}.names")
    arguments = error.arguments
    if arguments is not None:
        arguments = _text(arguments, f"{field}.arguments", limits.FAILURE_REASON_BYTES)
    return EntryError(
        _text(error.category, f"{field}.category", limits.NAME_BYTES),
        _text(error.reason, f"{field}.reason", limits.FAILURE_REASON_BYTES),
        tuple(_text(name, f"{field}.names", limits.NAME_BYTES) for name in names),
        arguments,
        check_flag(error.is_permanent, field=f"{field}.is_permanent"),
    )


def _text(value: object, field: str, most: int) -> str:
    return check_text(value, field=field, max_bytes=most, empty=True, control=True)


def _settles(several: Any) -> tuple[Settlement, ...]:
    field = "entry.settles"
    checked = check_list(several, field=field)
    if len(checked) > limits.SETTLEMENTS_MAX:
        raise InvalidInput(f"{field}: more than {limits.SETTLEMENTS_MAX}", field=field)
    for each in checked:
        if not isinstance(each, Settlement):
            raise InvalidInput(f"{field}: expected a Settlement", field=field)
    return tuple(
        Settlement(
            check_name(each.budget_id, field=f"{field}.budget_id"),
            check_name(each.hold_id, field=f"{field}.hold_id"),
            check_amounts(each.amounts, field=f"{field}.amounts"),
        )
        for each in checked
    )


def _code(code: object) -> CodeMark | None:
    if code is None:
        return None
    field = "entry.code"
    if not isinstance(code, CodeMark):
        raise InvalidInput(f"{field}: expected a CodeMark", field=field)
    version = check_version(code.version, field=f"{field}.version")
    return CodeMark(_count(code.format, f"{field}.format"), version)


def check_version(value: object, *, field: str) -> str | None:
    """The version of the code, if it has one."""
    return None if value is None else check_text(value, field=field, max_bytes=limits.NAME_BYTES)
