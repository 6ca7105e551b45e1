"""The language of the person at the terminal."""

from __future__ import annotations

import os

from agentteam_protocol.activity import Language


def language() -> Language:
    """Read the locale the way gettext does: the first variable that is set decides."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if value := os.environ.get(name):
            return Language.zh if value.lower().startswith("zh") else Language.en
    return Language.en


def say(en: str, zh: str) -> str:
    return zh if language() is Language.zh else en
