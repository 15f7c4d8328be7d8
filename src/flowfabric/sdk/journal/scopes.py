"""Scopes: the places in a handler in which calls are counted, so that each has the same key in
every run of it.

A key is taken when a call is written, not when it first runs. Calls in one task, one after the
other, are always in the same order; calls in tasks of their own are not, so these need scopes of
their own.
"""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from flowfabric import limits
from flowfabric.errors import InvalidInput
from flowfabric.ids import Random
from flowfabric.model.checks import check_text
from flowfabric.sdk.errors import DuplicateStepKey, NestedStep, OutsideScope

if TYPE_CHECKING:  # a scope belongs to a journal
    from flowfabric.sdk.journal.journal import Journal

_FORBIDDEN: Final = frozenset("/#[]")
_IN_NAMES: Final = str.maketrans("/#[]", "____")
_SUBJECT_LENGTH: Final = 100  # characters, so that a key has room for its scope
_checked: dict[str, str] = {}  # names are the same few


class Handler(Protocol):
    """A handler that runs, as its steps see it."""

    @property
    def journal(self) -> Journal:
        """Its journal."""
        ...


# The handler of the current task or thread; tasks that it makes inherit it.
RUNNING: Final[ContextVar[Any]] = ContextVar("running", default=None)


class Key(NamedTuple):
    """The key of a call, and the one it had while its step had another name."""

    now: str
    formerly: str | None = None


class Scope:
    """The calls of one task, in the order in which they are made."""

    __slots__ = ("_counts", "_keys", "journal", "owner", "path", "random", "uuids")

    def __init__(self, journal: Journal, path: str, owner: object) -> None:
        self.journal = journal
        self.path = path
        self.owner = owner  # the task or the thread whose calls it counts
        self._counts: dict[str, int] = {}
        self._keys: set[str] = set()
        self.uuids = 0  # how many were made
        self.random: Random | None = None  # once it was asked for

    def key(self, name: str, given: str | None = None, former: str | None = None) -> Key:
        """The key of the next call with this name; one of its own must be new. `former`: the name
        that it had before."""
        if given is None:
            count = self._counts[name] = self._counts.get(name, 0) + 1
            ending = "" if count == 1 else f"#{count}"
        else:
            ending = f"[{given}]"
        prefix = f"{self.path}/" if self.path else ""
        key = _bounded(f"{prefix}{name}{ending}")
        if given is not None:
            if key in self._keys:
                detail = f"{key}: this key was used before; give each call one of its own"
                raise DuplicateStepKey(detail, field="key", key=key)
            self._keys.add(key)
        return Key(key, None if former is None else f"{prefix}{former}{ending}")

    @property
    def is_here(self) -> bool:
        """Whether the current task or thread is the one whose calls it counts."""
        return self.owner == here()


class StepInfo:
    """What the body of a step may know of it: see `current_step`."""

    __slots__ = ("_idempotency_key", "attempt", "journal", "key")

    def __init__(self, journal: Journal, key: str, attempt: int) -> None:
        self.journal = journal
        self.key = key
        self.attempt = attempt
        self._idempotency_key: str | None = None

    @property
    def idempotency_key(self) -> str:
        """The same on every try, attempt and recovery of this step: hand it to services that must
        act once."""
        if self._idempotency_key is None:
            self._idempotency_key = self.journal.idempotency_key(self.key)
        return self._idempotency_key

    def __repr__(self) -> str:
        return f"StepInfo({self.key!r}, attempt={self.attempt})"


# The scope of the current task, or the step whose body runs in it; none at the top of a handler.
PLACE: Final[ContextVar[Scope | StepInfo | None]] = ContextVar("place", default=None)


def current_step() -> StepInfo:
    """The step whose body runs here: its `key`, `idempotency_key` and `attempt`.

    ```
    @ff.step(retries=3)
    async def charge(amount: int) -> str:
        return await bank.charge(amount, idempotency_key=current_step().idempotency_key)
    ```
    """
    place = PLACE.get()
    if isinstance(place, StepInfo):
        return place
    raise OutsideScope("current_step: no step runs here; call it in the function of a step")


def scope_here(name: str, *, has_key: bool = False) -> Scope | None:
    """The scope of a call that is made now; None outside of handlers. Where order depends on
    chance, a call is refused on its first run rather than mixed up on a later one.

    `has_key`: a key of its own needs no order.
    """
    place = PLACE.get()
    if isinstance(place, StepInfo):
        detail = f"{name}: called in the body of the step {place.key}; call it from the handler"
        raise NestedStep(detail, step=place.key)
    if place is None:
        running: Handler | None = RUNNING.get()
        if running is None:
            return None
        place = running.journal.root
    if not has_key and not place.is_here:
        raise OutsideScope(
            f"{name}: called from a task or thread that the handler made itself, where the order "
            "of calls depends on chance. Use ctx.gather, ctx.map or `async with ctx.branch(name)`, "
            "or give the call a key of its own: options(key=…)"
        )
    return place


def is_in_scope(journal: Journal) -> bool:
    """Whether a call that is made now can be recorded: it is not in a step, nor in a task of the
    handler's own."""
    place = PLACE.get()
    if isinstance(place, StepInfo):
        return False
    scope = journal.root if place is None else place
    return scope.journal is journal and scope.is_here


def own_scope(name: str, journal: Journal, *, has_key: bool = False) -> Scope:
    """The scope of a call that is made by a context."""
    scope = scope_here(name, has_key=has_key)
    if scope is None:
        raise OutsideScope(f"{name}: this context belongs to a handler that does not run here")
    if scope.journal is not journal:
        raise OutsideScope(f"{name}: this context belongs to another run")
    return scope


def check_step_name(name: object, *, field: str = "name") -> str:
    """The name of a step or a branch: it becomes a part of keys."""
    if type(name) is str and name in _checked:
        return name
    text = check_text(name, field=field, max_bytes=limits.STEP_NAME_BYTES)
    if _FORBIDDEN & set(text):
        detail = f"{field}: {text!r:.80} contains one of {' '.join(sorted(_FORBIDDEN))}"
        raise InvalidInput(detail, field=field)
    if len(_checked) < limits.PAGE_MAX:
        _checked[text] = text
    return text


def name_with(word: str, subject: str) -> str:
    """The name of a call about something that may have any name.

    >>> name_with("wait", "a/b")
    'wait:a_b'
    """
    return f"{word}:{subject.translate(_IN_NAMES)}"[:_SUBJECT_LENGTH]


def check_step_key(key: object) -> str:
    """A key of a call's own."""
    text = check_text(key, field="key", max_bytes=limits.STEP_NAME_BYTES)
    if "]" in text or "[" in text:
        raise InvalidInput(f"key: {text!r:.80} contains [ or ]", field="key")
    return text


def _bounded(key: str) -> str:
    if len(key) > limits.ENTRY_KEY_BYTES // 4 and len(key.encode()) > limits.ENTRY_KEY_BYTES:
        most = limits.ENTRY_KEY_BYTES
        detail = f"key: {key[:80]!r}… is longer than {most} bytes; use shorter names"
        raise InvalidInput(detail, field="key")
    return key


def here() -> object:
    """The current task, or the current thread where no task runs: what a scope belongs to."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident() if task is None else task
