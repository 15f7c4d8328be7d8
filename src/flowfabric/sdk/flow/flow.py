"""Flows as a program writes them: nodes, their dependencies, and one submit for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Self, TypeVar, overload

from flowfabric import limits
from flowfabric.api.flows import FlowEdge, FlowNode, SubmitFlow
from flowfabric.errors import InvalidInput
from flowfabric.model.checks import check_list, check_name, check_tags, check_text
from flowfabric.model.flow_results import FlowDuplicate, FlowSubmitted
from flowfabric.model.shown import shown
from flowfabric.sdk import codec
from flowfabric.sdk.durations import Duration, to_ms
from flowfabric.sdk.flow.joins import Join, Node, as_join
from flowfabric.sdk.flow.run import FlowRun
from flowfabric.sdk.flow.wiring import Wiring
from flowfabric.sdk.home import Home
from flowfabric.sdk.journal.submits import Submit, Submits, handler_here
from flowfabric.sdk.options import HOOK_NAMES, NO_OPTIONS, OPTION_NAMES, HookTask, SubmitOptions
from flowfabric.sdk.task import Call, Task, TaskWithOptions, check_hook, new_hook
from flowfabric.tracing.spans import flow_submitted_by

R = TypeVar("R")


class Graph:
    """Nodes and dependencies. A node waits only for existing nodes, so there are no cycles."""

    def __init__(
        self,
        fabric: Home,
        kind: str,
        *,
        key: str | None = None,
        tags: Mapping[str, str] | None = None,
        retention: Duration | None = None,
        on_success: HookTask | None = None,
        on_failure: HookTask | None = None,
        on_end: HookTask | None = None,
    ) -> None:
        self.kind = check_name(kind, field="flow")
        self.key = key
        self._fabric = fabric
        self._tags = {} if tags is None else check_tags(tags)
        hooks = dict(zip(HOOK_NAMES, (on_success, on_failure, on_end), strict=True))
        self._hooks = {name: hook for name, hook in hooks.items() if hook is not None}
        for name, hook in self._hooks.items():
            check_hook(hook, name)
        self._retention_ms = None if retention is None else to_ms(retention, field="retention")
        self._nodes: dict[str, Node[Any]] = {}
        self._calls: dict[str, Call[Any]] = {}
        self._joins: dict[str, Join] = {}
        self._edges: list[FlowEdge] = []
        self._named: Counter[str] = Counter()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<flow {self.kind} with {len(self._nodes)} nodes>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_closed = True

    @property
    def nodes(self) -> Mapping[str, Node[Any]]:
        """Every node by its name."""
        return dict(self._nodes)

    @overload
    def add(
        self,
        task: Task[..., R] | TaskWithOptions[..., R] | Call[R],
        /,
        *args: Any,
        name: str | None = None,
        after: Any = None,
        **kwargs: Any,
    ) -> Node[R]: ...
    @overload
    def add(
        self, task: str, /, *args: Any, name: str | None = None, after: Any = None, **kwargs: Any
    ) -> Node[Any]: ...

    def add(
        self, task: Any, /, *args: Any, name: str | None = None, after: Any = None, **kwargs: Any
    ) -> Node[Any]:
        """One more execution: a task with its arguments, as in `Fabric.submit`.

        A node as an argument is its result; so is one in a list or a dictionary, and `any_of(…)` or
        `quorum(…)` of nodes. `after`: nodes that must end first, without their results; a node, a
        list of nodes, or a join. `name`: of the node, by default the task's. Submit options such as
        `priority` and `lane` are those of `Fabric.submit`; the key is the flow's. A `delay` counts
        from the moment when what the node waits for has ended; `start_at` is an instant.

        ```
        a, b = f.add(ask, "small"), f.add(ask, "large")
        f.add(judge, answer=any_of(a, b, losers="cancel"))
        ```
        """
        if self._is_closed:
            raise InvalidInput(
                f"{self.kind}: the flow is closed; add inside the with", field="flow"
            )
        call, wiring = self._call(task, args, kwargs, named=name is not None)
        label = self._label(name, call.kind)
        waits, join = self._waits(label, wiring, as_join(after))
        if join is not None:
            call = _with_gaps(call, wiring, join, label)
            self._joins[label] = join
        node: Node[Any] = Node(self, label, call.task)
        self._nodes[label], self._calls[label] = node, call
        for upstream in waits:
            place = wiring.inputs.get(upstream)
            self._edges.append(
                FlowEdge(
                    upstream=upstream.name,
                    downstream=label,
                    passes_result=place is not None,
                    input_name=place,
                )
            )
        return node

    def map(
        self,
        task: Any,
        items: Iterable[Any],
        /,
        *,
        name: str | None = None,
        after: Any = None,
        **options: Any,
    ) -> list[Node[Any]]:
        """A node for each item: a tuple of positional arguments, or a single one that is no tuple.

        ```
        f.add(total, parts=f.map(count_words, pages))
        ```
        """
        base = _kind(task) if name is None else _node_name(name)
        given = check_list(items, field="items")
        join = as_join(after)  # once: an iterator would serve the first node only
        before, edges = len(self._nodes), len(self._edges)
        try:
            return [
                self.add(
                    task,
                    *(item if isinstance(item, tuple) else (item,)),
                    name=self._free(base),
                    after=join,
                    **options,
                )
                for item in given
            ]
        except BaseException:
            self._forget(before, edges)  # all of them or none, as in one `add`
            raise

    def _forget(self, nodes: int, edges: int) -> None:
        """Keep only the first so many nodes and edges."""
        for label in list(self._nodes)[nodes:]:
            del self._nodes[label], self._calls[label]
            self._joins.pop(label, None)
        del self._edges[edges:]
        self._named.clear()  # it is only a hint where to look for a free name

    # --- reading the arguments -----------------------------------------------------------------

    def _call(
        self, task: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, named: bool
    ) -> tuple[Call[Any], Wiring]:
        given = {name: kwargs.pop(name) for name in OPTION_NAMES & kwargs.keys()}
        if isinstance(task, Call):
            if args or kwargs:
                detail = f"{task.kind}: a call has its arguments already"
                raise InvalidInput(detail, field="task")
            options = _options(task.options, given, task.kind)
            return Call(task.kind, task.payload, options, task.task), Wiring({})
        base = NO_OPTIONS
        if isinstance(task, TaskWithOptions):
            task, base = task.task, task.chosen
        if isinstance(task, str):
            return self._call_by_name(task, args, kwargs, given)
        if not isinstance(task, Task):
            detail = f"task: {shown(task, 80)} is not a task; decorate it with @ff.task"
            raise InvalidInput(detail, field="task")
        try:
            wiring = Wiring(task.signature.bind(args, kwargs))
        except InvalidInput as error:
            if named and error.fields.get("field") == "name":
                error.detail += "; name= is the node's name here: give the argument by position"
            raise
        pending = frozenset(wiring.pending)
        if pending:
            payload = task.signature.encode_own(wiring.own, pending)
        else:
            payload = task.signature.encode(wiring.own)
        return Call(task.name, payload, _options(base, given, task.name), task, pending), wiring

    def _call_by_name(
        self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any], given: dict[str, Any]
    ) -> tuple[Call[Any], Wiring]:
        known = self._fabric.tasks.get(kind)
        if known is not None and not args:
            return self._call(known, args, {**kwargs, **given}, named=False)
        if len(args) > 1 or (args and kwargs) or (args and not isinstance(args[0], Mapping)):
            detail = f"{kind}: by name, give named arguments or one dictionary"
            raise InvalidInput(detail, field="payload")
        wiring = Wiring(args[0] if args else kwargs)
        try:
            payload = codec.encode(wiring.own)
        except codec.EncodeErrors as error:
            raise InvalidInput(f"{kind}: payload: {error}", field="payload") from None
        pending = frozenset(wiring.pending)
        return Call(kind, payload, _options(NO_OPTIONS, given, kind), None, pending), wiring

    # --- names and waits -----------------------------------------------------------------------

    def _label(self, name: str | None, kind: str) -> str:
        if name is None:
            return self._free(kind)
        name = _node_name(name)
        if name in self._nodes:
            raise InvalidInput(f"name: there is a node {name!r} already", field="name")
        return name

    def _free(self, base: str) -> str:
        """The first free name; the search begins where the last one ended. A refused node takes
        none, so that later ones are named as if it had not been tried."""
        number = self._named[base] or 1
        while (name := base if number == 1 else f"{base}-{number}") in self._nodes:
            number += 1
        self._named[base] = number
        return name

    def _waits(
        self, label: str, wiring: Wiring, after: Join | None
    ) -> tuple[list[Node[Any]], Join | None]:
        """The nodes a node waits for, and the join unless it waits for all of them."""
        joins = [*wiring.joins, *([after] if after is not None else [])]
        waits = list(dict.fromkeys([*wiring.inputs, *(n for join in joins for n in join.nodes)]))
        for node in waits:
            if node.flow is not self:
                detail = f"{label}: {node.name!r} is a node of another flow"
                raise InvalidInput(detail, field="after")
        special = list(dict.fromkeys(join for join in joins if not join.needs_all))
        if not special:
            return waits, None
        join = special[0]
        if len(special) > 1:
            detail = f"{label}: waits by {join} and by {special[1]}; a node has one join"
            raise InvalidInput(detail, field="after")
        for node in waits:
            if node not in join.nodes:
                detail = f"{label}: waits by {join}, so {node.name!r} must be one of its nodes"
                raise InvalidInput(f"{detail}, or come before them", field="after")
        return waits, join

    # --- requests of the engine
    # --------------------------------------------------------------------

    def request(self, connection: Any = None) -> SubmitFlow:
        """The request of the engine."""
        if not self._nodes:
            raise InvalidInput(f"{self.kind}: the flow has no nodes", field="flow")
        nodes = []
        for name, call in self._calls.items():
            join = self._joins.get(name)
            policy = None if join is None else join.policy
            nodes.append(FlowNode(name=name, execution=call.request(), join=policy))
        tasks = self._fabric.tasks
        hooks = {
            name: new_hook(hook, name, tasks, of_flow=True) for name, hook in self._hooks.items()
        }
        return SubmitFlow(
            nodes=nodes,
            edges=tuple(self._edges),
            flow_kind=self.kind,
            tags=self._tags,
            retention_ms=self._retention_ms,
            idempotency_key=self.key,
            connection=connection,
            on_success=hooks.get("on_success"),
            on_failure=hooks.get("on_failure"),
            on_end=hooks.get("on_end"),
        )

    def record(self, fabric: Home, connection: Any = None) -> Coroutine[Any, Any, FlowRun]:
        """Submit all of it in one transaction, which may be the caller's own. In a handler it takes
        its place in the journal at once."""
        if connection is None and (handler := handler_here(fabric.engine_here)) is not None:
            request, submits = self.request(), handler.journal.submits
            return self._record(fabric, submits, submits.place_flow(request), request)
        return self._submit(fabric, connection)

    async def _record(
        self, fabric: Home, submits: Submits, place: Submit, request: SubmitFlow
    ) -> FlowRun:
        return self._run_of(fabric, await submits.answer(place, request))

    async def _submit(self, fabric: Home, connection: Any) -> FlowRun:
        engine = await fabric.start()
        request = flow_submitted_by(self.request(connection))
        return self._run_of(fabric, await engine.call(request))

    def _run_of(self, fabric: Home, answer: FlowSubmitted | FlowDuplicate) -> FlowRun:
        """The handle of what was submitted."""
        tasks = {name: call.task for name, call in self._calls.items()}
        ids = dict(answer.execution_ids) if isinstance(answer, FlowSubmitted) else None
        return FlowRun(fabric, answer.flow_id, ids=ids, tasks=tasks)


class Flow(Graph):
    """A flow that is being written. Made by `ff.flow`; nothing is recorded before `submit`.

    ```
    with ff.flow("race") as f:
        a, b, c = (f.add(ask, model) for model in MODELS)
        f.add(judge, answers=quorum(2, a, b, c, losers="cancel"))
    run = await f.submit()
    print(await run.result())
    ```
    """

    _run: FlowRun | None = None
    _by: object = None  # the handler that submitted it

    def submit(self, *, connection: Any = None) -> Coroutine[Any, Any, FlowRun]:
        """Record the whole flow durably, or nothing of it. Submitting it again gives its run.

        `connection` is yours, with an open transaction, as in `Fabric.submit`: the flow then exists
        exactly if that commits. Since it may not, submitting again records it again; a `key`
        prevents that. In a handler it is a journaled call, as `Fabric.submit` is.
        """
        handler = handler_here(self._fabric.engine_here)
        if connection is None and self._run is not None and self._by is handler:
            return _known(self._run)
        return self._submitted(self.record(self._fabric, connection), handler, connection)

    async def _submitted(
        self, recording: Coroutine[Any, Any, FlowRun], handler: object, connection: Any
    ) -> FlowRun:
        run = await recording
        if connection is None:
            self._run, self._by = run, handler
        self._is_closed = True
        return run


async def _known(run: FlowRun) -> FlowRun:
    return run


def _node_name(name: object) -> str:
    """The name of a node."""
    return check_text(name, field="name", max_bytes=limits.NODE_NAME_BYTES)


def _kind(task: Any) -> str:
    if isinstance(task, TaskWithOptions):
        return task.task.name
    return task if isinstance(task, str) else str(getattr(task, "name", getattr(task, "kind", "")))


def _options(base: SubmitOptions, given: dict[str, Any], kind: str) -> SubmitOptions:
    options = base.but(**given)
    for name in ("key", "connection"):
        if getattr(options, name) is not None:
            detail = f"{kind}: {name}= belongs to the flow, not to a node"
            raise InvalidInput(detail, field=name)
    return options


def _with_gaps(call: Call[Any], wiring: Wiring, join: Join, label: str) -> Call[Any]:
    """A node that does not wait for all is called without some results: None takes their place."""
    single = [name for name in wiring.pending if not isinstance(wiring.own.get(name), list | dict)]
    form = call.task.signature if call.task else None
    missing = {name: None for name in single if form is None or not form.may_lack(name)}
    for name in missing:
        if form is not None and not form.takes_null(name) and not _is_sure(wiring, name):
            detail = (
                f"{label}: {name!r} may have no result, since it waits by {join}; "
                "annotate it with `| None` or give it a default"
            )
            raise InvalidInput(detail, field=name)
    payload = codec.encode({**missing, **wiring.own})
    return Call(call.kind, payload, call.options, call.task, call.pending)


def _is_sure(wiring: Wiring, name: str) -> bool:
    """Whether an argument takes the first of several results, of which one is certain."""
    first = (f"{name}|0", f"{name}|0=")
    places = {*wiring.inputs.values(), *wiring.own}
    return bool(places.intersection(first)) and any(join.gives_one for join in wiring.joins)
