"""A claim of a driver is shown by a check, or is said to be untested."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from attrs import field, fields, frozen

from agentteam_runtimes.conformance import plugin
from agentteam_runtimes.conformance.claims import CLAIMS, Claims
from agentteam_runtimes.driver import CONTRACT, Capabilities, Steer

if TYPE_CHECKING:
    from agentteam_runtimes.conformance.claims import Line


def test_every_claim_stands_in_the_report() -> None:
    claims = {claim.name for claim in fields(Capabilities)}
    # The kit refuses a driver that claims the last of these.
    assert claims - set(CLAIMS) == {"version", "rewind"}


def test_a_claim_counts_when_a_check_has_shown_it() -> None:
    claims = Claims(Capabilities("1", steer=Steer.ack, resume=True, steps=True))
    claims.show("steer", "ack: surfaced")
    claims.show("tools", "nobody claimed that")
    found = {line.name: line for line in claims.lines()}
    assert found["steer"].shown == "ack: surfaced"
    assert _owed(found) == claims.owed == ["resume", "steps"]


def _owed(lines: dict[str, Line]) -> list[str]:
    return [name for name, line in lines.items() if line.owed]


@frozen
class Terminal:
    """What pytest writes its summary to."""

    stats: dict[str, list[str]] = field(factory=dict[str, list[str]])
    lines: list[str] = field(factory=list[str])

    def section(self, title: str) -> None:
        self.write_line(title)

    def write_line(self, line: str) -> None:
        self.lines.append(line)


@frozen
class Run:
    """What the kit keeps of a run of it."""

    stash: pytest.Stash


@pytest.mark.parametrize(
    ("shown", "failed", "verdict"),
    [
        (["steer", "resume"], [], f"conforms to contract {CONTRACT}"),
        (["steer"], [], "nothing failed; claimed and untested: resume"),
        (["steer", "resume"], ["one"], f"does not conform to contract {CONTRACT}"),
    ],
)
def test_the_report_ends_with_a_verdict_or_says_what_is_untested(
    shown: list[str],
    failed: list[str],
    verdict: str,
) -> None:
    claims = Claims(Capabilities("1", steer=Steer.ack, resume=True))
    for name in shown:
        claims.show(name, "so")
    stash = pytest.Stash()
    stash[plugin.CLAIMS], stash[plugin.DESELECTED] = claims, 0
    terminal = Terminal({"failed": failed})
    plugin.pytest_terminal_summary(terminal, cast("pytest.Config", Run(stash)))
    assert terminal.lines[-1].startswith(verdict)
    untested = [line for line in terminal.lines if "CLAIMED, UNTESTED" in line]
    assert [line.split()[0] for line in untested] == claims.owed
