"""`ff code`: which versions of tasks are in use, and what may be removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from flowfabric.api.backend import EngineBackend
from flowfabric.api.page import every_item
from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit, exit_of, usage
from flowfabric.cli.grammar import FfParser
from flowfabric.cli.show.terminal import Column, clean
from flowfabric.cli.show.times import count
from flowfabric.errors import FlowFabricError, StoreUnavailable
from flowfabric.limits import PAGE_MAX
from flowfabric.model.code import CodeUse, check_version, versioned
from flowfabric.model.worker import Worker

_SAMPLE: Final = 1_000
_MOVE: Final = "move"
_MOVE_WORDS: Final = 4  # of ff code move KIND FROM TO
_ADVICE: Final = "ff code [KIND], or ff code move KIND FROM TO"
_VERSION_COLUMNS: Final = (
    Column("KIND", shrinks=True),
    Column("VERSION"),
    Column("PINNED", right=True),
    Column("BEGAN", right=True),
    Column("WORKERS", right=True),
    Column("SAFE TO REMOVE"),
)
_MARKER_COLUMNS: Final = (
    Column("KIND", shrinks=True),
    Column("MARKER", shrinks=True, least=20),
    Column("WITH", right=True),
    Column("WITHOUT", right=True),
    Column("SAFE TO REMOVE"),
)
_NONE: Final = "-"  # the version of code that names none


def add_arguments(parser: FfParser) -> None:
    """One kind, or all; or a move."""
    parser.add_argument(
        "code", nargs="*", metavar="KIND", help="one kind of work; or: move KIND FROM TO"
    )
    parser.add_argument(
        "--sample",
        type=values.whole_number,
        default=_SAMPLE,
        metavar="N",
        help=f"look at so many executions, the newest first (default {_SAMPLE})",
    )
    parser.set_defaults(handler=code)


async def code(call: Call) -> Exit:
    """Versions and markers of executions that have not ended; or pin them anew."""
    words = call.arguments.code
    if words[:1] == [_MOVE]:
        if len(words) != _MOVE_WORDS:
            raise usage("move: which kind, from which version to which?", advice=_ADVICE)
        return await _move(call, *words[1:])
    if len(words) > 1:
        raise usage(f"too many words: {' '.join(words)}", advice=_ADVICE)
    kind = words[0] if words else None
    async with call.engine() as engine:
        found, is_whole = await _live(call, engine, kind)
        workers = await every_item(
            lambda at: engine.list_workers(
                namespace=call.arguments.namespace, cursor=at, limit=PAGE_MAX
            )
        )
    _show(call, _Looked(found, workers, kind, is_whole))
    return Exit.OK


async def _live(call: Call, engine: EngineBackend, kind: str | None) -> tuple[list[CodeUse], bool]:
    """The newest executions that have not ended, and whether these are all."""
    found: list[CodeUse] = []
    cursor: str | None = None
    while True:
        page = await engine.list_code(
            namespace=call.arguments.namespace,
            execution_kind=kind,
            cursor=cursor,
            limit=min(PAGE_MAX, call.arguments.sample - len(found)),
        )
        found += page.items
        cursor = page.next_cursor
        if cursor is None or len(found) >= call.arguments.sample:
            return found, cursor is None


@dataclass
class _Looked:
    """What was looked at, and what it says."""

    uses: Sequence[CodeUse]
    workers: Sequence[Worker]
    kind: str | None
    is_whole: bool
    offered: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        kinds = {each.execution_kind for each in self.uses}
        for worker in self.workers:
            offered = {versioned(token) for token in worker.capabilities} - {None}
            plain = (kinds if worker.kinds is None else kinds & {*worker.kinds}) - {
                each[0] for each in offered if each is not None
            }
            for pair in (*offered, *((kind, _NONE) for kind in plain)):
                if pair is not None and self.kind in (None, pair[0]):
                    self.offered[pair] += 1

    def versions(self) -> list[dict[str, Any]]:
        """Each version of each kind: how many belong to it, were begun by it, can run it."""
        pinned = Counter((each.execution_kind, each.pinned or _NONE) for each in self.uses)
        began = Counter(
            (each.execution_kind, each.version or _NONE) for each in self.uses if each.has_journal
        )
        kinds = sorted({*pinned, *began, *self.offered})
        return [
            {
                "kind": kind,
                "version": None if version == _NONE else version,
                "pinned": pinned[kind, version] if version != _NONE else 0,
                "began": began[kind, version],
                "workers": self.offered[kind, version],
                "is_safe_to_remove": self._is_safe(
                    version != _NONE and not pinned[kind, version] and not began[kind, version]
                ),
            }
            for kind, version in kinds
        ]

    def markers(self) -> list[dict[str, Any]]:
        """Each change that the code asks for: which executions have it, and which have come on
        without."""
        having = Counter((each.execution_kind, name) for each in self.uses for name in each.markers)
        begun = Counter(each.execution_kind for each in self.uses if each.has_journal)
        return [
            {
                "kind": kind,
                "marker": name,
                "with": number,
                "without": begun[kind] - number,
                "is_safe_to_remove": self._is_safe(number == begun[kind]),
            }
            for (kind, name), number in sorted(having.items())
        ]

    def _is_safe(self, nothing_needs_it: bool) -> bool | None:
        """None: that cannot be said, because not all executions were looked at."""
        return nothing_needs_it if self.is_whole or not nothing_needs_it else None


def _show(call: Call, looked: _Looked) -> None:
    versions, markers = looked.versions(), looked.markers()
    if call.terminal.as_json:
        call.terminal.document(
            {
                "executions": len(looked.uses),
                "is_whole": looked.is_whole,
                "versions": versions,
                "markers": markers,
            }
        )
        return
    if not versions:
        call.terminal.note("no execution has not ended, and no worker names a version")
        return
    call.terminal.table(_VERSION_COLUMNS, [_row(each) for each in versions])
    if markers:
        call.terminal.line()
        call.terminal.table(_MARKER_COLUMNS, [_row(each) for each in markers])
    if not looked.is_whole:
        seen = f"the newest {count(len(looked.uses), 'execution')}"
        call.terminal.note(f"only {seen} were looked at: --sample N looks at more")


def _row(found: dict[str, Any]) -> tuple[str, ...]:
    words = {True: "yes", False: "no", None: "?"}
    *others, safe = found.values()
    return (*(_NONE if each is None else clean(str(each)) for each in others), words[safe])


# --- move ----------------------------------------------------------------------------------------


async def _move(call: Call, kind: str, old: str, new: str) -> Exit:
    """Pin what does not run anew; what runs is told."""
    for version, field_name in ((old, "FROM"), (new, "TO")):
        check_version(version, field=field_name)
    moved, refused, ending = 0, Counter[str](), Exit.OK
    async with call.engine() as engine:
        cursor: str | None = None
        while True:
            page = await engine.list_code(
                namespace=call.arguments.namespace,
                execution_kind=kind,
                cursor=cursor,
                limit=PAGE_MAX,
            )
            for each in page.items:
                if each.pinned != old:
                    continue
                try:
                    await engine.repin_execution(
                        execution_id=each.execution_id, expected=old, version=new
                    )
                    moved += 1
                except StoreUnavailable:
                    raise
                except FlowFabricError as error:
                    refused[error.code] += 1
                    ending = ending or exit_of(error)
            cursor = page.next_cursor
            if cursor is None:
                break
    _tell_moved(call, f"{kind}@{new}", moved, refused)
    return ending


def _tell_moved(call: Call, place: str, moved: int, refused: Counter[str]) -> None:
    if call.terminal.as_json:
        call.terminal.document({"moved": moved, "refused": dict(refused)})
        return
    call.terminal.line(f"{count(moved, 'execution')} moved to {clean(place)}")
    if refused:
        number = sum(refused.values())
        call.terminal.complain(f"{number} refused — they run; the same command moves them later")
