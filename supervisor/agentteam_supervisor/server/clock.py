"""Wall time, which is only shown; order is by sequence numbers."""

from __future__ import annotations

from datetime import UTC, datetime


def wall_time() -> str:
    """Tell the time as RFC 3339 in UTC."""
    now = datetime.now(UTC)
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
