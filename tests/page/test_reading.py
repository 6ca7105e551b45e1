"""What people read on the page, and that nothing in it can do harm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # it has no types
from playwright.sync_api import expect
from tests.kit.browser import PHONE, reader
from tests.kit.product import do

if TYPE_CHECKING:
    import httpx
    from playwright.sync_api import Browser
    from tests.kit.browser import Reader
    from tests.kit.product import Up

pytestmark = [pytest.mark.slow, pytest.mark.needs("chromium")]

LONG = "one two three four five six seven eight nine ten " * 4
HOSTILE = [
    "<script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\">",
    "<style>* { display: none !important }</style>",
    "[click](javascript:document.title='taken')",
    "\u202egnp.exe \u2066\u2067 bidi",
    "x" * 100_000,
    '"><svg onload=document.title="taken">',
    "</div></li></ol><h1>outside</h1>",
]
RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
}


@pytest.mark.bug("B14")
@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_body_is_shown_as_text_and_breaks_nothing(
    body: str, person: Reader, api: httpx.Client, agent: str
) -> None:
    person.send(body)
    expect(person.messages).to_have_count(2)  # the answer repeats it
    expect(person.messages.last).to_contain_text("Heard:")
    assert person.page.title() == f"@{agent} · AgentTeam"
    shown = person.messages.first.locator(".body").text_content() or ""
    assert shown.rstrip("…") == body[: len(shown.rstrip("…"))]
    assert person.page.locator("img, svg, script:not([src]), style").count() == 0
    overflow = "() => document.documentElement.scrollWidth <= innerWidth"
    assert person.page.evaluate(overflow)


def test_answer_of_an_agent_is_formatted(person: Reader) -> None:
    person.send(do({"say": "# Title\n\n- **one**\n- `two`"}))
    answer = person.messages.last.locator(".body.rendered")
    expect(answer.get_by_role("heading", name="Title")).to_be_visible()
    expect(answer.locator("li strong")).to_have_text("one")


def test_reload_in_the_middle_shows_where_it_stands(person: Reader) -> None:
    person.send(do({"say": LONG, "ms": 200}))
    live = person.page.locator(".run .live").first
    expect(live).to_contain_text("two")
    person.page.reload()
    expect(person.messages).to_have_count(1)
    expect(person.page.locator(".strip")).to_contain_text("Started working")
    expect(live).to_contain_text("six")
    person.mark_urgent(person.send("now"))
    expect(live).to_contain_text("cut here")
    person.page.reload()
    expect(live).to_contain_text("cut here")
    expect(live).to_contain_text("one two")


@pytest.mark.req("R72")
@pytest.mark.parametrize(
    ("button", "words"),
    [("Allow once", "allowed once, by"), ("Reject", "rejected, by")],
)
def test_approval_is_decided_on_its_card(
    button: str, words: str, person: Reader, api: httpx.Client
) -> None:
    person.send(do({"ask": "write_file"}, {"say": "went on"}))
    card = person.page.locator(".card")
    expect(card).to_contain_text("asks to use write_file")
    card.get_by_role("button", name=button).click()
    expect(card).to_contain_text(words)
    expect(person.messages.last).to_contain_text("went on")


def test_failed_delivery_says_what_to_do_and_has_the_buttons(
    browser: Browser, up: Up, api: httpx.Client, tmp_path: Any
) -> None:
    missing = str(tmp_path / "nowhere")
    body = {"name": "broken", "runtime": "rehearsal", "options": {"bin": missing}}
    assert api.post("/api/agents", json=body).status_code == 201
    with reader(browser, up.url) as person:
        person.open("@broken")
        message = person.send("hello")
        strip = person.page.locator(".strip.offline")
        expect(strip).to_be_visible()
        expect(strip.get_by_role("button", name="Resume")).to_be_visible()
        menu = person.more(message)
        menu.get_by_role("menuitem", name="Withdraw").click()
        expect(message.locator(".state")).to_contain_text("withdrawn")


def test_history_is_searched_and_found_messages_are_shown(
    person: Reader, api: httpx.Client, agent: str
) -> None:
    path = f"/api/targets/@{agent}/messages"
    api.post(path, json={"body": "the needle in it"})
    for number in range(150):
        api.post(path, json={"body": f"hay {number}"})
    person.page.reload()
    expect(person.messages.last).to_be_visible()
    person.page.get_by_role("searchbox").fill("NEEDLE")
    hit = person.page.locator(".results button").first
    expect(hit).to_contain_text("the needle in it")
    hit.click()
    expect(person.page.locator("#m1.chosen")).to_be_in_viewport()


def test_draft_is_kept(person: Reader) -> None:
    person.writing.fill("half a thought")
    person.page.reload()
    expect(person.writing).to_have_value("half a thought")


def test_everything_goes_by_keyboard(person: Reader, agent: str) -> None:
    page = person.page
    page.keyboard.press("Escape")
    page.keyboard.press("c")
    page.keyboard.type(do({"say": LONG, "ms": 300}))
    page.keyboard.press("Enter")
    expect(page.locator(".run .live").first).to_contain_text("one")
    page.keyboard.type("and now this")
    page.keyboard.press("Enter")
    expect(page.locator("#m2")).to_be_visible()
    for key in ("Escape", "k", "m"):
        page.keyboard.press(key)
    expect(page.get_by_role("menuitem", name="Mark urgent")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#m2 .state.surfaced")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keyboard")


@pytest.mark.req("R126")
@pytest.mark.parametrize("look", [{}, {"viewport": PHONE}, {"color_scheme": "dark"}])
@pytest.mark.parametrize("locale", ["en-GB", "zh-CN"])
def test_no_rule_of_accessibility_is_broken(
    look: dict[str, Any],
    locale: str,
    browser: Browser,
    up: Up,
    api: httpx.Client,
    agent: str,
) -> None:
    path = f"/api/targets/@{agent}/messages"
    for body in ("hello", do({"say": LONG, "ms": 100}, {"ask": "write_file"})):
        api.post(path, json={"body": body})
    with reader(browser, up.url, locale=locale, **look) as person:
        person.page.goto(f"{up.url}/#@{agent}")
        expect(person.page.locator(".card")).to_be_visible(timeout=30_000)
        lang = person.page.locator("html").get_attribute("lang")
        assert lang == ("en" if locale == "en-GB" else "zh-Hans")
        found = Axe().run(person.page, options=RULES)
        assert found.violations_count == 0, found.generate_report()
        person.page.locator("#m1 .more").click()
        found = Axe().run(person.page, options=RULES)
        assert found.violations_count == 0, found.generate_report()


def test_chinese_says_the_four_lines(
    browser: Browser, up: Up, api: httpx.Client, agent: str
) -> None:
    path = f"/api/targets/@{agent}/messages"
    api.post(path, json={"body": do({"say": LONG, "ms": 300})})
    with reader(browser, up.url, locale="zh-CN") as person:
        page = person.page
        page.goto(f"{up.url}/#@{agent}")
        expect(page.locator(".run .live").first).to_contain_text("one")
        expect(page.get_by_role("button", name="停止")).to_be_visible()
        page.get_by_role("textbox").last.fill("二加二等于几？")
        page.get_by_role("textbox").last.press("Enter")
        page.locator("#m2 .more").click()
        page.get_by_role("menuitem", name="加急").click()
        expect(page.locator("#m2 .lifecycle li")).to_have_text(
            [
                "@user 请求打断当前 run",
                "正在停止当前 run…",
                "当前 run 已打断",
                "正在处理 @user 的新请求",
            ]
        )
