"""`python -m flowfabric.cli` is `ff` where the script is not on the path."""

from __future__ import annotations

import sys

from flowfabric.cli.program import main

if __name__ == "__main__":
    sys.exit(main())
