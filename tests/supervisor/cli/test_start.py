"""What a service does to itself at its start."""

from __future__ import annotations

import gc
import subprocess
import sys
from functools import partial

import pytest

from agentteam_supervisor.cli.start import UNWANTED, get_up, settle_down

run = partial(
    subprocess.run,  # a Python of nobody's, to look at what it imports
    capture_output=True,
    text=True,
    timeout=60,
    check=True,
)

LOOK = """\
import sys
from agentteam_supervisor.cli.start import get_up
get_up()
import httpx, agentteam_supervisor.cli.services
loaded = {name for name, module in sys.modules.items() if module is not None}
print(sorted({"rich", "pygments"} & loaded), httpx.get.__name__)
"""


def test_the_collector_passes_over_what_a_start_has_made_and_works_again() -> None:
    usual = gc.get_threshold()
    try:
        get_up()
        assert gc.isenabled()
        settle_down()
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold() == usual
    finally:
        gc.unfreeze()
        gc.set_threshold(*usual)
        for name in UNWANTED:
            if sys.modules.get(name, gc) is None:
                del sys.modules[name]


@pytest.mark.slow
def test_a_service_imports_no_screen_and_httpx_works_without() -> None:
    assert run([sys.executable, "-c", LOOK]).stdout == "[] get\n"
