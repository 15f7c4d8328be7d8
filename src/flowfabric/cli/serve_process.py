"""One of the processes of `ff serve --workers N`: a server that ends when its parent is gone."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Final

SECRET_BYTES: Final = 32  # which the parent writes as hexadecimal digits
_LOOK_S: Final = 1.0


def main() -> int:
    """`ff serve` with the words that the parent has chosen."""
    from flowfabric.cli import main as ff
    from flowfabric.server.access.sessions import share_secret

    parent, *words = sys.argv[1:]
    secret = bytes.fromhex(sys.stdin.read(2 * SECRET_BYTES))
    if len(secret) != SECRET_BYTES:
        return 1  # the parent is gone already
    share_secret(secret)
    threading.Thread(target=_look_around, args=(int(parent),), daemon=True).start()
    return ff(words)


def _look_around(parent: int) -> None:
    pause = threading.Event()
    while os.getppid() == parent:
        pause.wait(_LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
