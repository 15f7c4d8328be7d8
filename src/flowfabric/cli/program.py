"""The one door: read the command line, run the command, turn every outcome into an exit code."""

from __future__ import annotations

import asyncio
import inspect
import io
import os
import sys
import traceback
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence

from flowfabric.cli import values
from flowfabric.cli.exits import CommandFailed, Exit, describe, exit_of, usage
from flowfabric.cli.grammar import FfParser
from flowfabric.cli.parser import build_parser
from flowfabric.cli.show.terminal import Terminal, harmless, mask
from flowfabric.config import environment_flag
from flowfabric.errors import FlowFabricError


def main(argv: Sequence[str] | None = None) -> int:
    """Run `ff` and return its exit code; nothing but --debug shows a traceback."""
    if argv is None:
        _tolerate_narrow_encodings()
    words = list(sys.argv[1:] if argv is None else argv)
    terminal = Terminal(
        as_json="--json" in words,
        color="--no-color" not in words and not environment_flag("NO_COLOR"),
    )
    try:
        code = _run(words, terminal)
        terminal.out.flush()
    except KeyboardInterrupt:
        terminal.complain("interrupted")
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has closed its end. Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    return code


def _tolerate_narrow_encodings() -> None:
    """On a terminal that cannot show a character, show a question mark instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _run(words: list[str], terminal: Terminal) -> int:
    try:
        arguments = parse(words)
        return _dispatch(arguments, terminal)
    except SystemExit as end:  # --help and --version print and leave
        return end.code if isinstance(end.code, int) else Exit.OK
    except (KeyboardInterrupt, BrokenPipeError):
        raise
    except Exception as error:  # noqa: BLE001 - a person gets one line, never a traceback
        return report(error, terminal, debug="--debug" in words)


def parse(words: Sequence[str]) -> Namespace:
    """The command line as a namespace; positionals may come before and after options."""
    parser = build_parser(words)
    arguments, extra = parser.parse_known_args(list(words))
    if getattr(arguments, "handler", None) is None and extra:
        raise _unknown(extra[0], parser)
    if getattr(arguments, "handler", None) is None:
        raise usage("no command", advice="ff --help lists them")
    # argparse closes a list of positionals at the first option, so `cancel A --reason x B` leaves B
    # over; the command names the list that takes the rest.
    rest = getattr(arguments, "rest", None)
    for word in extra:
        if (word.startswith("-") and word != values.SHOWN) or rest is None:
            raise _unknown(word, arguments.parser)
        target, convert = rest
        try:
            getattr(arguments, target).append(convert(word))
        except ArgumentTypeError as error:
            raise usage(str(error), advice=f"see {arguments.parser.prog} --help") from None
    return arguments


def _unknown(word: str, parser: FfParser) -> CommandFailed:
    what = "option" if word.startswith("-") else "argument"
    hint = values.nearest(word.split("=")[0], parser.option_words()) if what == "option" else ""
    advice = f"see {parser.prog} --help"
    return usage(f"unknown {what} {word!r}", advice=f"{hint} {advice}".strip())


def _dispatch(arguments: Namespace, terminal: Terminal) -> int:
    from flowfabric.cli.call import Call  # keeps --help fast

    outcome = arguments.handler(Call(arguments=arguments, terminal=terminal))
    code = asyncio.run(outcome) if inspect.iscoroutine(outcome) else outcome
    return int(code)


def report(error: Exception, terminal: Terminal, *, debug: bool) -> int:
    """One line on the error stream, a JSON object on the other with --json."""
    if debug:
        terminal.end_status()
        trace = "".join(traceback.format_exception(error))
        print(harmless(mask(trace)), end="", file=terminal.err)
    terminal.complain(describe(error))
    code = exit_of(error)
    if terminal.as_json:
        if isinstance(error, FlowFabricError | CommandFailed):
            body = error.as_dict()
        else:
            body = {"code": "internal", "detail": describe(error), "retryable": False}
        body = {**body, "detail": mask(str(body["detail"])), "exit_code": int(code)}
        terminal.document({"error": body})
    return code
