"""What a person can do when the model's provider does not know who is asking."""

from __future__ import annotations

import re

_REFUSED = re.compile(
    r"\b40[13]\b|log(?:ged)?[ -]?in\b|api[ _-]?key|credential|authenti|unauthori[sz]ed"
    r"|forbidden",
    re.IGNORECASE,
)


def advice(said: str, how: str) -> str:
    """Give `how` if the error that a runtime told is about its login; else nothing."""
    return how if _REFUSED.search(said) else ""
