"""`ff completion bash|zsh|fish`: scripts that complete commands, options and words, made from the
grammar itself. Names that live in the store are asked for when a word is completed."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from flowfabric.cli.advice import NAMES
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser
from flowfabric.cli.parser import build_parser
from flowfabric.model.state import PublicState

_ASKED: Final = "ask:"  # completed by `ff completion NAME`
_FILES: Final = "files"
# The kind of words of options and positionals, by the names of their values in the grammar.
_OPTIONS: Final = {
    "state": " ".join(state.value for state in PublicState),
    "lane": f"{_ASKED}lanes",
    "kind": f"{_ASKED}kinds",
    "budget": f"{_ASKED}budgets",
    "quota": f"{_ASKED}quotas",
    "secret_file": _FILES,
}
_POSITIONALS: Final = {
    "id": "latest",
    "ids": "latest",
    "target": "latest",
    "words": "latest",
    "lane": f"{_ASKED}lanes",
    "kind": f"{_ASKED}kinds",
}
_NAMED: Final = {"budget": f"{_ASKED}budgets", "quota": f"{_ASKED}quotas"}


def add_arguments(parser: FfParser) -> None:
    """The shell."""
    parser.add_argument(
        "what",
        choices=("bash", "zsh", "fish", "lanes", "kinds", "budgets", "quotas"),
        metavar="bash|zsh|fish",
        help="the shell; its script also asks for lanes, kinds, budgets and quotas",
    )
    parser.set_defaults(handler=completion)


@dataclass(slots=True)
class Place:
    """The words that may follow a command, or a command and its action."""

    path: str
    words: dict[str, str] = field(default_factory=dict)  # commands with their help
    options: dict[str, tuple[str, str | None]] = field(default_factory=dict)  # help, values
    positionals: list[str] = field(default_factory=list)  # values


def places(parser: FfParser, path: str = "") -> Iterator[Place]:
    """Every place of the grammar; an option without values takes none."""
    place = Place(path)
    inner: dict[str, FfParser] = {}
    for action in parser.actions():
        if isinstance(action, argparse._SubParsersAction):
            inner = action.choices
            place.words = {each.dest: each.help or "" for each in action._get_subactions()}
        elif action.option_strings:
            values = None if action.nargs == 0 else _values(action, _OPTIONS)
            for option in action.option_strings:
                place.options[option] = (action.help or "", values)
        elif values := _values(action, _POSITIONALS) or _named(action, path):
            place.positionals.append(values)
    yield place
    for name, each in inner.items():
        yield from places(each, f"{path} {name}".strip())


def _named(action: argparse.Action, path: str) -> str:
    """Names that the store is asked for; a new name is nobody's to know."""
    return _NAMED.get(path.partition(" ")[0], "") if action.dest == "name" else ""


def _values(action: argparse.Action, known: dict[str, str]) -> str:
    if action.choices is not None:
        return " ".join(map(str, action.choices))
    return known.get(action.dest, "")


# --- scripts --------------------------------------------------------------------------------------

_COMMON: Final = """\
# ff completion for {shell}: made by `ff completion {shell}`
__ff_path() {{ # the command and action among the words before the one being typed
    local word place="" skip=""
    for word in "$@"; do
        if [ -n "$skip" ]; then skip=""; continue; fi
        case "$word" in
            {valued}) skip=1; continue ;;
            -*) continue ;;
        esac
        case "${{place:+$place }}$word" in
            {paths}) place="${{place:+$place }}$word" ;;
        esac
    done
    printf '%s' "$place"
}}
__ff_words() {{ # what may stand after this path and this word
    case "$1|$2" in
{values}
    esac
    case "$1" in
{words}
    esac
}}
"""
_BASH: Final = """\
__ff() {
    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
    local place found
    place=$(__ff_path "${COMP_WORDS[@]:1:COMP_CWORD-1}")
    found=$(__ff_words "$place" "$before")
    if [ "$found" = files ]; then
        COMPREPLY=($(compgen -f -- "$current"))
    else
        COMPREPLY=($(compgen -W "$found" -- "$current"))
    fi
}
complete -F __ff ff
"""
_ZSH: Final = """\
_ff() {
    local found
    local -a candidates
    found=$(__ff_words "$(__ff_path "${(@)words[2,CURRENT-1]}")" "${words[CURRENT-1]}")
    if [[ $found == files ]]; then
        _files
    else
        candidates=(${=found})
        compadd -- $candidates
    fi
}
# In a folder of $fpath this file is the function itself, called for the first completion.
if [[ ${funcstack[1]} == _ff ]]; then _ff "$@"; else compdef _ff ff; fi
"""


def shell_script(shell: str) -> str:
    """For bash and zsh: tables that both read, and the few lines in which they differ."""
    found = list(places(build_parser()))
    valued = sorted({o for each in found for o, (_, v) in each.options.items() if v is not None})
    paths = [each.path for each in found if each.path]
    values = [
        f"        {_pattern(each.path, option)}) {_answer(words)}; return ;;"
        for each in found
        for option, (_, words) in each.options.items()
        if words is not None
    ]
    words = [
        f'        "{each.path}") {_answer(*each.words, *each.positionals, *each.options)} ;;'
        for each in found
    ]
    common = _COMMON.format(
        shell=shell,
        valued="|".join(valued),
        paths="|".join(f'"{path}"' for path in paths),
        values="\n".join(values),
        words="\n".join(words),
    )
    if shell == "bash":
        return common + _BASH
    return f"#compdef ff\n{common}{_ZSH}"


def _pattern(path: str, option: str) -> str:
    return f'"{path}|{option}"'


def _answer(*words: str) -> str:
    """Prints words; those of the store come from `ff` itself."""
    plain = [word for word in words if not word.startswith(_ASKED)]
    asked = [word.removeprefix(_ASKED) for word in words if word.startswith(_ASKED)]
    parts = [f"printf '%s ' {shlex.quote(' '.join(plain))}"] if any(plain) else []
    if plain == [_FILES]:
        parts = [f"printf {_FILES}"]
    parts += [f"ff completion {name} 2>/dev/null" for name in asked]
    return "; ".join(parts) or ":"


def fish_script() -> str:
    """fish shows what each word means, so it gets the help too."""
    found = list(places(build_parser()))
    valued = sorted({o for each in found for o, (_, v) in each.options.items() if v is not None})
    paths = " ".join(shlex.quote(each.path) for each in found if each.path)
    lines = [
        "# ff completion for fish: made by `ff completion fish`",
        "function __ff_at",
        "    set -l path",
        "    set -l skip 0",
        "    for word in (commandline -opc)[2..-1]",
        "        if test $skip -eq 1; set skip 0; continue; end",
        f"        if contains -- $word {' '.join(valued)}; set skip 1; continue; end",
        "        if string match -q -- '-*' $word; continue; end",
        '        set -l longer (string trim "$path $word")',
        f"        if contains -- $longer {paths}; set path $longer; end",
        "    end",
        '    test "$path" = "$argv[1]"',
        "end",
        "complete -c ff -f",
    ]
    for place in found:
        at = f"complete -c ff -n {shlex.quote(f'__ff_at {shlex.quote(place.path)}')}"
        lines += [f"{at} -a {word} -d {_said(text)}" for word, text in place.words.items()]
        lines += [f"{at} -a {_fish(words)}" for words in place.positionals if words]
        for option, (text, words) in place.options.items():
            name = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            lines.append(f"{at} {name}{_fish_takes(words)} -d {_said(text)}")
    return "\n".join(lines) + "\n"


def _fish_takes(words: str | None) -> str:
    """The values of an option."""
    if words is None:
        return ""
    return " -r -F" if words == _FILES else f" -x -a {_fish(words)}"


def _fish(words: str) -> str:
    if words.startswith(_ASKED):
        return shlex.quote(f"(ff completion {words.removeprefix(_ASKED)} 2>/dev/null)")
    return shlex.quote(words)


def _said(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("%%", "%") + "'"


# --- names in the store ---------------------------------------------------------------------------


async def completion(call: Call) -> Exit:
    """Print a script, or the names that a script asks for."""
    what = call.arguments.what
    if what in NAMES:
        return await _print_names(call, what)
    text = fish_script() if what == "fish" else shell_script(what)
    if call.terminal.as_json:
        call.terminal.document({"shell": what, "script": text})
    else:
        call.terminal.line(text.rstrip("\n"))
    return Exit.OK


async def _print_names(call: Call, what: str) -> Exit:
    async with call.engine() as engine:
        found = await NAMES[what](engine)
    # A name that a shell would split or run as a command is not offered.
    offered = [name for name in found if shlex.quote(name) == name]
    if call.terminal.as_json:
        call.terminal.document(offered)
    else:
        for name in offered:
            call.terminal.line(name)
    return Exit.OK
