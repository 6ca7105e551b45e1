"""The proof line: what was done to the product, and what became of it."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import version

from attrs import Factory, define

from agentteam_supervisor.chaos.checker import Finding

LOST = ("lost", "silent", "claimed")
DOUBLED = ("doubled", "denied")
ORPHANS = ("orphan", "outlived")


@define
class Proof:
    """Totals of a campaign."""

    seed: int
    seconds: float = 0.0
    lives: int = 0
    faults: Counter[str] = Factory(Counter[str])
    states: Counter[str] = Factory(Counter[str])
    stops: int = 0
    worst_settle: float = 0.0
    findings: list[Finding] = Factory(list[Finding])
    runtime: str = ""  # of the agents, unless they are scripted
    version: str = Factory(lambda: version("agentteam-supervisor"))

    @property
    def ok(self) -> bool:
        return not self.findings

    def of(self, *kinds: str) -> int:
        return sum(finding.kind in kinds for finding in self.findings)

    def line(self, seeds: str = "") -> str:
        """Say it in one line; `seeds` if it is the sum of several."""
        played = f"real {self.runtime}, " if self.runtime else ""
        other = len(self.findings) - self.of(*LOST, *DOUBLED, *ORPHANS, "late")
        return (
            f"{self.faults.total()} faults injected, {self.states.total()} deliveries:"
            f" {self.of(*LOST)} lost, {self.of(*DOUBLED)} doubled,"
            f" {self.of(*ORPHANS)} orphans, {self.of('late')} late outputs live,"
            f" {other} other findings, worst settle {self.worst_settle:.1f} s"
            f" of {self.stops} stops ({seeds or f'seed {self.seed}'}, version {self.version},"
            f" {played}{self.lives} lives, {self.seconds:.0f} s)"
        )

    def as_json(self) -> dict[str, object]:
        return {
            "ok": self.ok,
            "seed": self.seed,
            "version": self.version,
            "runtime": self.runtime or "rehearsal",
            "seconds": round(self.seconds, 1),
            "lives": self.lives,
            "faults": self.faults.total(),
            "faultKinds": dict(self.faults),
            "deliveries": self.states.total(),
            "states": dict(self.states),
            "lost": self.of(*LOST),
            "doubled": self.of(*DOUBLED),
            "orphans": self.of(*ORPHANS),
            "lateOutputsLive": self.of("late"),
            "stops": self.stops,
            "worstSettleSeconds": round(self.worst_settle, 2),
            "findings": [
                {"kind": f.kind, "about": f.about, "seen": f.seen}
                for f in self.findings
            ],
        }
