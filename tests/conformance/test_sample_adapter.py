"""The tutorial's adapter: a distribution of its own, beside ours, in a fresh venv."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.kit.conformance import run_kit

from agentteam_runtimes.driver import CONTRACT

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "tests" / "sample_adapter"
STAGE = "toy_adapter.stage:open_stage"


def test_the_sample_adapter_installs_beside_our_wheel_and_conforms(
    tmp_path: Path,
) -> None:
    wheels, venv = tmp_path / "wheels", tmp_path / "venv"
    _run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", wheels, ROOT)
    _run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", wheels, SAMPLE)
    _run(sys.executable, "-m", "venv", "--without-pip", venv)
    (ours,) = wheels.glob("agentteam_supervisor-*.whl")
    (toy,) = wheels.glob("agentteam_runtime_toy-*.whl")
    python = str(venv / "bin" / "python")
    pip = (sys.executable, "-m", "pip", "--python", python)
    _run(*pip, "install", f"{ours}[conformance]", toy)
    ran = run_kit("toy", "--stage", STAGE, "--patience", "30", python=python, cwd=venv)
    assert ran.returncode == 0, ran.stdout
    assert "conforms to contract" in ran.stdout, ran.stdout


def test_the_sample_adapter_is_typed_for_its_author() -> None:
    pytest.importorskip("mypy", reason="mypy comes with the gates")
    files = [SAMPLE / "toy_adapter" / name for name in ("driver.py", "stage.py")]
    _run(sys.executable, "-m", "mypy", "--strict", "--config-file=", *files)


def _run(*command: str | Path) -> None:
    """Run it outside of the checkout's settings; what it says is the failure."""
    ran = subprocess.run(
        [*map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}"


def test_the_tutorial_shows_the_adapter_as_it_is() -> None:
    text = (ROOT / "runtimes" / "ADAPTERS.md").read_text()
    shown = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    source = "".join(path.read_text() for path in SAMPLE.rglob("*.py"))
    assert len(shown) == 6
    assert [block for block in shown if block not in source] == []
    assert f"conforms to contract {CONTRACT}`" in text
