"""The program that the documentation shows does what it says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import trio
from tests.kit.product import open_product

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
@pytest.mark.req("R11")
async def test_the_script_of_an_embedding_program_gets_the_proof(
    tmp_path: Path,
) -> None:
    page = (DOCS / "embedding.md").read_text()
    (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    async with open_product(tmp_path) as product:
        program = script.replace("http://127.0.0.1:8642", product.up.url)
        done = await trio.run_process(
            [sys.executable, "-I", "-c", program], capture_stdout=True, check=True
        )
    assert done.stdout.decode() == "surfaced recorded\n"
