"""
A supervisor to be killed: `python victim.py LEASE LEVEL SCRIPT`.

Keeps one incarnation of SCRIPT, prints its identity as one JSON line and then the
runtime's own lines.
"""

from __future__ import annotations

import json
import sys

import trio
from attrs import asdict
from tests.kit.trees import Ears

from agentteam_runtimes import orphans, warden_start
from agentteam_runtimes.incarnation import Limits


class Aloud(list[bytes]):
    def extend(self, lines: list[bytes]) -> None:  # type: ignore[override]
        for line in lines:
            print(line.decode(), flush=True)


async def main(lease: float, level: str, script: str) -> None:
    if level == "subreaper":
        # No cgroup for its wardens: `str` makes the empty name that says so.
        setattr(warden_start, "make_cgroup", str)  # noqa: B010 - not exported by it
    orphans.ensure_subreaper()
    ears = Ears(lines=Aloud())
    async with ears.open(script, limits=Limits(lease=lease)) as incarnation:
        print(json.dumps(asdict(incarnation.identity)), flush=True)
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main, float(sys.argv[1]), sys.argv[2], sys.argv[3])
