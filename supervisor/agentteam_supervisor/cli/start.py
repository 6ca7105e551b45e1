"""How a program that stays gets up quickly, and is not looked through for ever after."""

from __future__ import annotations

import gc
import sys

# httpx imports its own command line where that is installed, and rich and pygments
# with it, which no service needs. It knows how to do without.
UNWANTED = "httpx._main"

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
    sys.modules.setdefault(UNWANTED, None)  # type: ignore[arg-type]  # no such module


def settle_down() -> None:
    """Let the collector pass over what is there now, for the rest of our life."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_USUAL)
