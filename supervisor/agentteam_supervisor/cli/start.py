"""How a program that stays gets up quickly, and is not looked through for ever after."""

from __future__ import annotations

import gc
import sys

# They are for the screen of a person. httpx and structlog import them wherever they
# are installed, and do without where they are not.
UNWANTED = ("rich", "pygments")

# Without any round of the collector the garbage of the imports would stay, too: 3 MB.
SELDOM = (10_000, 20, 100)
_USUAL = gc.get_threshold()


def get_up() -> None:
    """
    Keep out what slows a start; before the slow imports.

    Nearly all that is made now stays for good, and the collector would look through
    it again and again: a tenth of a start.
    """
    gc.set_threshold(*SELDOM)
    for name in UNWANTED:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # None: not there


def settle_down() -> None:
    """Let the collector pass over what is there now, for the rest of our life."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_USUAL)
