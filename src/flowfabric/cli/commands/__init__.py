"""The commands. Each has a file named by its word: `add_arguments` is its grammar, which names the
functions that serve it. Here are the words, in the order of `ff --help`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Command:
    """A command's line in `ff --help`, without loading it."""

    word: str
    text: str
    many_tenants: str | None = None  # what several of them mean to it


COMMANDS: Final = (
    Command(
        "worker",
        "run a worker until Ctrl-C or SIGTERM",
        many_tenants="serve this tenant (repeat; default: the app's own)",
    ),
    Command("serve", "serve the operations over HTTP until Ctrl-C or SIGTERM"),
    Command("dev", "a server and a worker that reloads, for a program that is being written"),
    Command("submit", "create an execution"),
    Command("ps", "list executions, newest first"),
    Command("show", "everything about one execution"),
    Command("why", "why is this not running?"),
    Command("journal", "what the handler of an execution has done, step by step"),
    Command("replay", "would the present code do again what runs have recorded?"),
    Command("debug", "a handler in this process, answered from its journal, without effects"),
    Command("code", "which versions of tasks are in use, and what may be removed"),
    Command("timeline", "what happened to one execution, in order"),
    Command("events", "what happened, oldest first"),
    Command("audit", "what operators did"),
    Command("stats", "what happened on each lane, in numbers"),
    Command("groups", "feeds that several processes share"),
    Command("result", "print the result of an execution"),
    Command("tail", "what an execution shows while it runs"),
    Command("logs", "what the handler of an execution logged"),
    Command("send", "a message to a mailbox of an execution"),
    Command("ask", "a message to a mailbox of an execution, and the answer to it"),
    Command("mail", "the mailboxes of an execution, and their unread messages"),
    Command("cancel", "cancel executions, whatever they are doing"),
    Command("retry", "run finished executions again"),
    Command("dead", "what failed or expired, until it is run again or dismissed"),
    Command("failures", "what is broken: failures that are alike, with counts"),
    Command("fork", "go on from a copy of a journal, as a new execution"),
    Command("hold", "keep waiting executions from being claimed"),
    Command("release", "end a hold"),
    Command("priority", "move waiting work up or down"),
    Command("operations", "changes to many executions, which go on by themselves"),
    Command("revoke", "take the lease from the worker that has it; the work is run again"),
    Command("token", "what programs show to a server"),
    Command("schedule", "what starts by the calendar"),
    Command("lanes", "list lanes, switch or set one"),
    Command("workers", "list live workers"),
    Command("db", "the database schema: migrate, check, print"),
    Command("bench", "measure this machine"),
    Command("conformance", "does a worker in any language keep the protocol?"),
    Command("completion", "print a script for your shell"),
    Command("doctor", "check store, schema, indexes, values and stuck rows"),
    Command("openapi", "the HTTP API of a server, for programs"),
    Command("version", "versions of this program and its parts"),
    Command("flow", "flows: executions that depend on each other"),
    Command("budget", "what may be spent, and what was"),
    Command("spend", "what executions, flows and kinds of work have spent"),
    Command("quota", "how many may start per window and run at once"),
    Command("line", "executions of one serial key, which run one at a time"),
    Command("waits", "what suspended executions wait for"),
    Command("keys", "the keys that sign waitpoint tokens"),
)
