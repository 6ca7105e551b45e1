"""
Start the scripted runtime: `python -I -S program.py`.

Isolated from the user's site and its start-up cost: what it needs is the standard
library and the modules beside it that say so in their first line.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # Last on the path: nothing here or beside it may stand in for the library.
    sys.path.append(__file__.rsplit("/", 3)[0])
    from agentteam_runtimes.rehearsal.listener import serve

    serve()
