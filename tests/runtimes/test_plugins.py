from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

import pytest

from agentteam_protocol.errors import RuntimeMissing
from agentteam_runtimes.driver import CONTRACT
from agentteam_runtimes.plugins import GROUP, check_contract, find_plugins
from agentteam_runtimes.rehearsal.driver import RehearsalDriver

if TYPE_CHECKING:
    from pathlib import Path

GOOD = "agentteam_runtimes.rehearsal.driver:RehearsalDriver"


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, GROUP)


@pytest.fixture
def broken_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_driver.py").write_text(
        "class Raises:\n"
        "    def __init__(self): raise ValueError('no luck')\n"
        "class Half:\n"
        "    name = 'half'\n"
        "    contract = 1\n"
        "    def probe(self, options): ...\n"
        "class Early(Half):\n"
        "    contract = 1000\n"
        "    def open(self, spec, resume, emit): ...\n"
    )
    (tmp_path / "unimportable.py").write_text("import a_part_that_is_not_here\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_driver", raising=False)


def test_the_embedded_drivers_are_found_as_installed() -> None:
    plugins = find_plugins()
    assert {"rehearsal", "codex"} <= set(plugins.names)
    assert plugins.load("rehearsal").name == "rehearsal"


def test_looking_imports_nothing() -> None:
    assert find_plugins([point("x", "no_such_module:Driver")]).names == ["x"]


def test_an_unknown_name_is_told_with_the_known_ones() -> None:
    plugins = find_plugins([point("b", GOOD), point("a", GOOD)])
    with pytest.raises(RuntimeMissing) as missing:
        plugins.load("c")
    assert missing.value.problem == "there is no runtime c"
    assert "(a, b)" in missing.value.what_to_do


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("no_such_module:Driver", "ModuleNotFoundError"),
        ("unimportable:Driver", "a_part_that_is_not_here"),
        ("broken_driver:Missing", "AttributeError"),
        ("broken_driver:Raises", "ValueError: no luck"),
        ("broken_driver:Half", "has no open"),
        ("broken_driver:Early", "written for contract 1000 of drivers, and this"),
        ("sys:path", "TypeError"),
    ],
)
@pytest.mark.usefixtures("broken_modules")
def test_a_broken_plugin_is_reported_and_disturbs_no_other(
    value: str, problem: str
) -> None:
    plugins = find_plugins([point("bad", value), point("good", GOOD)])
    with pytest.raises(RuntimeMissing) as missing:
        plugins.load("bad")
    assert problem in missing.value.problem
    assert [broken.name for broken in plugins.broken()] == ["bad"]
    assert isinstance(plugins.load("good"), RehearsalDriver)


def test_two_drivers_of_one_name_are_refused_by_name() -> None:
    plugins = find_plugins([point("x", GOOD), point("x", "other:Driver")])
    with pytest.raises(RuntimeMissing, match=r"two drivers are called x"):
        plugins.load("x")


def test_the_same_driver_seen_twice_is_one() -> None:
    plugins = find_plugins([point("x", GOOD), point("x", GOOD)])
    assert isinstance(plugins.load("x"), RehearsalDriver)


def test_a_driver_of_an_older_contract_is_warned_of_and_loads() -> None:
    driver = RehearsalDriver()
    check_contract(driver, "it")
    with pytest.warns(DeprecationWarning, match=f"written for contract {CONTRACT}"):
        check_contract(driver, "it", CONTRACT + 1)
