"""
Markdown of agents as HTML that a page may show.

Two walls: the renderer passes no HTML of its author, and what it made is cleaned once
more, against a list of what may be there. Nothing in it loads from anywhere.
"""

from __future__ import annotations

from functools import cache

import nh3
from markdown_it import MarkdownIt

_TEXT = {"a", "br", "code", "del", "em", "p", "s", "strong"}
_BLOCKS = {"blockquote", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "pre"}
_LISTS = {"li", "ol", "ul"}
_TABLES = {"table", "tbody", "td", "th", "thead", "tr"}
_TAGS = _TEXT | _BLOCKS | _LISTS | _TABLES
_ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}, "code": {"class"}}
_SCHEMES = {"http", "https", "mailto"}


@cache
def _parser() -> MarkdownIt:
    options = {"html": False, "breaks": True}
    return MarkdownIt("commonmark", options).enable(["table", "strikethrough"])


def render(text: str) -> str:
    """Make HTML of a message; what is no Markdown stays as it was written."""
    return nh3.clean(
        _parser().render(text),
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes=_SCHEMES,
        link_rel="noopener noreferrer nofollow",
    )
