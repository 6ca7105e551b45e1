"""The driver contract: one interrupt for every runtime, by declared capability."""

from __future__ import annotations

import inspect

import pytest

from agentteam_runtimes import driver as d
from agentteam_runtimes.plugins import find_plugins

METHODS = sorted(
    name
    for name, member in inspect.getmembers(d.Runtime, inspect.isfunction)
    if not name.startswith("_")
)


@pytest.mark.req("R34")
def test_every_runtime_is_interrupted_through_the_same_method() -> None:
    assert "interrupt" in METHODS
    taken = inspect.signature(d.Runtime.interrupt).parameters
    assert list(taken) == ["self", "turn"]


@pytest.mark.req("R34", "R65")
@pytest.mark.parametrize("name", find_plugins().names)
def test_a_registered_driver_has_the_shape_of_the_contract(name: str) -> None:
    driver = find_plugins().load(name)
    assert (driver.name, driver.contract) == (name, d.CONTRACT)
    for method in ("probe", "open"):
        wanted = list(inspect.signature(getattr(d.Driver, method)).parameters)[1:]
        assert list(inspect.signature(getattr(driver, method)).parameters) == wanted


@pytest.mark.req("R67")
def test_rewind_is_declared_by_nobody() -> None:
    assert d.Capabilities(version="1").rewind is False
