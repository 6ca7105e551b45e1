"""What an agent wrote, as HTML: formatted, and harmless."""

from __future__ import annotations

import re

import pytest

from agentteam_supervisor.page.markdown import render

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[x](javascript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:x)",
    "![x](https://example.com/tracker.png)",
    '<a href="https://example.com" onclick="alert(1)">x</a>',
    "<iframe src=https://example.com></iframe>",
    "<style>body { display: none }</style>",
    '<div style="position: fixed; inset: 0">over everything</div>',
    "<svg/onload=alert(1)>",
    '[x](https://example.com"onmouseover="alert(1))',
    "```<script>alert(1)</script>```",
    "<!--><script>alert(1)</script>-->",
    "[x]: javascript:alert(1)\n\n[x]",
    "<https://example.com/<script>>",
]
ALLOWED = re.compile(
    r"</?(a|blockquote|br|code|del|em|h[1-6]|hr|li|ol|p|pre|s|strong|table|tbody|td"
    r"|th|thead|tr|ul)( (href|title|rel|start|class)=\"[^\"<>]*\")* ?/?>"
)


@pytest.mark.bug("B14")
@pytest.mark.parametrize("text", HOSTILE)
def test_no_markup_of_the_author_gets_through(text: str) -> None:
    html = render(text)
    rest = ALLOWED.sub("", html)
    assert "<" not in rest, html
    links = re.findall(r'href="([^"]*)"', html)
    assert all(link.startswith("https://example.com") for link in links), links


def test_markdown_is_formatted() -> None:
    html = render("# T\n\n*a* **b** `c` ~~d~~\n\n- e\n\n| f |\n|---|\n| g |\n")
    for piece in ("<h1>T</h1>", "<em>a</em>", "<strong>b</strong>", "<code>c</code>"):
        assert piece in html
    for piece in ("<s>d</s>", "<li>e</li>", "<th>f</th>", "<td>g</td>"):
        assert piece in html


def test_lines_stay_lines() -> None:
    assert render("one\ntwo") == "<p>one<br>\ntwo</p>\n"


def test_link_tells_its_target_nothing() -> None:
    html = render("[x](https://example.com/a)")
    assert 'rel="noopener noreferrer nofollow"' in html


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\u202eabc",
        "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
        "x" * 100_000,
        "*" * 5000,
        "[" * 5000,
        "> " * 500,
    ],
)
def test_odd_text_is_rendered_in_bounded_time(text: str) -> None:
    assert isinstance(render(text), str)
