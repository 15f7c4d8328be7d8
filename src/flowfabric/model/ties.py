"""Ties: how an execution is bound to others that are no members of its flow."""

from __future__ import annotations

from flowfabric.model.fair import Fair
from flowfabric.model.record import Record
from flowfabric.model.successor import Hooks, Origin
from flowfabric.model.unique import Unique


class Ties(Record, frozen=True, kw_only=True):
    """Given at creation, and never changed. What they lead to is done in the transaction of the
    execution's creation and in that of its end."""

    serial_key: str | None = None  # executions of one key run one at a time, in order
    holds_line: bool = False  # if it fails, those behind it wait until it is replayed or passed by
    unique: Unique | None = None  # the key that it alone has
    hooks: Hooks | None = None  # what follows its end
    origin: Origin | None = None  # whose end it follows
    undo_stops: bool = False  # an undo that did not succeed stops those behind it
    fair: Fair | None = None  # the key by which it shares its lane; its tag is set as it is created
    retried_from: str | None = None  # the ended execution of which it is a retry with another input


UNTIED = Ties()
