"""The `[limits]` of `agentteam.toml` are checked before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from attrs import fields
from tests.kit.service import open_service, run_command

from agentteam_supervisor.cli.failure import CommandFailed
from agentteam_supervisor.cli.limits import NAMES, declared_limits
from agentteam_supervisor.cli.settings import FILE, read_settings
from agentteam_supervisor.session.deadlines import Limits

if TYPE_CHECKING:
    from pathlib import Path


def test_every_limit_of_a_session_can_be_set() -> None:
    assert list(NAMES.values()) == [field.name for field in fields(Limits)]


def test_what_is_not_set_keeps_its_default(tmp_path: Path) -> None:
    assert declared_limits(read_settings(tmp_path)) == {}
    (tmp_path / FILE).write_text("[limits]\nsilence = 1800\ninterruptSoft = 0.5\n")
    limits = Limits(**declared_limits(read_settings(tmp_path)))
    assert limits == Limits(silence=1800.0, interrupt_soft=0.5)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("limits = 1", "toml:1: limits must be a table"),
        ("[limits]\nsilent = 1", "unknown key 'silent'; known are start, interrupt,"),
        ("[limits]\nkill = 0", "limits.kill is 0; it must be a number of seconds"),
        ("[limits]\nkill = -1", "limits.kill is -1"),
        ("[limits]\nkill = inf", "limits.kill is inf"),
        ("[limits]\nkill = nan", "limits.kill is nan"),
        ("[limits]\nkill = true", "limits.kill is True"),
        ("[limits]\nkill = 'never'", "limits.kill is 'never'"),
        ("[limits]\nkill = 1" + "0" * 400, "seconds above 0"),
    ],
)
def test_what_no_clock_can_keep_is_refused(
    tmp_path: Path, text: str, problem: str
) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(CommandFailed, match="correct the file") as caught:
        declared_limits(read_settings(tmp_path))
    assert problem in str(caught.value)


@pytest.mark.slow
def test_a_run_that_says_nothing_for_so_long_is_cut(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("[limits]\nsilence = 1\n")
    with open_service(tmp_path):
        sent = run_command(tmp_path, "send", "@demo", '#do [{"wait": 60000}]', "--wait")
        assert sent.code == 0, sent.stderr
        ledger = ""
        for _ in range(30):
            ledger = run_command(tmp_path, "replay", "demo").stdout
            if "silent" in ledger:
                break
        assert "aborted" in ledger
        assert "silent" in ledger


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["up", "daemon"])
def test_a_bad_limit_ends_the_start_with_a_sentence(tmp_path: Path, verb: str) -> None:
    (tmp_path / FILE).write_text("[limits]\nkill = 0\n")
    done = run_command(tmp_path, verb)
    assert done.code == 1
    assert "limits.kill is 0; it must be a number of seconds above 0" in done.stderr
    assert "Traceback" not in done.stderr
