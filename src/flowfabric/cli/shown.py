"""The last listing shown, per user and store: the meaning of `-`, and of short ids of old rows.

It is a convenience and never needed: where it cannot be kept or read, it counts as empty.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from flowfabric.cli.show.terminal import mask
from flowfabric.config import state_folder

Kind = Literal["execution", "flow"]

_FILE: Final = "shown.json"
_STORES_MAX: Final = 20
_IDS_MAX: Final = 200  # of one listing


class Shown:
    """The memory of one store."""

    def __init__(self, place: str, *, folder: Path | None = None) -> None:
        chosen = state_folder() if folder is None else folder
        self._file = None if chosen is None else chosen / _FILE
        # A digest: it reveals neither the place of a database nor a password.
        self._key = hashlib.sha256(mask(place).encode()).hexdigest()[:16]

    def last(self, kind: Kind) -> str | None:
        """The execution shown last."""
        found = self._mine(self._read()).get(kind)
        return found if isinstance(found, str) else None

    def listed(self, kind: Kind) -> list[str]:
        """The ids of the last listing."""
        found = self._mine(self._read()).get(f"{kind}s")
        return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []

    def remember(self, kind: Kind, ids: list[str], *, is_listing: bool) -> None:
        """A listing of several rows does not change the meaning of `-`; a single row does."""
        if self._file is None or not ids:
            return
        stores = self._read()
        mine = self._mine(stores)
        stores.pop(self._key, None)
        if is_listing:
            mine[f"{kind}s"] = ids[:_IDS_MAX]
        if len(ids) == 1:
            mine[kind] = ids[0]
        kept = list(stores.items())[1 - _STORES_MAX :]
        with suppress(OSError):
            _write(self._file, json.dumps(dict([*kept, (self._key, mine)])))

    def _read(self) -> dict[str, Any]:
        if self._file is None:
            return {}
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _mine(self, stores: dict[str, Any]) -> dict[str, Any]:
        found = stores.get(self._key)
        return found if isinstance(found, dict) else {}


def _write(file: Path, text: str) -> None:
    """Whole or not at all, and readable by its owner only."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, flags, 0o600), "w", encoding="utf-8") as stream:
        stream.write(text)
    draft.replace(file)
