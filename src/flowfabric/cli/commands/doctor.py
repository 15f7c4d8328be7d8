"""`ff doctor`: the checks made, the defects found, and the advice for each."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

from flowfabric.api.admin import Problem
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser
from flowfabric.cli.repairing import repair_all
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import clean, mask
from flowfabric.cli.show.times import absolute, count
from flowfabric.errors import SchemaMismatch
from flowfabric.model.repair import Correction

SHOWN_MAX: Final = 10  # of one kind; --json has them all
WIDTH_MAX: Final = 80
Finding = dict[str, str]


def add_arguments(parser: FfParser) -> None:
    """The extent of the checks."""
    parser.add_argument(
        "--quick", action="store_true", help="leave out the checks that read every row"
    )
    parser.add_argument(
        "--repair", action="store_true", help="first set counters right that the rows prove wrong"
    )
    parser.set_defaults(handler=doctor)


async def doctor(call: Call) -> Exit:
    """Repair if asked, run every check; exit code 1 when something is wrong."""
    problems: list[Finding]
    repaired: list[Correction] = []
    notices: list[Finding] = []
    facts: dict[str, Any] = {"url": mask(call.url)}
    call.terminal.status(f"examining {mask(call.url)} …")
    try:
        async with call.engine() as engine:
            if call.arguments.repair:
                repaired = await repair_all(engine)
            report = await engine.doctor(quick=call.arguments.quick)
    except SchemaMismatch as error:
        advice = "run `ff db check` for all migrations"
        problems = [_finding(error.code, "schema", error.detail, advice)]
    else:
        facts |= plain(report.facts)
        problems, notices = _findings(report.problems), _findings(report.notices)
    if call.terminal.as_json:
        found = {"healthy": not problems, "problems": problems, "notices": notices, "facts": facts}
        call.terminal.document(
            {**found, "repaired": plain(repaired)} if call.arguments.repair else found
        )
    else:
        call.terminal.facts([(name, _fact(name, value)) for name, value in facts.items()])
        _show_repairs(call, repaired)
        _show(call, problems, "red")
        _show(call, notices, "yellow")
        _sum_up(call, problems, notices)
    return Exit.FAILED if problems else Exit.OK


def _findings(found: Sequence[Problem]) -> list[Finding]:
    return [_finding(each.code, each.subject, each.detail, each.advice) for each in found]


def _finding(code: str, subject: str, detail: str, advice: str) -> Finding:
    return {"code": code, "subject": subject, "detail": mask(detail), "advice": advice}


def _show_repairs(call: Call, repaired: Sequence[Correction]) -> None:
    """What was set right: the value before and after."""
    if not call.arguments.repair:
        return
    terminal = call.terminal
    terminal.line()
    terminal.line(terminal.paint(f"repaired ({len(repaired)})", "green"))
    for each in repaired[:SHOWN_MAX]:
        _wrap(call, clean(each.subject), "  ")
        _wrap(call, clean(f"{each.counter}: {each.before} → {each.after}"), "    ")
    if len(repaired) > SHOWN_MAX:
        terminal.line(f"  … and {len(repaired) - SHOWN_MAX} more: --json lists all")


def _show(call: Call, findings: Sequence[Finding], style: str) -> None:
    """By kind: the place and the defect, and the advice once for all of them."""
    terminal = call.terminal
    for code, group in groupby(sorted(findings, key=_code), key=_code):
        alike = list(group)
        terminal.line()
        terminal.line(terminal.paint(f"{code} ({len(alike)})", style))
        for each in alike[:SHOWN_MAX]:
            _wrap(call, clean(each["subject"]), "  ")
            _wrap(call, clean(each["detail"]), "    ")
        if len(alike) > SHOWN_MAX:
            terminal.line(f"  … and {len(alike) - SHOWN_MAX} more: --json lists all")
        _wrap(call, f"→ {alike[0]['advice']}", "  ", "    ")


def _code(finding: Finding) -> str:
    return finding["code"]


def _wrap(call: Call, text: str, indent: str, further: str | None = None) -> None:
    """Lines that fit; piped output is wrapped as well, so that a report can be read anywhere."""
    width = min(WIDTH_MAX, shutil.get_terminal_size().columns)
    for line in textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent if further is None else further,
        break_on_hyphens=False,
    ):
        call.terminal.line(line)


def _sum_up(call: Call, problems: Sequence[Finding], notices: Sequence[Finding]) -> None:
    terminal = call.terminal
    terminal.line()
    aside = f", {count(len(notices), 'notice')} about upkeep" if notices else ""
    if problems:
        terminal.complain(f"{count(len(problems), 'problem')} found{aside}")
    else:
        terminal.line(terminal.paint(f"healthy: no problems found{aside}", "green"))


def _fact(name: str, value: Any) -> str:
    if value is None:
        return "never" if name.endswith("_at") else "none"
    if name.endswith("bytes"):
        return _size(int(value))
    if name.endswith("_at"):
        return absolute(int(value))
    return clean(mask(str(value)))


def _size(number: int) -> str:
    if number < 1024:
        return f"{number} B"
    size = number / 1024
    for unit in ("KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
