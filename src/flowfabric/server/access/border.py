"""The border between namespaces: objects of others do not exist for a caller.

What a caller may not see is asked for under an id that nobody has, so that it is answered exactly
as what is not there: the same error, the same empty reply, after the same reads.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from flowfabric.api.access import CreateAccessToken, FindNamespaces, ListAccessTokens
from flowfabric.api.audit import ListAudit
from flowfabric.api.backend import EngineBackend
from flowfabric.api.budgets import CreateBudget
from flowfabric.api.executions import CountExecutions, CreateExecutions
from flowfabric.api.lanes import ListLanes
from flowfabric.api.leases import Claim
from flowfabric.api.operation import Operation, Request, Scope
from flowfabric.api.page import Page
from flowfabric.errors import FlowFabricError, InvalidInput, MissingNamespace, NotFound
from flowfabric.ids import new_secret_id, new_uuid7s
from flowfabric.model.access import AccessToken
from flowfabric.model.budget import ScopeType
from flowfabric.model.checks import check_name
from flowfabric.model.record import Record, replace
from flowfabric.server.access.caller import Caller
from flowfabric.server.access.names import in_name_of
from flowfabric.server.access.territory import (
    CHOSEN,
    COLLECTING,
    LIMITS,
    OF_LIMITS,
    SIFTED,
    Role,
    is_for_all_only,
    parts_of,
)

_REMEMBERED: Final = 50_000  # ids whose namespace never changes
_LASTING: Final = (Role.EXECUTION, Role.FLOW)
_ABSENT: Final = object()
_OBJECTS: Final = {  # by the beginning of a topic
    "done": Role.EXECUTION,
    "stream": Role.EXECUTION,
    "flow": Role.FLOW,
    "group": Role.GROUP,
}

R = TypeVar("R", bound=Record)
Known = Mapping[tuple[Role, str], str | None]


class Passed(NamedTuple):
    """A request as it may be asked for, and what is to be done with its answer."""

    caller: Caller
    operation: Operation
    request: Request[Any]
    home: str | None  # the namespace of what it makes and does not say
    stand_ins: Mapping[str, str]  # ids that nobody has, and those they stand for

    def told(self, error: FlowFabricError) -> FlowFabricError:
        """A refusal as if it were about what was asked for."""
        if not self.stand_ins:
            return error
        fields = {
            name: self._named(value) if isinstance(value, str) else value
            for name, value in error.fields.items()
        }
        return type(error)(self._named(error.detail), **fields)

    def _named(self, text: str) -> str:
        for stand_in, meant in self.stand_ins.items():
            text = text.replace(stand_in, meant)
        return text


class Border:
    """Lets requests pass that name only what their caller may see."""

    def __init__(self, engine: EngineBackend) -> None:
        self._engine = engine
        self._lasting: OrderedDict[tuple[Role, str], str | None] = OrderedDict()

    async def passed(
        self, caller: Caller, operation: Operation, request: Request[Any], named: str | None
    ) -> Passed:
        """The request in the caller's own name, and about the caller's own things."""
        request = in_name_of(caller, request)
        if getattr(request, "handle", None) is not None:  # submits take one, too
            caller.require(Scope.WORKER)
        if isinstance(request, CreateAccessToken):
            for word in request.scopes:
                if word in tuple(Scope):
                    caller.require(Scope(word))
        if caller.namespaces is None or not caller.is_known:  # then its route has proved the rest
            return Passed(caller, operation, request, named, {})
        if is_for_all_only(operation):
            detail = f"{operation.name}: only a token for all namespaces may"
            raise MissingNamespace(detail, operation=operation.name)
        return await self._restricted(caller, operation, request, named)

    async def _restricted(
        self, caller: Caller, operation: Operation, request: Request[Any], named: str | None
    ) -> Passed:
        if named is not None:
            caller.home(named)
        request = self._at_home(caller, request, named)
        _check_namespaces(caller, request)
        meant: dict[Role, set[str]] = defaultdict(set)
        for role, text in _named_in(request):
            meant[role].add(text)
        known = await self._look(meant)
        foreign = {key for key, owner in known.items() if not _is_own(caller, key[0], owner)}
        stand_ins: dict[str, str] = {}
        if operation.name in OF_LIMITS:
            _check_limits(caller, known)
        foreign = _without_limits(operation, foreign)
        if foreign and operation.name in CHOSEN:
            raise MissingNamespace("this id is taken in another namespace")
        if foreign:
            standing = {key: _stand_in(*key) for key in foreign}
            stand_ins = {standing[key]: key[1] for key in foreign}
            request = _replaced(request, standing)
        if isinstance(request, CreateBudget):
            await self._check_scope(caller, request)
        home = named or _of_owner(known, request)
        if home is None and len(caller.namespaces or ()) == 1:
            home = next(iter(caller.namespaces or ()))
        token_id = getattr(request, "token_id", None)
        if token_id is not None and not await self._owns_token(caller, token_id):
            absent = new_secret_id()
            stand_ins[absent] = token_id
            request = replace(request, token_id=absent)
        return Passed(caller, operation, request, home, stand_ins)

    async def _check_scope(self, caller: Caller, request: CreateBudget) -> None:
        """A budget that applies to what is created somewhere is only for one's own places."""
        kind, name = request.scope_type, request.scope_id
        if kind == ScopeType.LANE:
            caller.require_all()
        elif kind == ScopeType.NAMESPACE:
            caller.home(name)
        elif kind in (ScopeType.FLOW, ScopeType.EXECUTION) and _may_be_id(name):
            key = (Role.FLOW if kind == ScopeType.FLOW else Role.EXECUTION, name)
            known = await self._look({key[0]: {name}})
            if key in known and not _is_own(caller, key[0], known[key]):
                raise _absent(*key)

    def _at_home(self, caller: Caller, request: Any, named: str | None) -> Any:
        """With a namespace where the request leaves it open."""
        names = request.__struct_fields__
        if isinstance(request, CreateAccessToken | ListAccessTokens | ListAudit):
            if request.namespaces is None:
                return replace(request, namespaces=tuple(sorted(caller.namespaces or ())))
            return request
        if isinstance(request, Claim) and request.namespaces is not None:
            return request
        if "namespace" in names and request.namespace is None:
            return replace(request, namespace=caller.home(named))
        given = getattr(request, "filter", None)
        if isinstance(given, Record) and getattr(given, "namespace", _ABSENT) is None:
            return replace(request, filter=replace(given, namespace=caller.home(named)))
        if isinstance(request, CreateExecutions) and isinstance(request.requests, list | tuple):
            several = [self._at_home(caller, each, named) for each in request.requests]
            return replace(request, requests=several)
        return request

    # --- whose things are ----------------------------------------------------------------------

    async def _look(self, meant: Mapping[Role, set[str]]) -> dict[tuple[Role, str], str | None]:
        """The namespaces of things by their kind and id; what is nothing has none."""
        found: dict[tuple[Role, str], str | None] = {}
        missing: dict[Role, list[str]] = defaultdict(list)
        for role, texts in meant.items():
            for text in texts:
                if (role, text) in self._lasting:
                    found[role, text] = self._lasting[role, text]
                else:
                    missing[role].append(text)
        if not any(missing.values()):
            return found
        told = await self._engine.call(
            FindNamespaces(
                execution_ids=missing[Role.EXECUTION],
                flow_ids=missing[Role.FLOW],
                operation_ids=missing[Role.OPERATION],
                group_ids=missing[Role.GROUP],
                budget_ids=missing[Role.BUDGET],
                quota_policy_ids=missing[Role.QUOTA],
            )
        )
        for role, owners in (
            (Role.EXECUTION, told.executions),
            (Role.FLOW, told.flows),
            (Role.OPERATION, told.operations),
            (Role.GROUP, told.groups),
            (Role.BUDGET, told.budgets),
            (Role.QUOTA, told.quotas),
        ):
            for text, owner in owners.items():
                found[role, text] = owner
                if role in _LASTING and owner:
                    self._lasting[role, text] = owner
        while len(self._lasting) > _REMEMBERED:
            self._lasting.popitem(last=False)
        return found

    async def may_change(self, caller: Caller, budget_id: str) -> bool:
        """Whether a budget is the caller's own to change; a shared one is for all namespaces."""
        if caller.namespaces is None:
            return True
        owner = (await self._look({Role.BUDGET: {budget_id}})).get((Role.BUDGET, budget_id))
        return owner is not None and caller.sees(owner)

    async def _owns_token(self, caller: Caller, token_id: object) -> bool:
        own = ListAccessTokens(namespaces=tuple(sorted(caller.namespaces or ())), limit=1_000)
        tokens: Page[AccessToken] = await self._engine.call(own)
        return any(each.id == token_id for each in tokens.items)

    async def sees_topics(self, caller: Caller, topics: Sequence[str]) -> list[str]:
        """The topics that are about nobody's things or the caller's own."""
        if caller.namespaces is None:
            return list(topics)
        meant: dict[Role, set[str]] = defaultdict(set)
        for topic in topics:
            kind, _, text = topic.partition(":")
            if kind in _OBJECTS and text != "*" and _may_be_id(text):
                meant[_OBJECTS[kind]].add(text)
        known = await self._look(meant)

        def is_seen(topic: str) -> bool:
            kind, _, text = topic.partition(":")
            if kind not in _OBJECTS or text == "*":
                return True
            owner = known.get((_OBJECTS[kind], text), "")
            return owner is not None and caller.sees(owner)

        return [topic for topic in topics if is_seen(topic)]

    # --- answers -------------------------------------------------------------------------------

    async def shown(self, passed: Passed, reply: Any) -> Any:
        """The part of a reply that the caller may see."""
        caller, name = passed.caller, passed.operation.name
        if caller.namespaces is None or not caller.is_known:
            return reply
        if name in SIFTED:
            return await self._sifted(caller, name, reply)
        if isinstance(passed.request, ListLanes) and passed.request.with_counts:
            return await self._own_counts(caller, reply)
        return reply

    async def _sifted(self, caller: Caller, name: str, reply: Any) -> Any:
        if name in ("list_budgets", "list_quota_policies"):
            return _kept(reply, lambda row: _is_own(caller, Role.BUDGET, row.namespace))
        if name == "list_consumer_groups":
            return _kept(reply, lambda group: caller.sees(group.filter.namespace or ""))
        is_flow = name == "find_flows"
        role = Role.FLOW if is_flow else Role.EXECUTION
        items = reply.items if isinstance(reply, Page) else reply
        ids = {each if isinstance(each, str) else each.execution_id for each in items}
        known = await self._look({role: ids})

        def is_own(item: Any) -> bool:
            text = item if isinstance(item, str) else item.execution_id
            owner = known.get((role, text))
            return owner is not None and caller.sees(owner)

        return _kept(reply, is_own) if isinstance(reply, Page) else tuple(filter(is_own, reply))

    async def _own_counts(self, caller: Caller, lanes: Page[Any]) -> Page[Any]:
        """Lanes with the work of the caller's namespaces alone."""
        counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for namespace in sorted(caller.namespaces or ()):
            found = await self._engine.call(CountExecutions(namespace=namespace))
            for lane, states in found.items():
                for state, count in states.items():
                    counts[lane][state] += count
        items = [replace(each, counts=dict(counts.get(each.lane_id, {}))) for each in lanes.items]
        return replace(lanes, items=tuple(items))


def _kept(page: Page[Any], is_kept: Callable[[Any], bool]) -> Page[Any]:
    return replace(page, items=tuple(filter(is_kept, page.items)))


# --- requests ------------------------------------------------------------------------------------


def _values(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def _check_namespaces(caller: Caller, record: Record) -> None:
    """Refuse a namespace that is not the caller's, wherever it stands."""
    for part in parts_of(type(record)):
        value = getattr(record, part.name)
        for each in _values(value):
            if part.role is Role.NAMESPACE and isinstance(each, str):
                caller.home(each)
            elif part.role is Role.INSIDE and isinstance(each, Record):
                _check_namespaces(caller, each)


def _named_in(record: Record) -> Iterator[tuple[Role, str]]:
    """What a request names, each with its kind."""
    for part in parts_of(type(record)):
        for each in _values(getattr(record, part.name)):
            if isinstance(each, Record):
                yield from _named_in(each)
            elif part.role not in (Role.INSIDE, Role.NAMESPACE) and _may_be_id(each):
                yield part.role, each


def _is_own(caller: Caller, role: Role, owner: str | None) -> bool:
    """Whether a thing exists for a caller."""
    return role in LIMITS if owner is None else caller.sees(owner)


def _without_limits(operation: Operation, foreign: set[tuple[Role, str]]) -> set[tuple[Role, str]]:
    """What is left to be stood in for: what collects usage makes a budget of any name."""
    limits = {key for key in foreign if key[0] in LIMITS}
    if limits and operation.name in COLLECTING:
        raise _absent(*min(limits))
    if operation.name in ("create_budget", "create_quota_policy"):
        return foreign - limits  # a name that is taken is a conflict, whoever has it
    return foreign


def _absent(role: Role, name: str) -> NotFound:
    """As the engine says it."""
    return NotFound(f"{role.value} {name}", entity=role.value)


def _check_limits(caller: Caller, known: Known) -> None:
    """Refuse to change a limit that all namespaces share."""
    for (role, _), owner in known.items():
        if role in LIMITS and owner is None:
            caller.require_all()


def _of_owner(known: Known, request: Request[Any]) -> str | None:
    """What an owner of a lease makes belongs to the namespace of its execution."""
    handle = getattr(request, "handle", None)
    return known.get((Role.EXECUTION, getattr(handle, "execution_id", "")))


def _may_be_id(value: object) -> bool:
    """Whether a value may name something, by the rule that every name is made by; what may not is
    left to the operation to refuse."""
    try:
        check_name(value, field="id")
    except InvalidInput:
        return False
    return True


def _replaced(record: R, standing: Mapping[tuple[Role, str], str]) -> R:
    """The same request about the things that stand in."""
    changed: dict[str, Any] = {}
    for part in parts_of(type(record)):
        value = getattr(record, part.name)
        several = [
            _replaced(each, standing)
            if isinstance(each, Record)
            else standing.get((part.role, each), each)
            if isinstance(each, str)
            else each
            for each in _values(value)
        ]
        if any(new is not old for new, old in zip(several, _values(value), strict=True)):
            changed[part.name] = tuple(several) if isinstance(value, list | tuple) else several[0]
    return replace(record, **changed) if changed else record


def _stand_in(role: Role, meant: str) -> str:
    """An id of the same form that nobody has."""
    match role:
        case Role.EXECUTION:
            return f"{meant.partition('}')[0]}}}:{new_uuid7s(1)[0]}"
        case Role.FLOW | Role.OPERATION:
            return new_uuid7s(1)[0]
        case _:
            return new_secret_id()
