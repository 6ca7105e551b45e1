"""A directory of one incarnation."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


@contextmanager
def scratch(path: Path) -> Generator[Path]:
    """Give an incarnation a fresh directory for what it leaves behind, then remove it."""
    # One process at a time: what is left there is of one that was killed.
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True, mode=0o700)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
