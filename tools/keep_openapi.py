"""Keeps what the HTTP API of this release promises: tests/server/openapi/VERSION.json.

python tools/keep_openapi.py           keep that of a release; one that is kept is not changed
python tools/keep_openapi.py --add     before the release: what was added since is promised, too
python tools/keep_openapi.py --anew    before the release, on purpose: nobody depends on it yet
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from flowfabric.config import VERSION  # noqa: E402 - needs the path
from flowfabric.server.routes.all import DESCRIPTION  # noqa: E402
from tests.support.promises import breaks, kept, promised, written  # noqa: E402

FOLDER = ROOT / "tests" / "server" / "openapi"


def main(words: list[str]) -> int:
    path = FOLDER / f"{VERSION}.json"
    promises = promised(DESCRIPTION.document(VERSION))
    if path.exists():
        if words not in (["--add"], ["--anew"]):
            print(f"{path} is kept already")
            return 1
        broken = breaks(kept(path), promises)
        print("\n".join(broken))
        if broken and words != ["--anew"]:
            return 1
    path.parent.mkdir(exist_ok=True)
    path.write_text(written(promises), encoding="utf-8")
    print(f"{path}: {len(promises['paths'])} paths, {len(promises['schemas'])} schemas")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
