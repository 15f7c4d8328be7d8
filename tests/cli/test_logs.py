"""The two forms of a worker's log."""

from __future__ import annotations

import json
import logging
import re
import sys
from typing import Any

from flowfabric.cli.logs import JsonLines, Lines


def record(name: str, message: str, **extra: Any) -> logging.LogRecord:
    made = logging.getLogger(name).makeRecord(
        name, logging.WARNING, __file__, 1, message, (), None, extra=extra
    )
    made.created = 1_700_000_000.25
    return made


def test_a_line_for_people_has_the_time_and_names_only_other_loggers() -> None:
    when = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    own = Lines().format(record("flowfabric.worker", "brief 7f3a2b1c: done"))
    assert re.fullmatch(rf"{when} WARNING brief 7f3a2b1c: done", own)
    other = Lines().format(record("shop.mail", "sent"))
    assert re.fullmatch(rf"{when} WARNING shop.mail: sent", other)


def test_a_line_for_machines_is_one_json_object_with_the_fields_given_with_it() -> None:
    line = JsonLines().format(record("shop.mail", "two\nlines", attempt=2, where={1, 2}))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "logger": "shop.mail",
        "message": "two\nlines",
        "attempt": 2,
        "where": "{1, 2}",
    }


def test_a_field_cannot_take_the_place_of_one_that_every_line_has() -> None:
    assert json.loads(JsonLines().format(record("a", "b", level="loud")))["level"] == "warning"


def test_a_traceback_travels_inside_the_object() -> None:
    made = record("a", "b")
    try:
        raise ValueError("x")
    except ValueError:
        made.exc_info = sys.exc_info()
    document = json.loads(JsonLines().format(made))
    assert document["traceback"].endswith("ValueError: x")


def test_what_a_line_belongs_to_is_added_unless_it_says_so_itself() -> None:
    lines = JsonLines(lambda: {"request_id": "r", "attempt": 1})
    found = json.loads(lines.format(record("shop", "sold", attempt=2)))
    assert (found["request_id"], found["attempt"]) == ("r", 2)
