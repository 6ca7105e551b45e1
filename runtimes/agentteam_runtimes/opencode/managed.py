"""
The OpenCode that we keep ourselves: one pinned build, below the state directory.

It is fetched with npm, as the vendor publishes it, and taken only when its program has
the checksum that stands here. A build is put in its place whole or not at all; the ones
of other versions go when a new one is in its place.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from agentteam_protocol.errors import RuntimeMissing

if TYPE_CHECKING:
    from typing import IO

VERSION = "1.18.33"
INSTALL = "run `agentteam runtimes install builtin`"
FETCH_SECONDS = 900

# The command exports the state directory it was given under this name.
STATE_DIR = "AGENTTEAM_STATE_DIR"
PROGRAM = "package/bin/opencode"  # in the vendor's archive


@frozen
class Build:
    """One build of the vendor's, by the machine it runs on."""

    package: str
    sha256: str


BUILDS = {
    ("linux", "x86_64"): Build(
        "opencode-linux-x64",
        "0abbb7c32ab0294c0a7bfa2705f9ff0df5dce5ab721d1f00cccfe393f2a11427",
    ),
}


def find_build() -> Build:
    """Name the build for this machine; raises `RuntimeMissing`."""
    machine = (sys.platform, platform.machine())
    if build := BUILDS.get(machine):
        return build
    raise RuntimeMissing(
        f"no build of OpenCode {VERSION} is pinned for {' '.join(machine)}",
        "install OpenCode yourself and use the runtime opencode",
    )


def state_directory() -> Path:
    given = os.environ.get(STATE_DIR)
    return Path(given) if given else Path.home() / ".local" / "state" / "agentteam"


def place(state_dir: Path) -> Path:
    """Name the directory that holds the managed builds, one below it for each."""
    return state_dir / "runtimes" / "builtin"


def program(state_dir: Path) -> Path:
    """Name the program of the pinned build, there or not."""
    return place(state_dir) / VERSION / "opencode"


def find_program(state_dir: Path) -> Path:
    """Find the program of the pinned build; raises `RuntimeMissing`."""
    found = program(state_dir)
    if found.is_file():
        return found
    others = installed(state_dir)
    held = f", only {', '.join(others)}" if others else ""
    raise RuntimeMissing(f"OpenCode {VERSION} is not installed here{held}", INSTALL)


def installed(state_dir: Path) -> list[str]:
    """List the versions that are in their place, the pinned one or not."""
    return sorted(p.parent.name for p in place(state_dir).glob("[0-9]*/opencode"))


def verify(path: Path) -> None:
    """Insist that a program is the pinned one; raises `RuntimeMissing`."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != find_build().sha256:
        raise RuntimeMissing(
            f"{path} is not the pinned build of OpenCode {VERSION}: its SHA-256 is"
            f" {found}",
            INSTALL,
        )


def install(state_dir: Path, source: Path | None = None) -> Path:
    """
    Put the pinned build in its place; `source` is its archive or program, else npm.

    Raises `RuntimeMissing` with nothing changed.
    """
    build = find_build()
    root = place(state_dir)
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=root) as name:
        work = Path(name)
        archive = source or _fetch(build, work)
        (work / VERSION).mkdir()
        new = work / VERSION / "opencode"
        _take_out(archive, new)
        verify(new)
        new.chmod(0o755)
        remove(state_dir)
        (work / VERSION).rename(root / VERSION)
    return program(state_dir)


def remove(state_dir: Path) -> list[str]:
    """Remove all managed builds; a process that runs one goes on with it."""
    gone = installed(state_dir)
    for version in gone:
        shutil.rmtree(place(state_dir) / version)
    return gone


def _fetch(build: Build, work: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeMissing(
            "npm, which fetches OpenCode, is not there",
            f"install npm, or give the archive of {build.package}@{VERSION} with --from",
        )
    wanted = f"{build.package}@{VERSION}"
    try:
        done = subprocess.run(
            [npm, "pack", wanted, "--silent", "--pack-destination", str(work)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=work,
            timeout=FETCH_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise RuntimeMissing(f"npm did not fetch {wanted}: {exc}", "try again") from exc
    archives = list(work.glob("*.tgz"))
    if done.returncode or not archives:
        said = done.stderr.decode("utf-8", "replace").strip()[-400:]
        raise RuntimeMissing(
            f"npm did not fetch {wanted}: {said or done.returncode}",
            "look at npm's configuration and network, then try again",
        )
    return archives[0]


def _take_out(source: Path, target: Path) -> None:
    """Copy the program out of the vendor's archive, or from where it lies."""
    try:
        if not tarfile.is_tarfile(source):
            shutil.copyfile(source, target)
            return
        with tarfile.open(source) as archive:
            packed = archive.extractfile(PROGRAM)
            if packed is None:
                raise KeyError(PROGRAM)
            with packed, target.open("wb") as file:
                _copy(packed, file)
    except (OSError, KeyError, tarfile.TarError) as exc:
        problem = f"{source} holds no OpenCode: {exc}"
        raise RuntimeMissing(problem, "give the vendor's archive or program") from exc


def _copy(packed: IO[bytes], file: IO[bytes]) -> None:
    shutil.copyfileobj(packed, file, 1 << 20)
