"""The house rules that a program can check."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import click
import pytest
from tests.requirements import BY_INSPECTION, carried, statements

from agentteam_protocol.journal import KINDS, TurnOutcome
from agentteam_supervisor.cli.main import agentteam

ROOT = Path(__file__).parents[1]
PACKAGES = [
    ROOT / "protocol" / "agentteam_protocol",
    ROOT / "runtimes" / "agentteam_runtimes",
    ROOT / "supervisor" / "agentteam_supervisor",
]
SOURCES = [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]
# The sample adapter is a distribution of its own: it wraps an SDK that wants asyncio.
SAMPLE = ROOT / "tests" / "sample_adapter"
TESTS = sorted(p for p in (ROOT / "tests").rglob("*.py") if SAMPLE not in p.parents)
FORBIDDEN_NAMES = {"utils", "helpers", "common", "types", "base"}


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(path: Path) -> set[str]:
    """Name the top-level packages that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_every_top_level_folder_says_what_it_is() -> None:
    for folder in ("protocol", "runtimes", "supervisor", "tests", "bench"):
        text = (ROOT / folder / "README.md").read_text()
        assert text.startswith(f"# {folder}"), folder
        assert len(text.splitlines()) <= 60, f"{folder}/README.md is over a page"


@pytest.mark.parametrize("path", SOURCES + TESTS, ids=shown)
def test_no_file_is_longer_than_600_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 600


@pytest.mark.parametrize("path", SOURCES + TESTS, ids=shown)
def test_nothing_imports_asyncio_or_mocks(path: Path) -> None:
    assert not imported(path) & {"asyncio", "anyio", "mock"}
    assert "unittest.mock" not in path.read_text() or path == Path(__file__)


@pytest.mark.parametrize("path", SOURCES, ids=shown)
def test_a_package_file_holds_one_docstring_and_exports_nothing(path: Path) -> None:
    assert path.stem not in FORBIDDEN_NAMES
    if path.name == "__init__.py":
        (docstring,) = ast.parse(path.read_text()).body
        assert isinstance(docstring, ast.Expr)


@pytest.mark.parametrize("path", SOURCES, ids=shown)
def test_imports_are_absolute_and_a_file_says_what_it_is(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree)
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level]


@pytest.mark.parametrize("path", SOURCES, ids=shown)
def test_layers_point_one_way(path: Path) -> None:
    layers = [package.name for package in PACKAGES]
    mine = next(i for i, package in enumerate(PACKAGES) if package in path.parents)
    assert not imported(path) & set(layers[mine + 1 :])


@pytest.mark.req("R116")
def test_the_journal_speaks_the_words_of_the_spec() -> None:
    assert set(KINDS.values()) >= {
        "inbox/spliced",
        "turn/start",
        "step/start",
        "step/end",
        "turn/end",
        "approval/asked",
        "approval/decided",
        "approval/policy",
        "interrupt/requested",
        "fence/held",
        "fence/closed",
        "fence/late",
        "user/message",
        "assistant/message",
        "tool/call",
        "tool/result",
    }
    assert {"completed", "aborted", "blocked", "error"} <= set(TurnOutcome)


def test_every_number_on_a_test_is_a_number_of_the_list() -> None:
    for kind, file in (("req", "requirements.md"), ("bug", "bugs.md")):
        known = statements(ROOT / "tests" / "data" / file)
        assert not set(carried(kind)) - set(known)


def test_what_is_left_to_inspection_has_a_reason() -> None:
    known = statements(ROOT / "tests" / "data" / "requirements.md")
    assert set(BY_INSPECTION) <= set(known)
    assert all(len(reason) > 20 for reason in BY_INSPECTION.values())


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```(?:sh)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?:^|&& )(?:\.venv/bin/)?agentteam (.*?)(?= && |$)")


def _commands(page: Path) -> list[list[str]]:
    lines = [
        line for block in _BLOCK.findall(page.read_text()) for line in block.split("\n")
    ]
    found = [words for line in lines for words in _COMMAND.findall(line)]
    return [shlex.split(words, comments=True) for words in found]


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_the_commands_of_a_page_exist_with_their_options(page: Path) -> None:
    for words in _commands(page):
        command: click.Command | None = agentteam
        with click.Context(agentteam) as context:
            while isinstance(command, click.Group) and words and words[0][0] != "-":
                if (below := command.get_command(context, words[0])) is None:
                    break
                command, words = below, words[1:]
        assert command is not agentteam or words[0] == "--help", words
        assert command is not None
        known = {name for p in command.params for name in p.opts} | {"--help"}
        used = {w.partition("=")[0] for w in words if w.startswith("--")}
        assert used <= known, (shown(page), used - known)


def test_pages_that_pages_name_exist() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), (shown(page), target)
