"""What became of the visits to each point; parts of a tour are added up. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from attrs import frozen

from agentteam_supervisor.chaos.checker import Finding
from agentteam_supervisor.chaos.proof import Proof

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agentteam_supervisor.chaos.visits import Visited


@frozen
class Row:
    """
    One point: visits, deaths there, and how many visits died there twice in a row.

    `missed` counts the visits that did not come to the point, by side.
    """

    point: str
    visits: int
    killed: int
    twice: int
    missed: Counter[str]

    @classmethod
    def of(cls, point: str, made: Iterable[Visited]) -> Row:
        mine = [each for each in made if each.visit.point == point]
        return cls(
            point,
            len(mine),
            sum(each.deaths for each in mine),
            sum(each.deaths > 1 for each in mine),
            Counter(each.visit.side for each in mine if not each.deaths),
        )

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Row:
        return cls(
            row["point"],
            row["visits"],
            row["killed"],
            row["twice"],
            Counter(row["notReached"]),
        )

    def __add__(self, other: Row) -> Row:
        return Row(
            self.point,
            self.visits + other.visits,
            self.killed + other.killed,
            self.twice + other.twice,
            self.missed + other.missed,
        )

    def cells(self) -> list[str]:
        words = ", ".join(f"{side} {n}" for side, n in self.missed.items())
        return [*map(str, (self.point, self.visits, self.killed, self.twice)), words]

    def as_json(self) -> dict[str, Any]:
        return {
            "point": self.point,
            "visits": self.visits,
            "killed": self.killed,
            "twice": self.twice,
            "notReached": dict(self.missed),
        }


def add_up(reports: Sequence[Mapping[str, Any]]) -> tuple[Proof, list[int], list[Row]]:
    """Add up what tours printed as JSON; gives their seeds and their points, too."""
    total = Proof(reports[0]["seed"], version=reports[0]["version"])
    rows: dict[str, Row] = {}
    for report in reports:
        _add(total, report)
        for row in map(Row.read, report["points"]):
            there = rows.get(row.point)
            rows[row.point] = row if there is None else there + row
    return total, [report["seed"] for report in reports], list(rows.values())


def _add(total: Proof, report: Mapping[str, Any]) -> None:
    if report["version"] not in total.version.split(", "):
        total.version = f"{total.version}, {report['version']}"
    total.seconds += report["seconds"]
    total.lives += report["lives"]
    total.stops += report["stops"]
    total.faults.update(report["faultKinds"])
    total.states.update(report["states"])
    total.worst_settle = max(total.worst_settle, report["worstSettleSeconds"])
    total.findings += [Finding(**finding) for finding in report["findings"]]
