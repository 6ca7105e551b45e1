"""Wall time, which is only shown; order is by sequence numbers."""

from __future__ import annotations

from datetime import UTC, datetime


def wall_time(moment: float | None = None) -> str:
    """Tell the time, or that of a moment, as RFC 3339 in UTC."""
    now = datetime.now(UTC) if moment is None else datetime.fromtimestamp(moment, UTC)
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
