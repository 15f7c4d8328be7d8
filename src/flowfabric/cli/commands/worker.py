"""`ff worker MODULE:APP`: find the app, run a worker for it."""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import CommandFailed, Exit, not_found, usage
from flowfabric.cli.grammar import FfParser
from flowfabric.cli.logs import write_logs
from flowfabric.cli.show.terminal import mask
from flowfabric.model.record import replace
from flowfabric.sdk.fabric import Fabric
from flowfabric.sdk.worker import Worker
from flowfabric.sdk.worker.telling import about_attempt


def add_arguments(parser: FfParser) -> None:
    """Where the app is, and how its worker runs."""
    parser.add_argument("app", metavar="MODULE:APP", help="where the Fabric is, e.g. app:ff")
    parser.add_argument(
        "--concurrency", type=values.whole_number, metavar="N", help="executions at once"
    )
    parser.add_argument(
        "--lane", action="append", metavar="LANE", help="serve this lane (repeat; default: its own)"
    )
    parser.add_argument(
        "--capability", action="append", metavar="WORD", help="offer this capability (repeat)"
    )
    parser.add_argument(
        "--lease-ttl", type=values.duration_ms, metavar="TIME", help="how soon a crash is noticed"
    )
    parser.add_argument(
        "--drain-timeout", type=values.duration_ms, metavar="TIME", help="to finish when stopped"
    )
    parser.add_argument(
        "--warm", type=values.number, metavar="N", help="waiting handlers kept in memory"
    )
    parser.add_argument(
        "--metrics", metavar="ADDR", help="answer scrapes of Prometheus here, e.g. :9464"
    )
    parser.add_argument("--quiet", action="store_true", help="log warnings only")
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="for people or machines"
    )
    parser.set_defaults(handler=worker)


async def worker(call: Call) -> Exit:
    """Work until Ctrl-C or SIGTERM; then finish the claimed work."""
    arguments = call.arguments
    app = load(arguments.app)
    if arguments.url is not None:
        app.url = arguments.url
    named = [arguments.namespace] if arguments.namespace is not None else []
    tenants = arguments.namespaces or named
    if len(tenants) == 1:
        app.config = replace(app.config, namespace=tenants[0])
    options: dict[str, Any] = {
        "namespaces": tenants if len(tenants) > 1 else None,
        "lanes": arguments.lane,
        "capabilities": arguments.capability,
        "concurrency": arguments.concurrency,
        "lease_ttl": _seconds(arguments.lease_ttl),
        "drain_timeout": _seconds(arguments.drain_timeout),
        "warm": arguments.warm,
        "metrics": arguments.metrics,
    }
    chosen = Worker(app, **{name: value for name, value in options.items() if value is not None})
    write_logs(
        call.terminal.err, level=_level(call), form=arguments.log_format, about=about_attempt
    )
    if call.terminal.as_json:
        _announce(call, chosen, app)
    await chosen.run()
    return Exit.OK


def _level(call: Call) -> int:
    if call.arguments.debug:
        return logging.DEBUG
    return logging.WARNING if call.arguments.quiet else logging.INFO


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _announce(call: Call, chosen: Worker, app: Fabric) -> None:
    settings = chosen.settings
    document = {
        "worker_id": settings.worker_id,
        "worker_instance_id": settings.instance_id,
        "url": mask(app.url),
        "namespaces": list(settings.namespaces or (app.config.namespace,)),
        "lanes": list(settings.lanes),
        "kinds": list(settings.kinds),
        "capabilities": list(settings.capabilities),
        "concurrency": settings.concurrency,
        "lease_ttl_ms": settings.lease_ttl_ms,
    }
    call.terminal.document(document)
    call.terminal.out.flush()


def load(target: str) -> Fabric:
    """The Fabric that MODULE:APP names."""
    module_name, path = names_of(target)
    module = _import(module_name)
    found: Any = module
    for name in path.split("."):
        if not hasattr(found, name):
            raise _no_attribute(module, target, name)
        found = getattr(found, name)
    if not isinstance(found, Fabric):
        raise usage(
            f"{target} is a {type(found).__name__}, not a Fabric", advice=_fabrics_in(module)
        )
    return found


def names_of(target: str) -> tuple[str, str]:
    """The module, and the Fabric's name in it."""
    module_name, colon, path = target.partition(":")
    if not colon or not module_name or not path:
        raise usage(f"{target!r} is not MODULE:APP", advice="write for example app:ff")
    return module_name, path


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise not_found(
                f"no module {name!r} in {here} or on the Python path",
                advice="start ff in the folder of the module, or set PYTHONPATH",
            ) from error
        raise _broken(name, error) from error
    except Exception as error:  # the module's own code may raise anything
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> CommandFailed:
    return CommandFailed(
        f"module {name} cannot be loaded: {type(error).__name__}: {error}",
        advice="correct it; --debug shows where",
        exit_code=Exit.FAILED,
        code="import_failed",
    )


def _no_attribute(module: ModuleType, target: str, name: str) -> CommandFailed:
    hint = values.nearest(name, vars(module)) or _fabrics_in(module)
    return not_found(f"module {module.__name__} has no {name!r} (in {target})", advice=hint)


def _fabrics_in(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Fabric)]
    if names:
        return f"did you mean {module.__name__}:{names[0]}?"
    return f"make one in {module.__name__}: ff = Fabric()"
