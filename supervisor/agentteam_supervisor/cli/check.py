"""One thing that the doctor looked at."""

from __future__ import annotations

from attrs import frozen


@frozen
class Check:
    """`state`: ok, warn (works, with less) or bad (does not work)."""

    name: str
    state: str
    detail: str
