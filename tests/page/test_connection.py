"""The page over lost connections, long histories and several agents."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import expect
from tests.kit.browser import reader
from tests.kit.product import do, open_up

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser
    from tests.kit.browser import Reader
    from tests.kit.product import Up

pytestmark = [pytest.mark.slow, pytest.mark.needs("chromium")]

LONG = "one two three four five six seven eight nine ten " * 4
MANY = 3000


@pytest.mark.bug("B20")
def test_server_killed_and_back_loses_and_doubles_nothing(
    browser: Browser, tmp_path: Path
) -> None:
    with open_up(tmp_path) as up, reader(browser, up.url) as person:
        port = str(urlsplit(up.url).port)
        person.open("@demo").send("before")
        expect(person.messages).to_have_count(2)
        up.kill9()
        lost = person.page.get_by_text("Connection lost. Reconnecting…")
        expect(lost).to_be_visible()
        person.writing.fill("while it is away")
        person.writing.press("Enter")
        expect(person.page.locator(".composer .problem")).to_contain_text("Not sent")
        expect(person.writing).to_have_value("while it is away")
        up.start("--port", port)
        up.forget_log()
        with httpx.Client(base_url=up.url) as other:
            other.post("/api/targets/@demo/messages", json={"body": "from elsewhere"})
        expect(lost).to_be_hidden()
        expect(person.messages).to_have_count(4)
        person.writing.press("Enter")
        expect(person.messages).to_have_count(6)
        bodies = person.page.locator(".message.mine .body").all_inner_texts()
        assert bodies == ["before", "from elsewhere", "while it is away"]


def test_long_history_is_scrolled_smoothly(
    browser: Browser, up: Up, api: httpx.Client
) -> None:
    """Old pages come while one scrolls up, and no frame takes long."""
    made = api.post("/api/targets", json={"name": "long", "agents": []})
    assert made.status_code == 201

    def say(number: int) -> int:
        body = {"body": f"message {number}"}
        return api.post("/api/targets/long/messages", json=body).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(say, range(MANY))) == {201}
    with reader(browser, up.url) as person:
        person.open("long")
        expect(person.messages.last).to_be_in_viewport()
        frames = person.page.evaluate(SCROLL_UP)
        expect(person.page.locator("#m1")).to_be_attached()
        numbers = person.page.evaluate(NUMBERS)
        assert numbers == list(range(1, MANY + 1))
        assert sorted(frames)[len(frames) // 2] < 200, sorted(frames)[-10:]


NUMBERS = """() =>
  [...document.querySelectorAll(".message")].map((each) => Number(each.id.slice(1)))"""
SCROLL_UP = """async () => {
  const scroller = document.querySelector(".scroller");
  const frames = [];
  let last = performance.now();
  const until = last + 60000;
  while (!document.querySelector("#m1") && performance.now() < until) {
    scroller.scrollTop = Math.max(0, scroller.scrollTop - 2000);
    await new Promise(requestAnimationFrame);
    frames.push(performance.now() - last);
    last = performance.now();
  }
  return frames;
}"""


def test_urgent_in_a_group_names_the_agent(
    browser: Browser, up: Up, agent: str
) -> None:
    second = f"{agent}b"
    with httpx.Client(base_url=up.url) as client:
        client.post("/api/agents", json={"name": second, "runtime": "rehearsal"})
        made = client.post(
            "/api/targets", json={"name": f"team-{agent}", "agents": [agent, second]}
        )
        assert made.status_code == 201
    with reader(browser, up.url) as person:
        person.open(f"team-{agent}")
        person.send(do({"say": LONG, "ms": 300}))
        expect(person.page.locator(".strip")).to_have_count(2)
        message = person.send("only for the second")
        menu = person.more(message)
        menu.get_by_role("menuitem", name=f"Mark urgent for {second}").click()
        urgent = message.locator(".state.surfaced", has_text="urgent")
        expect(urgent).to_contain_text(second)
        expect(urgent).to_have_count(1)


def test_agents_and_conversations_are_made_on_the_page(
    person: Reader, agent: str
) -> None:
    page, made = person.page, f"{agent}-new"
    page.get_by_role("button", name="New agent").click()
    page.get_by_label("Name").fill("Not A Name")
    page.get_by_label("Runtime").select_option("rehearsal")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.get_by_label("Name").fill(made)
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name=f"@{made}")).to_be_visible()
    person.send("hello")
    expect(person.messages.last).to_contain_text("Heard: hello")
    page.get_by_role("button", name="New conversation").click()
    page.get_by_label("Name").fill(f"{agent}-room")
    page.get_by_role("checkbox", name=made).check()
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name=f"{agent}-room")).to_be_visible()
