"""A flow drawn as a graph, with the states of its nodes."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from unicodedata import east_asian_width

from flowfabric.api.backend import EngineBackend
from flowfabric.cli.call import Call
from flowfabric.cli.exits import not_found
from flowfabric.cli.show.dag import draw, folded
from flowfabric.cli.show.executions import headline, successors_of
from flowfabric.cli.show.terminal import clean, shorten
from flowfabric.cli.show.times import both
from flowfabric.model.flow import FlowState
from flowfabric.model.flow_results import EdgeSnapshot, FlowSnapshot, MemberInfo
from flowfabric.model.layers import URGENT_FIRST, join_of, label_of, most_urgent, ordered
from flowfabric.model.marks import MARKS
from flowfabric.model.state import TERMINAL_STATES, PublicState
from flowfabric.model.verdict import unexcused
from flowfabric.sdk.flow.run import all_edges, pairs_of

_FOLD: Final = 5  # from this many equal nodes on they are one row
_PIPED_COLUMNS: Final = 10_000  # piped output is never shortened


@dataclass(frozen=True, slots=True)
class Look:
    """A flow at one moment."""

    flow: FlowSnapshot
    members: tuple[MemberInfo, ...]
    edges: tuple[EdgeSnapshot, ...]
    now: int

    @property
    def is_over(self) -> bool:
        """Whether every member has ended."""
        return all(each.public_state in TERMINAL_STATES for each in self.members)

    @property
    def has_what_it_needs(self) -> bool:
        """Whether it ended with all it was for: joins may have done without some nodes."""
        if self.flow.public_flow_state is FlowState.CANCELLED:
            return False
        return self.is_over and not unexcused(
            self.members, pairs_of(self.edges), self.flow.edge_groups
        )

    @property
    def links(self) -> list[tuple[str, str]]:
        """The order of members; a child comes after its parent."""
        pairs = pairs_of(self.edges)
        known = {each.execution_id for each in self.members}
        spawned = [(m.parent_id, m.execution_id) for m in self.members if m.parent_id]
        return [pair for pair in [*pairs, *spawned] if known.issuperset(pair)]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the drawing."""

    graph: str
    name: str
    state: str
    style: str
    join: str
    note: str


async def look(engine: EngineBackend, flow_id: str) -> Look:
    """The flow's current state, or a failure with advice."""
    flow = await engine.describe_flow(flow_id=flow_id)
    if flow is None:
        raise not_found(
            f"no flow {flow_id}",
            advice="ff flow ls lists them; a finished flow is removed when its retention ends",
        )
    members = await engine.list_flow_members(flow_id=flow_id)
    edges = await all_edges(engine, flow_id)
    return Look(flow, members, tuple(edges), await engine.server_time_ms())


def frame(call: Call, seen: Look, *, rows_max: int | None = None) -> list[str]:
    """All lines of the drawing."""
    terminal = call.terminal
    flow = seen.flow
    state = terminal.state(flow.public_flow_state.value)
    title = terminal.paint(flow.flow_id, "bold")
    lines = [f"{title}  {clean(flow.flow_kind)}  {state}"]
    for name, value in _facts(seen):
        lines.append(f"  {terminal.paint(name.ljust(9), 'dim')}  {clean(value)}")
    lines.append("")
    rows = rows_of(seen, everything=call.arguments.all)
    if rows_max is not None and len(lines) + len(rows) > rows_max:
        shown = max(1, rows_max - len(lines) - 1)
        hidden = len(rows) - shown
        return [*lines, *_aligned(call, rows[:shown]), f"… {hidden} more rows"]
    return [*lines, *_aligned(call, rows)]


def _facts(seen: Look) -> list[tuple[str, str]]:
    flow, now = seen.flow, seen.now
    counts = Counter({state: n for state, n in flow.members.items() if n})
    ended = sum(n for state, n in counts.items() if state in TERMINAL_STATES)
    states = ", ".join(f"{counts[state]} {state.value}" for state in URGENT_FIRST if counts[state])
    cancel = ""
    if flow.cancelled_at is not None:
        cancel = f"{both(flow.cancelled_at, now)} {flow.cancel_reason or ''}".strip()
    did_without = flow.public_flow_state is FlowState.FAILED and seen.has_what_it_needs
    pairs = (
        ("ended", f"{ended}/{flow.node_count}" + (f": {states}" if states else "")),
        ("namespace", flow.namespace if flow.namespace != "default" else ""),
        ("created", both(flow.created_at, now)),
        ("finished", both(flow.finished_at, now)),
        ("cancelled", cancel),
        ("outcome", "its joins did without what was lost" if did_without else ""),
        ("tags", ", ".join(f"{key}={value}" for key, value in flow.tags.items())),
        *(("then", each) for each in successors_of(flow.successors)),
    )
    return [(name, value) for name, value in pairs if value]


def rows_of(seen: Look, *, everything: bool = False) -> list[Row]:
    """The nodes from first to last, many equal ones as one."""
    links = seen.links
    bundles = folded(
        seen.members,
        links,
        name=lambda each: each.execution_id,
        alike=lambda each: (each.execution_kind, each.parent_id is None),
        least=len(seen.members) + 1 if everything else _FOLD,
    )
    head = {each.execution_id: bundle[0].execution_id for bundle in bundles for each in bundle}
    by_head = {bundle[0].execution_id: bundle for bundle in bundles}
    pairs = list(dict.fromkeys((head[up], head[down]) for up, down in links))
    names = ordered(list(by_head), pairs)
    marks = {name: MARKS[_state(by_head[name])] for name in names}
    graphs = draw(names, pairs, marks)
    groups = {each.downstream_execution_id: each for each in seen.flow.edge_groups}
    titles = {name: title(by_head[name]) for name in names}
    rows = []
    for at, name in enumerate(names):
        bundle = by_head[name]
        if graphs is None:
            waits = [titles[up] for up, down in pairs if down == name]
            drawn, after = marks[name], f"after {shorten(', '.join(waits), 60)}" if waits else ""
        else:
            drawn, after = graphs[at], ""
        notes = (after, "" if len(bundle) > 1 else _note(bundle[0]))
        rows.append(
            Row(
                drawn,
                titles[name],
                _states(bundle),
                _state(bundle).value,
                join_of(groups.get(name)),
                "  ".join(filter(None, notes)),
            )
        )
    return rows


def label(member: MemberInfo) -> str:
    """The name of a node."""
    return label_of(member.node_name, member.execution_kind)


def title(bundle: Sequence[MemberInfo]) -> str:
    """The name of a row."""
    if len(bundle) == 1:
        return label(bundle[0])
    return f"{bundle[0].execution_kind} ×{len(bundle)}"


def _state(bundle: Sequence[MemberInfo]) -> PublicState:
    return most_urgent(each.public_state for each in bundle)


def _states(bundle: Sequence[MemberInfo]) -> str:
    counts = Counter(each.public_state for each in bundle)
    if len(bundle) == 1:
        return bundle[0].public_state.value
    return ", ".join(f"{counts[state]} {state.value}" for state in URGENT_FIRST if counts[state])


def _note(member: MemberInfo) -> str:
    tries = f"try {member.attempt_count}" if member.attempt_count > 1 else ""
    return "  ".join(filter(None, (tries, headline(member.reason))))


def _head(row: Row) -> str:
    """The drawing and the name. The hourglass of an expired node takes two cells, the second of
    which is the space before the name."""
    return f"{row.graph}{'' if _is_wide(row) else ' '}{clean(row.name)}"


def _is_wide(row: Row) -> bool:
    return east_asian_width(row.graph[-1:] or " ") == "W"


def _aligned(call: Call, rows: Sequence[Row]) -> list[str]:
    """The drawing in columns that fit the terminal."""
    terminal = call.terminal
    heads = [_head(row) for row in rows]
    cells = [len(head) + _is_wide(row) for head, row in zip(heads, rows, strict=True)]
    widths = [
        max(cells, default=0),
        max((len(row.state) for row in rows), default=0),
        max((len(row.join) for row in rows), default=0),
    ]
    columns = shutil.get_terminal_size().columns if terminal.is_tty else _PIPED_COLUMNS
    lines = []
    for row, head in zip(rows, heads, strict=True):
        used = sum(widths) + 2 * len([width for width in widths if width])
        parts: list[Any] = [
            head.ljust(widths[0] - _is_wide(row)),
            terminal.state_as(row.state, row.style),
        ]
        parts[1] += " " * (widths[1] - len(row.state))
        if widths[2]:
            parts.append(row.join.ljust(widths[2]))
        parts.append(shorten(clean(row.note), max(0, columns - used - 1)))
        lines.append("  ".join(parts).rstrip())
    return lines
