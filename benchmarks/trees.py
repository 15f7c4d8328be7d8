"""This tree, and the tree of another commit beside it. It imports nothing of either."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """The tree of a commit in a folder of its own, for a while."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "before"
        _git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def scenarios_of(tree: Path) -> str:
    """The module that runs every scenario by name. Older commits keep it in the package."""
    if (tree / "benchmarks" / "scenarios").is_dir():
        return "benchmarks.scenarios"
    return "flowfabric.bench"


def _git(*words: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), *words], check=True)
