"""The managed OpenCode: pinned, verified, put in its place whole, removed."""

from __future__ import annotations

import hashlib
import platform
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest

from agentteam_protocol.errors import RuntimeMissing
from agentteam_runtimes.driver import Options
from agentteam_runtimes.opencode import managed
from agentteam_runtimes.opencode.builtin import BuiltinDriver

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = f"#!/bin/sh\necho {managed.VERSION}\n"


@pytest.fixture
def vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have the vendor publish a small program; gives its archive."""
    program = tmp_path / "published"
    program.write_text(SCRIPT)
    build = managed.Build("opencode-small", hashlib.sha256(SCRIPT.encode()).hexdigest())
    machine = (sys.platform, platform.machine())
    monkeypatch.setattr(managed, "BUILDS", {machine: build})
    archive = tmp_path / "opencode-small.tgz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(program, managed.PROGRAM)
    return archive


@pytest.mark.req("R68")
def test_the_archive_or_the_program_is_installed_and_older_ones_go(
    tmp_path: Path, vendor: Path
) -> None:
    state = tmp_path / "state"
    old = managed.place(state) / "1.0.0" / "opencode"
    old.parent.mkdir(parents=True)
    old.write_text("old")
    for source in (vendor, tmp_path / "published"):
        program = managed.install(state, source)
        assert managed.installed(state) == [managed.VERSION]
        assert program.read_text() == SCRIPT
        assert program.stat().st_mode & 0o777 == 0o755
    assert [p.name for p in managed.place(state).iterdir()] == [managed.VERSION]
    assert managed.remove(state) == [managed.VERSION]
    assert managed.remove(state) == []


def test_what_is_not_the_pinned_build_changes_nothing(
    tmp_path: Path, vendor: Path
) -> None:
    state = tmp_path / "state"
    managed.install(state, vendor)
    other, junk = tmp_path / "other", tmp_path / "junk.tgz"
    other.write_text("#!/bin/sh\necho something else\n")
    with tarfile.open(junk, "w:gz") as packed:
        packed.add(other, "package/README.md")
    for source, problem in ((other, "SHA-256"), (junk, "holds no OpenCode")):
        with pytest.raises(RuntimeMissing, match=problem):
            managed.install(state, source)
    managed.verify(managed.program(state))
    assert [p.name for p in managed.place(state).iterdir()] == [managed.VERSION]


def test_npm_is_asked_for_the_pinned_package_and_its_failure_is_told(
    tmp_path: Path, vendor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    monkeypatch.setenv("PATH", f"{npm.parent}:/usr/bin:/bin")
    npm.write_text(
        f"#!/bin/sh\n[ $2 = opencode-small@{managed.VERSION} ] && cp {vendor} $5\n"
    )
    npm.chmod(0o755)
    program = managed.install(tmp_path / "state")
    assert program.read_text() == SCRIPT
    npm.write_text("#!/bin/sh\necho no network >&2\nexit 1\n")
    with pytest.raises(RuntimeMissing, match="no network"):
        managed.install(tmp_path / "state")
    assert program.exists()
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(RuntimeMissing, match="npm") as missing:
        managed.install(tmp_path / "state")
    assert "--from" in missing.value.what_to_do


def test_another_machine_is_told_what_to_do_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managed, "BUILDS", {})
    with pytest.raises(RuntimeMissing, match="pinned for") as missing:
        managed.install(tmp_path)
    assert "runtime opencode" in missing.value.what_to_do


@pytest.mark.req("R65", "R68")
def test_builtin_is_the_same_driver_over_the_managed_program(
    tmp_path: Path, vendor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(managed.STATE_DIR, str(tmp_path / "state"))
    driver = BuiltinDriver()
    options = Options()
    with pytest.raises(RuntimeMissing, match="not installed here") as missing:
        driver.probe(options)
    assert "agentteam runtimes install builtin" in missing.value.what_to_do
    managed.install(tmp_path / "state", vendor)
    assert driver.probe(options).version == managed.VERSION
    # After an upgrade of ours only the older build is there, until it is installed.
    (managed.place(tmp_path / "state") / managed.VERSION).rename(
        managed.place(tmp_path / "state") / "1.0.0"
    )
    with pytest.raises(RuntimeMissing, match=r"only 1\.0\.0"):
        driver.probe(options)
    with pytest.raises(RuntimeMissing, match="no option `bin`"):
        driver.probe(Options(bin="/a/program/of/theirs"))
