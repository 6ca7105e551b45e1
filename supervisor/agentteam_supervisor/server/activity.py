"""The lines people read of a run, projected in their language: pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from agentteam_protocol.activity import ActivityKind, Language, render

if TYPE_CHECKING:
    from collections.abc import Mapping

# Signals stand in `detail` only (interrupt spec §4.2).
_SIGNAL = re.compile(r"\bSIG[A-Z][A-Z0-9]+\b")
_INSTEAD = {Language.zh: "停止请求", Language.en: "a stop request"}


def line(kind: str, words: Mapping[str, str], language: Language) -> str:
    """Make the user-facing text; a word may have a Chinese form, `textZh`."""
    chosen = dict(words)
    if language is Language.zh and "textZh" in words:
        chosen["text"] = words["textZh"]
    text = render(ActivityKind(kind), chosen, language)
    return _SIGNAL.sub(_INSTEAD[language], text)


def localise(value: Any, language: Language) -> Any:
    """
    Put texts where stored objects have only words.

    `{kind, words, ...}` becomes `{kind, text, ...}`; a lone `{line: {kind, words}}`
    becomes its text.
    """
    if isinstance(value, list):
        items: list[Any] = list(cast("Any", value))
        return [localise(item, language) for item in items]
    if not isinstance(value, dict):
        return value
    members = cast("dict[str, Any]", value)
    if set(members) == {"line"}:
        spoken = members["line"]
        return line(spoken["kind"], spoken["words"], language)
    if "words" in members and "kind" in members:
        rest = {k: v for k, v in members.items() if k != "words"}
        return {**rest, "text": line(members["kind"], members["words"], language)}
    return {name: localise(item, language) for name, item in members.items()}


def language_of(accept: str) -> Language:
    """Choose by an `Accept-Language` header: the first of zh and en with most weight."""
    best, weight = Language.en, 0.0
    for part in accept.split(","):
        tag, _, parameter = part.strip().partition(";")
        primary = tag.strip().lower().split("-")[0]
        quality = _quality(parameter)
        if primary in {"zh", "en"} and quality > weight:
            best, weight = Language(primary), quality
    return best


def _quality(parameter: str) -> float:
    found = re.fullmatch(r"\s*q\s*=\s*([01](?:\.\d{0,3})?)\s*", parameter)
    return float(found[1]) if found else 1.0
