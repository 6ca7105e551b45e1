"""The tutorial's adapter: what its text shows, and its types."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from tests.kit.conformance import do

from agentteam_runtimes.driver import CONTRACT

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "tests" / "sample_adapter"


@pytest.mark.slow
def test_the_sample_adapter_is_typed_for_its_author() -> None:
    pytest.importorskip("mypy", reason="mypy comes with the gates")
    files = [str(SAMPLE / "toy_adapter" / name) for name in ("driver.py", "stage.py")]
    do((sys.executable, "-m", "mypy", "--strict", "--config-file=", *files))


def test_the_tutorial_shows_the_adapter_as_it_is() -> None:
    tutorial = ROOT / "runtimes" / "ADAPTERS.md"
    if not tutorial.exists():
        pytest.skip("the wheel brings no texts")
    text = tutorial.read_text()
    shown = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    source = "".join(path.read_text() for path in SAMPLE.rglob("*.py"))
    assert len(shown) == 6
    assert [block for block in shown if block not in source] == []
    assert f"conforms to contract {CONTRACT}`" in text
